"""Racks by rails: which leaf serves a rack on a rail, how many of its NICs are up, whether its uplinks are whole."""

from collections import Counter, defaultdict
from dataclasses import dataclass

from rackyard.fabric.model import Health, Site


@dataclass(frozen=True, slots=True)
class Cell:
    """One leaf: NICs that are up of those on it, and its uplinks. `short` says that others have more uplinks."""

    leaf: str
    up: int
    nics: int
    uplinks: int
    short: bool


@dataclass(frozen=True, slots=True)
class RailMatrix:
    """`rows` are the racks that have leaves, in site order, each with the leaves by rail; rail -1 is a leaf of several.
    `wanted` is how many rails a rack's own nodes have HCAs for, `usual` the usual number of uplinks.
    """

    rails: tuple[int, ...]
    rows: dict[str, dict[int, list[Cell]]]
    wanted: dict[str, int]
    usual: int


def rail_matrix(site: Site) -> RailMatrix:
    """The matrix of a site."""
    up: Counter[str] = Counter()
    nics: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for node in site.nodes:
        wanted[node.rack] = max(wanted[node.rack], len(node.nics))
        for nic in node.nics:
            nics[nic.leaf] += 1
            up[nic.leaf] += nic.health is Health.HEALTHY
    counted = Counter(leaf.uplinks for leaf in site.leaves).most_common(1)
    usual = counted[0][0] if counted else 0
    by_rack: dict[str, dict[int, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for leaf in site.leaves:
        cell = Cell(leaf.name, up[leaf.name], nics[leaf.name], leaf.uplinks, leaf.uplinks < usual)
        by_rack[leaf.rack][leaf.rail].append(cell)
    rails = sorted({leaf.rail for leaf in site.leaves} | {rail for rail in site.rails() if rail >= 0})
    rows = {rack.name: dict(by_rack[rack.name]) for rack in site.racks if rack.name in by_rack}
    return RailMatrix(tuple(rails), rows, dict(wanted), usual)
