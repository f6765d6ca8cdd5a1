"""The site as JSON, nothing left out: `readers.site_json.load` makes an equal one of it."""

from typing import Any

import msgspec

from rackyard.fabric.model import Site

FORMAT = "rackyard.site"
VERSION = 1

PARTS = ("name", "simulated", "racks", "nodes", "leaves", "spines", "provenance")


def write(site: Site, *, indent: int = 1) -> str:
    """JSON with a line break after it; `indent` 0 puts everything on one line."""
    entries: dict[str, Any] = {"format": FORMAT, "version": VERSION} | {name: getattr(site, name) for name in PARTS}
    data = msgspec.json.encode(entries)
    return (msgspec.json.format(data, indent=indent) if indent else data).decode() + "\n"
