"""Level by level: the BestFit rule of Kueue's topology-aware scheduling."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackyard.placement.columns import Ints
from rackyard.placement.model import Request
from rackyard.placement.replay.policies.room import Positions, Room, rooms
from rackyard.placement.yard import Decision, Yard


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Pods and slices that the groups of one level have room for, and the group of each pool."""

    groups: Ints
    pods: Ints
    slices: Ints


def per_level(request: Request, yard: Yard) -> Decision | None:
    """`podset-preferred-topology` on the NVLink domain: the domain that fits best, else a level up, and so on.

    At the level found, and at every level below it, the domains with most room are taken first, and the last one is the
    tightest that holds the rest (BestFit). All groups chosen at one level pool their children at the next. A required
    segment is a slice (`podset-slice-required-topology` on the domain): room is counted in whole slices, and among
    domains with room for equally many the one with fewer nodes left comes first. Slices can't be preferred, so a
    segment that is not required is not asked for. Pods are ranked in the order of the fabric.

    Sources: https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/ and KEP-2724 in
    https://github.com/kubernetes-sigs/kueue/tree/main/keps/2724-topology-aware-scheduling, read with
    pkg/cache/scheduler/tas_flavor_snapshot.go (v0.17.0, which this is held to by a test, and ff69552). A node takes one
    pod of a gang here, as everywhere in this replay, so room is counted in nodes, whatever else is free on them; for a
    gang of one pod it is counted in such pods, as Kueue does. `TASBalancedPlacement`, which is off unless asked for,
    is left out.
    """
    for room in rooms(request, yard):
        unit = room.shape.unit if request.segment_required else 1
        chosen = _domains(room, unit)
        if chosen is not None:
            return room.seats(_hosts(room, chosen, unit))
    return None


def _domains(room: Room, unit: int) -> list[tuple[int, int]] | None:
    """Pools and how many slices each takes."""
    levels = _levels(room, unit)
    need = room.shape.nodes // unit
    at = len(levels) - 1
    while at > 0 and int(levels[at].slices.max()) < need:
        at -= 1
    chosen = _fewest(_largest_first(levels[at], None), levels[at].slices, need)
    while chosen is not None and at < len(levels) - 1:
        parents = np.zeros(int(levels[at].groups.max()) + 1, np.bool_)
        parents[[group for group, _ in chosen]] = True
        children = np.unique(levels[at + 1].groups[parents[levels[at].groups]])
        at += 1
        chosen = _fewest(_largest_first(levels[at], children), levels[at].slices, need)
    return chosen


def _levels(room: Room, unit: int) -> list[_Level]:
    """From the part down to the domain; for servers that are their own domain, down to the rack."""
    counts = np.add.reduceat(_pods(room), room.ground.starts, dtype=np.int32)
    slices = counts if unit == 1 else np.where(room.ground.loose, 0, counts // unit)
    made = []
    for tier in ("part", "block", "leaf", "domain"):
        groups = room.ground.tiers[tier]
        pods = np.bincount(groups, counts).astype(np.int32)
        made.append(_Level(groups, pods, np.bincount(groups, slices).astype(np.int32)))
    return made


def _largest_first(level: _Level, among: Ints | None) -> list[int]:
    groups = np.arange(len(level.pods)) if among is None else among
    order = np.lexsort((groups, level.pods[groups], -level.slices[groups]))
    return [int(group) for group in groups[order]]


def _fewest(order: Sequence[int], room: Ints, need: int) -> list[tuple[int, int]] | None:
    """Groups in the order given until they hold `need`; the last is the tightest of those that hold the rest."""
    taken: list[tuple[int, int]] = []
    for at, group in enumerate(order):
        if room[group] >= need:
            last = min((one for one in order[at:] if room[one] >= need), key=lambda one: int(room[one]))
            return [*taken, (last, need)]
        taken.append((group, int(room[group])))
        need -= int(room[group])
    return None


def _hosts(room: Room, chosen: Sequence[tuple[int, int]], unit: int) -> Positions:
    """Nodes of the chosen pools; with slices so many of each, else the first ones of all of them together."""
    if unit > 1:
        return np.sort(np.concatenate([room.of_pool(pool)[: slices * unit] for pool, slices in chosen]))
    pools = np.zeros(len(room.ground.starts), np.bool_)
    pools[[pool for pool, _ in chosen]] = True
    nodes = room.in_pools(pools)
    if room.shape.nodes == 1:
        return nodes[[np.argmin(_pods(room)[nodes])]]
    return nodes[: room.shape.nodes]


def _pods(room: Room) -> Ints:
    """Pods of the gang that each node has room for: one, unless the gang is a single pod."""
    if room.shape.nodes > 1:
        return room.fits.astype(np.int32)
    return np.bitwise_count(room.free).astype(np.int32) // np.int32(room.shape.per_node)
