"""Slurm's topology.yaml: a list of topologies, each of them a tree, blocks, rings, tori or flat (topology.yaml(5)).

- topology: fabric
  cluster_default: true
  tree:
    switches:
      - {switch: core, children: "leaf[1-2]"}
      - {switch: leaf1, nodes: "peta[10000-10019]"}
"""

import re

from rackyard.fabric.facts import Facts, HostFact, Source
from rackyard.fabric.readers.hostlist import MAX_HOSTS, HostlistError, expand
from rackyard.fabric.readers.reader import Capture, Reader, text_of
from rackyard.fabric.readers.slurm_topology import Place, Unit, block_facts, ring_facts, tree_facts
from rackyard.fabric.yamlread import Value, read

NAME = "slurm-yaml"

_KINDS = ("tree", "block", "ring", "torus3d", "flat")
_FIRST = re.compile(r"^\s*[-\[]\s*\{?\s*[\"']?topology[\"']?\s*:", re.MULTILINE)


def parse(capture: Capture, limit: int = MAX_HOSTS) -> Facts:
    """The hosts of a topology.yaml: switches above them from trees, blocks from blocks. `limit` bounds how many names
    all its hostlists together may stand for. SpecError with line and column.
    """
    document = read(text_of(capture), capture.file, "topology.yaml", "- topology: default")
    facts = Facts()
    names = _Names(limit)
    seen: dict[str, int] = {}
    for entry in document.items():
        found = entry.fields(("topology",), ("cluster_default", *_KINDS))
        name = found["topology"].text()
        if name in seen:
            found["topology"].fail(f"topology {name[:80]!r} is given twice", fix=f"the first is in line {seen[name]}")
        seen[name] = found["topology"].line
        if "cluster_default" in found:
            found["cluster_default"].flag()
        kinds = [kind for kind in _KINDS if kind in found]
        if len(kinds) != 1:
            entry.fail(f"topology {name[:80]!r} has {len(kinds)} kinds", fix=f"exactly one of {', '.join(_KINDS)}")
        facts.add(_topology(kinds[0], found[kinds[0]], names))
    return facts


class _Names:
    """Expands hostlists while there is room."""

    def __init__(self, limit: int) -> None:
        self.room = limit

    def of(self, found: dict[str, Value], key: str) -> tuple[str, ...]:
        if key not in found:
            return ()
        value = found[key]
        parts = [value] if value.is_scalar else value.items()
        names: list[str] = []
        for part in parts:
            try:
                names += expand(part.text(), self.room - len(names))
            except HostlistError as error:
                part.fail(error.what)
        self.room -= len(names)
        return tuple(names)


def _topology(kind: str, value: Value, names: _Names) -> Facts:
    if kind == "tree":
        parts = value.fields(("switches",))["switches"].items()
        return tree_facts(NAME, [_unit(part, "switch", names, ("children",)) for part in parts])
    if kind == "block":
        found = value.fields(("blocks",), ("block_sizes",))
        sizes = [part.integer(1) for part in found["block_sizes"].items()] if "block_sizes" in found else []
        units = [_unit(part, "block", names) for part in found["blocks"].items()]
        return block_facts(NAME, units, sizes, _place(found["block_sizes"]) if sizes else None)
    if kind == "ring":
        parts = value.fields(("rings",))["rings"].items()
        return ring_facts(NAME, [_unit(part, "ring", names) for part in parts])
    if kind == "torus3d":
        return _tori(value, names)
    if value.is_scalar:
        value.flag()
    else:
        value.fields((), ("alpha_step_rank",))
    return Facts()


def _unit(value: Value, named: str, names: _Names, more: tuple[str, ...] = ()) -> Unit:
    found = value.fields((named,), ("nodes", *more))
    name = found[named].text()
    return Unit(name, name, names.of(found, "nodes"), names.of(found, "children"), _place(found[named]))


def _tori(value: Value, names: _Names) -> Facts:
    """The nodes of tori. Coordinates are no switches, so only the nodes themselves are told."""
    facts = Facts()
    for torus in value.fields(("toruses",))["toruses"].items():
        found = torus.fields(("name", "dims"), ("nodes", "regions", "placements"))
        source = Source(NAME, torus.file, torus.line)
        nodes = list(names.of(found, "nodes"))
        for region in found["regions"].items() if "regions" in found else ():
            nodes += names.of(region.fields(("anchor", "dims", "nodes")), "nodes")
        facts.hosts += [HostFact(node=node, source=source) for node in nodes]
    return facts


def _place(value: Value) -> Place:
    return Place(value.file, value.line, value.column)


def _read(capture: Capture) -> Facts:
    return parse(capture)


def _knows(head: str, file: str) -> bool:
    del file  # a topograph model may be called topology.yaml too
    return bool(_FIRST.search(head))


READER = Reader(NAME, _knows, _read)
