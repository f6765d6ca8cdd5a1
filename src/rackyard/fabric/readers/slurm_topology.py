"""What both of Slurm's topology files say, and the rules that Slurm itself holds them to.

The rules are those of slurmctld (src/plugins/topology/{tree,block,ring}): what it refuses to start with is an error
here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from rackyard.errors import SpecError, Where
from rackyard.fabric.facts import Facts, HostFact, Source

MAX_SWITCH_NAME = 64
"""HOST_NAME_MAX on Linux, which Slurm holds switch names to (topology.conf(5))."""

MAX_RING = 16
"""Nodes in a ring (topology.conf(5))."""

MAX_DEPTH = 21
"""Slurm gives up on a tree after that many levels (switch_record.c)."""

MAX_LEVELS = 16
"""Levels of aggregated blocks (block_record.h, MAX_BLOCK_LEVELS)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: line and column from 1, and the line's text."""

    file: str
    line: int
    column: int
    text: str = ""

    def fail(self, what: str, *, why: str | None = None, fix: str | None = None) -> NoReturn:
        """Complain about what stands here."""
        raise SpecError(what, where=Where(self.file, self.line, self.column), why=why, fix=fix)


@dataclass(frozen=True, slots=True)
class Unit:
    """A switch, a block or a ring. `alias` is the name that a comment gives it (topograph writes `#
    switch.1.1=leaf-1-1`), else the same as `name`.
    """

    name: str
    alias: str
    nodes: tuple[str, ...]
    children: tuple[str, ...]
    place: Place


def tree_facts(reader: str, switches: Sequence[Unit]) -> Facts:
    """Every node with the switches above it, leaf first. A node that hangs on two leaves is told twice."""
    by_name = _unique("switch", switches)
    for switch in switches:
        if len(switch.name) > MAX_SWITCH_NAME:
            switch.place.fail(f"the switch name {switch.name[:20]}… is longer than {MAX_SWITCH_NAME} characters")
        if switch.nodes and switch.children:
            switch.place.fail(f"switch {switch.name} has both child switches and nodes", fix="give it one of the two")
    parents: dict[str, Unit] = {}
    for switch in switches:
        for child in switch.children:
            if child not in by_name or child == switch.name:
                switch.place.fail(f"switch {switch.name} has the child {child[:80]!r}, which is no other switch")
            parents[child] = switch  # of several parents Slurm keeps the last
    _acyclic(switches, by_name)
    facts = Facts()
    for switch in switches:
        if switch.nodes:
            source = _source(reader, switch)
            tiers = tuple(above.alias for above in _upward(switch, parents))
            if len(tiers) > MAX_DEPTH:
                switch.place.fail(f"{len(tiers) - 1} switches stand above {switch.name[:80]}", fix="Slurm takes 20")
            facts.hosts += [HostFact(node=node, source=source, tiers=tiers) for node in switch.nodes]
    return facts


def block_facts(reader: str, blocks: Sequence[Unit], sizes: Sequence[int], place: Place | None) -> Facts:
    """Every node with its block. `sizes` are the block sizes, written at `place`; none means Slurm's own choice."""
    _unique("block", blocks)
    for size in sizes:
        if place is not None and not _fits(size, sizes[0]):
            place.fail(f"block size {size} does not follow from {sizes[0]}", fix="the first times a power of two")
    facts = Facts()
    for block in blocks:
        source = _source(reader, block)
        facts.hosts += [HostFact(node=node, source=source, block=block.alias) for node in block.nodes]
    return facts


def ring_facts(reader: str, rings: Sequence[Unit]) -> Facts:
    """The nodes of rings. A ring is an order of nodes and neither a switch nor an NVLink domain."""
    _unique("ring", rings)
    facts = Facts()
    for ring in rings:
        if len(ring.nodes) > MAX_RING:
            ring.place.fail(f"ring {ring.name} has {len(ring.nodes)} nodes", fix=f"at most {MAX_RING}")
        source = _source(reader, ring)
        facts.hosts += [HostFact(node=node, source=source) for node in ring.nodes]
    return facts


def _fits(size: int, base: int) -> bool:
    if base <= 0 or size <= 0 or size % base:
        return False
    times = size // base
    return times & (times - 1) == 0 and times < 1 << MAX_LEVELS


def _source(reader: str, unit: Unit) -> Source:
    return Source(reader, unit.place.file, unit.place.line, unit.place.text)


def _unique(what: str, units: Sequence[Unit]) -> dict[str, Unit]:
    found: dict[str, Unit] = {}
    for unit in units:
        if unit.name in found:
            first = found[unit.name].place.line
            unit.place.fail(f"{what} {unit.name[:80]} is given twice", fix=f"the first is in line {first}")
        found[unit.name] = unit
    return found


def _acyclic(switches: Sequence[Unit], by_name: dict[str, Unit]) -> None:
    """Refuse a switch that is above itself, without recursion: a chain may be as long as the file."""
    done: set[str] = set()
    for start in switches:
        path = [start.name]
        inside = {start.name}
        trail = [iter(start.children)]
        while trail:
            child = next(trail[-1], None)
            if child is None:
                trail.pop()
                last = path.pop()
                inside.discard(last)
                done.add(last)
            elif child in inside:
                by_name[path[-1]].place.fail(f"switch {child} is above itself", why="the switches form a circle")
            elif child not in done:
                path.append(child)
                inside.add(child)
                trail.append(iter(by_name[child].children))


def _upward(switch: Unit, parents: dict[str, Unit]) -> Iterator[Unit]:
    yield switch
    while switch.name in parents:
        switch = parents[switch.name]
        yield switch
