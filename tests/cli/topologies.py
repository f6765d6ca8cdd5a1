"""Made-up sites, captures and NCCL dumps for the tests of `topo` and `nccl topo`."""

import io
import re
from pathlib import Path

import pytest
from calling import call

from rackyard.fabric import simulate
from rackyard.nccl import Version
from rackyard.nccl.generate import system
from rackyard.nccl.generatehost import hardware_of
from rackyard.nccl.load import load
from rackyard.nccl.xmlwrite import write

ONE_RACK = "simulate: {racks: 1}\n"


def site_file(folder: Path, text: str = ONE_RACK, name: str = "short.yaml") -> Path:
    """A site file."""
    file = folder / name
    file.write_text(text)
    return file


def captured(folder: Path, **racks: int) -> Path:
    """A folder of captures as `topo simulate` makes them."""
    options = [word for name, count in (racks or {"racks": 1}).items() for word in (f"--{name}", count)]
    assert call("topo", "simulate", folder / "captures", *options).code == 0
    return folder / "captures"


def dump(dead: int | None = None, *, count: str | None = None) -> str:
    """What NCCL would dump on a tray of four GPUs; the NVLinks of GPU `dead` are left out, or given as `count`."""
    tray = simulate(racks=1).nodes[0]
    text = write(load(system(tray), hardware_of(tray), Version(2, 30, 7)))
    return text if dead is None else broken(text, dead, count=count)


def broken(text: str, dead: int, *, count: str | None = None) -> str:
    """A dump with the NVLinks of its GPU number `dead` (from 0, in the file's order) left out, or given as `count`."""
    link = list(re.finditer(r"<nvlink [^>]*/>", text))[dead]
    instead = "" if count is None else re.sub(r'count="\d+"', f'count="{count}"', link[0])
    return text[: link.start()] + instead + text[link.end() :]


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """What commands read as `-`."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
