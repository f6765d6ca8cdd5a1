"""Tier by tier: the rule of Volcano's network-topology-aware plugin, in hard and in soft mode."""

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Ints
from rackyard.placement.model import Request
from rackyard.placement.replay.policies.pod_by_pod import seat
from rackyard.placement.replay.policies.room import TIERS, Positions, Room, rooms
from rackyard.placement.yard import Decision, Yard

Floats = NDArray[np.float64]


def tier_by_tier(request: Request, yard: Yard, rank: Ints | None = None) -> Decision | None:
    """Hard mode: try the tiers from the NVLink domain upwards; the first with a group that holds the gang decides.

    Among the groups of that tier the one wins that would be fullest afterwards, (used + requested) / allocatable in
    GPUs. Inside it pods are placed one by one, as in soft mode. A required segment is a partition (`partitionPolicy`
    with hard mode at tier 1): each goes to the domain of the group that it would fill most, and the group with the
    highest sum wins. A segment that is not required is a partition in soft mode, which nothing holds together.

    Volcano breaks ties at random. Here `rank` does, pool by pool, lowest first; the order of the fabric without it.

    Sources: https://volcano.sh/en/docs/network_topology_aware_scheduling/ and
    https://github.com/volcano-sh/volcano (pkg/scheduler/plugins/network-topology-aware, actions/allocate; v1.14.1,
    which this is held to by a test, and ed72c7c).
    """
    for room in rooms(request, yard):
        order = _order(room, rank)
        by_segment = request.segment_required and room.shape.unit > 1
        for tier in TIERS:
            nodes = _partitioned(room, tier, order) if by_segment else _together(room, tier, order)
            if nodes is not None:
                return room.seats(nodes)
    return None


def nearest(request: Request, yard: Yard, rank: Ints | None = None) -> Decision | None:
    """Soft mode: the first pod goes to the fullest node that there is, each next one as near to them as it can.

    Nothing looks ahead: the domain of the first pod may have room for no other. Once pods are in domains that only the
    whole cluster joins, no group but their own domains is nearer than another. Required segments, ties and sources are
    as in `tier_by_tier`, but the whole site is the only group.
    """
    for room in rooms(request, yard):
        order = _order(room, rank)
        if request.segment_required and room.shape.unit > 1:
            nodes = _partitioned(room, TIERS[-1], order)
        else:
            nodes = seat(room, np.ones(len(room.ground.total), np.bool_), order)
        if nodes is not None:
            return room.seats(np.sort(nodes))
    return None


def _order(room: Room, rank: Ints | None) -> Ints:
    return np.arange(len(room.ground.total), dtype=np.int32) if rank is None else rank


def _together(room: Room, tier: str, order: Ints) -> Positions | None:
    ground = room.ground
    groups = ground.tiers[tier]
    counts = np.where(ground.loose, 0, room.counts()) if tier == "domain" else room.counts()
    enough = np.bincount(groups, counts) >= room.shape.nodes
    if not enough.any():
        return None
    score = _fullness(room, groups[ground.pool], room.shape.nodes * room.shape.per_node)
    best = _first_of_best(np.where(enough, score, -1.0), groups, order)
    nodes = seat(room, groups == best, order)
    assert nodes is not None  # the group has room
    return np.sort(nodes)


def _partitioned(room: Room, tier: str, order: Ints) -> Positions | None:
    ground = room.ground
    unit, need = room.shape.unit, room.shape.units
    groups = ground.tiers[tier]
    held = np.where(ground.loose, 0, room.counts() // unit)
    if not (np.bincount(groups, held) >= need).any():
        return None
    # A domain that took one segment is fuller than before: the next goes there too while there is room.
    each = unit * room.shape.per_node
    score = _fullness(room, ground.pool, each)
    step = each / np.maximum(np.bincount(ground.pool, room.gpus()), 1.0)
    walk = np.lexsort((order, -score, groups))
    before = np.cumsum(held[walk]) - held[walk]
    first = np.searchsorted(groups[walk], groups[walk])
    taken = np.zeros_like(held)
    taken[walk] = np.clip(need - (before - before[first]), 0, held[walk])
    full = np.bincount(groups, taken) == need
    worth = taken * score + step * taken * (taken - 1) / 2
    best = _first_of_best(np.where(full, np.bincount(groups, worth), -1.0), groups, order)
    chosen = [pool for pool in walk.tolist() if groups[pool] == best and taken[pool]]
    parts = [_packed(room, room.of_pool(pool), int(taken[pool]) * unit) for pool in chosen]
    return np.concatenate(parts)


def _first_of_best(score: Floats, groups: Ints, order: Ints) -> int:
    """The group with the highest score; of several the one with the first pool."""
    alike = np.flatnonzero(score[groups] == score.max())
    return int(groups[alike[np.argmin(order[alike])]])


def _fullness(room: Room, groups: NDArray[np.int32], request: int) -> Floats:
    """How full each group would be with so many more GPUs in use; `groups` is by node."""
    used = np.bincount(groups, room.used())
    return np.asarray((used + request) / np.maximum(np.bincount(groups, room.gpus()), 1.0), np.float64)


def _packed(room: Room, nodes: Positions, count: int) -> Positions:
    """The fullest of the nodes, first ones first where they are alike."""
    if room.shape.per_node == room.ground.size:
        return nodes[:count]
    left = np.bitwise_count(room.free[nodes])
    return nodes[np.argsort(left, kind="stable")[:count]]
