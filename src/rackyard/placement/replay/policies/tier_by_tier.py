"""Tier by tier: the rule of Volcano's network-topology-aware plugin in hard mode."""

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.model import Request
from rackyard.placement.replay.policies.room import TIERS, Positions, Room, rooms
from rackyard.placement.yard import Decision, Yard

Floats = NDArray[np.float64]


def tier_by_tier(request: Request, yard: Yard) -> Decision | None:
    """Try the tiers from the NVLink domain upwards; the first with a group that holds the gang decides.

    Among the groups of that tier the one wins that would be fullest afterwards, (used + requested) / allocatable in
    GPUs. Inside the group the nodes are taken by the same ratio, then in the order of the fabric: nothing asks for few
    domains there. A required segment is a partition (`partitionPolicy` with hard mode at tier 1): each goes to the
    domain of the group that it would fill most, and the group with the highest sum wins. A segment that is not
    required is a partition in soft mode, which nothing holds together.

    Sources: https://volcano.sh/en/docs/network_topology_aware_scheduling/ and
    https://github.com/volcano-sh/volcano (pkg/scheduler/plugins/network-topology-aware, actions/allocate; ed72c7c).
    Volcano breaks ties at random; here the first in the order of the fabric wins. It scores a gang's second and later
    pods by their nearness to those placed, which in this order comes to the same nodes.
    """
    for room in rooms(request, yard):
        by_segment = request.segment_required and room.shape.unit > 1
        for tier in TIERS:
            nodes = _partitioned(room, tier) if by_segment else _together(room, tier)
            if nodes is not None:
                return room.seats(nodes)
    return None


def _together(room: Room, tier: str) -> Positions | None:
    ground = room.ground
    groups = ground.tiers[tier]
    counts = np.where(ground.loose, 0, room.counts()) if tier == "domain" else room.counts()
    enough = np.bincount(groups, counts) >= room.shape.nodes
    if not enough.any():
        return None
    score = _fullness(room, groups[ground.pool], room.shape.nodes * room.shape.per_node)
    best = int(np.argmax(np.where(enough, score, -1.0)))
    nodes = room.in_pools(groups == best)
    return _packed(room, nodes, room.shape.nodes)


def _partitioned(room: Room, tier: str) -> Positions | None:
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
    order = np.lexsort((-score, groups))
    before = np.cumsum(held[order]) - held[order]
    first = np.searchsorted(groups[order], groups[order])
    taken = np.zeros_like(held)
    taken[order] = np.clip(need - (before - before[first]), 0, held[order])
    full = np.bincount(groups, taken) == need
    worth = taken * score + step * taken * (taken - 1) / 2
    best = int(np.argmax(np.where(full, np.bincount(groups, worth), -1.0)))
    chosen = [pool for pool in order.tolist() if groups[pool] == best and taken[pool]]
    parts = [_packed(room, room.of_pool(pool), int(taken[pool]) * unit) for pool in chosen]
    return np.concatenate(parts)


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
