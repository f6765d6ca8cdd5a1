"""Topograph's model files: switches above blocks of nodes (NVIDIA/topograph, docs/modeling.md).

    switches:
      core: {switches: [leaf-1, leaf-2]}
    blocks:
    - {switch: leaf-1, nodes: ["node[1101-1118]"], annotations: {accelerator.topology.test/domain: nvl-1}}

Models of July 2026 and before name the accelerator domain in a label; still older ones have the nodes of a leaf below
its switch, a `nodes` map with `attributes.nvlink`, and `capacity_blocks`. All are read. What topograph writes for
Slurm is read by the readers of Slurm's files.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rackyard.fabric.facts import Facts, HostFact, Source
from rackyard.fabric.readers.hostlist import MAX_HOSTS, HostlistError, expand
from rackyard.fabric.readers.reader import Capture, Reader, text_of
from rackyard.fabric.yamlread import Value, read

NAME = "topograph"

DOMAIN_KEYS = (
    "accelerator.topology.test/domain",  # annotation, since topograph 1.0
    "network.topology.nvidia.com/accelerator",  # label, before
)
_FIRST = re.compile(r"^(switches|blocks|capacity_blocks):", re.MULTILINE)
_SITE = re.compile(r"^(simulate|racks|apiVersion):", re.MULTILINE)

_CLIQUE = re.compile(r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\.([0-9]{1,18})")

Notes = dict[str, str]


@dataclass(slots=True)
class _Switch:
    name: str
    at: Value
    notes: Notes = field(default_factory=dict)
    parent: str = ""


@dataclass(slots=True)
class _Node:
    at: Value
    switch: str = ""
    domain: str = ""
    notes: Notes = field(default_factory=dict)


class _Model:
    """The model while it is read; `room` is how many names may still be expanded."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.switches: dict[str, _Switch] = {}
        self.nodes: dict[str, _Node] = {}

    def names(self, value: Value) -> Iterator[tuple[str, Value]]:
        for part in value.items():
            try:
                names = expand(part.text(), self.room)
            except HostlistError as error:
                part.fail(error.what)
            self.room -= len(names)
            for name in names:
                yield name, part

    def attach(self, name: str, switch: str, at: Value) -> None:
        node = self.nodes.setdefault(name, _Node(at))
        if node.switch not in ("", switch):
            at.fail(f"node {name[:80]!r} hangs on {node.switch[:80]!r} and on {switch[:80]!r}")
        node.switch = switch


def parse(capture: Capture, limit: int = MAX_HOSTS) -> Facts:
    """The hosts of a model: the switches above each, its accelerator domain as its block, its labels and annotations.
    `limit` bounds how many names may be expanded. SpecError with line and column.
    """
    document = read(text_of(capture), capture.file, "topograph model", "blocks: []")
    found = document.fields((), ("switches", "blocks", "nodes", "capacity_blocks"))
    model = _Model(limit)
    if "switches" in found:
        _switches(model, found["switches"])
    if "nodes" in found:
        _nodes(model, found["nodes"])
    if "blocks" in found:
        _blocks(model, found["blocks"])
    if "capacity_blocks" in found:
        _capacity_blocks(model, found["capacity_blocks"])
    facts = Facts()
    paths = {"": ()} | {name: _path(model, switch) for name, switch in model.switches.items()}
    for name, node in model.nodes.items():
        path = paths[node.switch]
        notes: Notes = {}
        for above in reversed(path):
            notes |= model.switches[above].notes
        notes |= node.notes
        domain = node.domain or next((notes[key] for key in DOMAIN_KEYS if notes.get(key)), "")
        pair = _CLIQUE.fullmatch(domain)
        facts.hosts.append(
            HostFact(
                node=name,
                source=Source(NAME, capture.file, node.at.line),
                cluster_uuid=pair[1] if pair else None,
                clique_id=int(pair[2]) if pair else None,
                block=domain if domain and not pair else None,
                tiers=path,
                labels=tuple(notes.items()),
            )
        )
    return facts


def _switches(model: _Model, value: Value) -> None:
    children: list[tuple[_Switch, Value]] = []
    leaves: list[tuple[str, Value]] = []
    for name, part in value.entries().items():
        found = part.fields((), ("name", "labels", "annotations", "metadata", "switches", "nodes"))
        switch = _Switch(name, part, _notes(found, ("metadata", "labels", "annotations")))
        model.switches[name] = switch
        children += [(switch, child) for child in found["switches"].items()] if "switches" in found else []
        leaves += [(name, found["nodes"])] if "nodes" in found else []
    for switch, at in children:
        name = at.text()
        child = model.switches.setdefault(name, _Switch(name, at))
        if child.parent:
            at.fail(f"switch {name[:80]!r} is below {child.parent[:80]!r} and below {switch.name[:80]!r}")
        child.parent = switch.name
    for name, nodes in leaves:
        for node, at in model.names(nodes):
            model.attach(node, name, at)


def _nodes(model: _Model, value: Value) -> None:
    """The map of nodes of models before July 2026."""
    for name, part in value.entries().items():
        found = part.entries()
        node = model.nodes.setdefault(name, _Node(part))
        node.domain = _nvlink(found)


def _blocks(model: _Model, value: Value) -> None:
    placed: set[str] = set()
    for part in value.items():
        found = part.fields(("nodes",), ("switch", "labels", "annotations"))
        switch = found["switch"].text() if "switch" in found else ""
        if switch and switch not in model.switches:
            found["switch"].fail(f"there is no switch {switch[:80]!r}")
        notes = _notes(found, ("labels", "annotations"))
        count = len(placed)
        for name, at in model.names(found["nodes"]):
            if name in placed:
                at.fail(f"node {name[:80]!r} is in two blocks")
            placed.add(name)
            if switch:
                model.attach(name, switch, at)
            model.nodes.setdefault(name, _Node(at)).notes = notes
        if len(placed) == count:
            found["nodes"].fail("a block has at least one node")


def _capacity_blocks(model: _Model, value: Value) -> None:
    """The capacity blocks of models before July 2026: by name, each with nodes and attributes; or a list of names
    only.
    """
    if value.is_list:
        return
    for part in value.entries().values():
        found = part.entries()
        domain = _nvlink(found)
        for name, at in model.names(found["nodes"]) if "nodes" in found else ():
            node = model.nodes.setdefault(name, _Node(at))
            node.domain = node.domain or domain


def _nvlink(found: dict[str, Value]) -> str:
    inside = found["attributes"].entries() if "attributes" in found else {}
    return inside["nvlink"].text() if "nvlink" in inside else ""


def _notes(found: dict[str, Value], sections: tuple[str, ...]) -> Notes:
    return {key: value.text() for name in sections if name in found for key, value in found[name].entries().items()}


def _path(model: _Model, switch: _Switch) -> tuple[str, ...]:
    path = [switch.name]
    above = switch.parent
    while above:
        if above in path or len(path) > 64:
            switch.at.fail(f"switch {switch.name[:80]!r} is above itself, or has over 64 switches above it")
        path.append(above)
        above = model.switches[above].parent
    return tuple(path)


def _read(capture: Capture) -> Facts:
    return parse(capture)


def _knows(head: str, file: str) -> bool:
    del file
    return bool(_FIRST.search(head)) and not _SITE.search(head)


READER = Reader(NAME, _knows, _read)
