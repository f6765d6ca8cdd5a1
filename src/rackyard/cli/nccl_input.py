"""What the `nccl topo` commands work on: a topology file, a node of a site, or a file as a node would load it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rackyard.cli.inputs import one_of, read_bytes

if TYPE_CHECKING:
    from rackyard.fabric import Node, Site
    from rackyard.nccl.element import Element
    from rackyard.nccl.version import Version

DEFAULT_NCCL = "2.30.7"

nccl_option = click.option(
    "--nccl", "version", default=DEFAULT_NCCL, show_default=True, help="The version of NCCL whose rules apply."
)
site_option = click.option("--site", type=click.Path(path_type=Path), help="Site file that --node is of.")
node_option = click.option("--node", help="A node of the site: what NCCL finds there completes the file.")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The tree that a communicator has; `name` says what of, for people; `note` what was done to it."""

    root: "Element | None"
    name: str
    note: str = ""


_FIRST, _LAST = (2, 18), (2, 32)
"""The versions whose rules are known."""


def version_of(text: str) -> "Version":
    """The version named on the command line. UsageError for one older than any whose rules are known; a newer one is
    judged by the newest rules, and stderr says so.
    """
    from rackyard.cli.common import hint
    from rackyard.errors import UsageError
    from rackyard.nccl import Version

    found = Version.parse(text)
    if (found.major, found.minor) < _FIRST:
        raise UsageError(f"the rules of NCCL {text} are not known", fix="2.18 or later")
    if (found.major, found.minor) > _LAST:
        hint(f"warning: NCCL {text} is newer than the rules known here; those of 2.{_LAST[1]} are used")
    return found


def hint_rules(version: "Version") -> None:
    """Say on stderr when a prediction goes by the rules of another version than the one asked for."""
    from rackyard.cli.common import hint
    from rackyard.nccl.search_verdict import CHECKED

    if version not in CHECKED:
        nearest = CHECKED[1] if version.has_dev_nodes else CHECKED[0]
        hint(f"note: predicted by the rules of NCCL {nearest}; {version} itself was not compared")


def find_node(site_file: Path | None, name: str, state: Path) -> "Node":
    """A node of the site file, or of the state folder's site. UsageError for a name it does not have."""
    site = site_of(site_file, state)
    return site.node(one_of(name, [node.name for node in site.nodes], "node"))


def site_of(site_file: Path | None, state: Path) -> "Site":
    """The site of a file or captures, else of the state folder."""
    from rackyard.cli.captures import site_of_file
    from rackyard.cli.common import hint, open_store
    from rackyard.controller.sites import stored_site

    if site_file is not None:
        return site_of_file(site_file)
    site = stored_site(open_store(state))
    if site.simulated:
        hint(f"note: site {site.name} of {state} is simulated")
    return site


def loaded(file: Path | None, node: "Node | None", version: "Version") -> Loaded:
    """The tree of a dump as it is; a file without GPUs as `node` loads it; or what `node` finds with our own file."""
    from rackyard.errors import UsageError
    from rackyard.nccl.dumpread import MOST_NODES
    from rackyard.nccl.generate import system
    from rackyard.nccl.generatehost import hardware_of
    from rackyard.nccl.load import load
    from rackyard.nccl.xmlread import parse

    if file is None:
        if node is None:
            raise UsageError("nothing to look at", fix="give a topology file, or --node NAME (and --site FILE)")
        return Loaded(load(system(node), hardware_of(node), version), f"node {node.name}")
    data = read_bytes(file)
    if node is not None:
        root = parse(data, str(file), version).root
        return Loaded(load(root, hardware_of(node), version), f"{file} on node {node.name}")
    root = parse(data, str(file), version, max_nodes=MOST_NODES).root
    if root is None:
        raise UsageError(
            "the file has no <system> element",
            where=str(file),
            why="NCCL goes on as if there were no file",
            fix="give a dump, or say on which hardware: --node NAME (and --site FILE)",
        )
    if root.find("gpu") is None:
        raise UsageError(
            "the file names no GPU",
            where=str(file),
            why="it is a file for NCCL_TOPO_FILE, which each rank completes with what it finds on its host",
            fix="say on which hardware: --node NAME (and --site FILE)",
        )
    return Loaded(root, str(file), told_apart(root))


def told_apart(root: "Element") -> str:
    """Give hosts whose hash is no number (redacted dumps) numbers of their own, and say so; empty when none is."""
    from rackyard.nccl.numbers import c_unsigned_long

    hashes = dict.fromkeys(cpu.attrs["host_hash"] for cpu in root.children if "host_hash" in cpu.attrs)
    wrong = [text for text in hashes if c_unsigned_long(text, 16) == 0]
    for number, text in enumerate(wrong, 1):
        for cpu in root.children:
            if cpu.attrs.get("host_hash") == text:
                cpu.attrs["host_hash"] = f"0x{number:016x}"
    if len(wrong) < 1 or len(hashes) < 2:
        return ""
    return f"host_hash {', '.join(wrong)}: no hexadecimal number, NCCL itself would take them for one host"
