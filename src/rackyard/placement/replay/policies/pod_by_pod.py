"""How Volcano's plugins choose a node for one pod of a gang after the other."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Flags, Ints
from rackyard.placement.replay.policies.room import TIERS, Positions, Room

Floats = NDArray[np.float64]

_SCORE = 100.0
"""What each plugin's score is scaled to, with its usual weight of 1."""
_ALIKE = 1e-6


def seat(room: Room, pools: Flags, rank: Ints) -> Positions | None:
    """Nodes of some pools for a gang, in the order in which its pods get them; None where they are too few.

    A node's score is how near it is to the gang's pods so far, plus how full it would be. Near is the lowest tier with
    a group that holds the node and all of them: 1 for the lowest tier, 0 for the whole cluster, evenly between; among
    the nearest, the share of the gang's pods that are in the node's domain already is added. The first pod has nothing
    to be near to. Pools that are alike are taken by `rank`, the lowest first.
    """
    nodes = room.in_pools(pools)
    if len(nodes) < room.shape.nodes:
        return None
    gang = _Gang.of(room, nodes)
    taken: list[Positions] = []
    need = room.shape.nodes
    while need:
        pool = gang.next(rank)
        # Once a whole node of a domain is taken, none is nearer than the rest of it.
        count = min(need, int(gang.left[pool])) if gang.whole else 1
        taken.append(gang.take(pool, count))
        need -= count
    return np.concatenate(taken)


@dataclass(slots=True, eq=False)
class _Gang:
    """What is left of each pool, and where the gang sits so far."""

    nodes: Positions
    """Pool by pool, the fullest of each first."""
    full: Floats
    """How full each of them would be with a pod of the gang."""
    at: Positions
    """The next node of each pool, as a place in `nodes`."""
    left: Positions
    tiers: list[Ints]
    """Tiers that a HyperNode exists for, nearest first, the whole cluster last: the group of each pool."""
    alone: Flags
    """Pools without a group in the lowest tier."""
    size: int
    whole: bool
    placed: Positions
    """The gang's pods in each group of the lowest tier."""
    tier: int = 0
    """The lowest tier with a group that holds all pods so far, which is that of pool `home`."""
    home: int = field(default=-1)

    @classmethod
    def of(cls, room: Room, nodes: Positions) -> "_Gang":
        ground = room.ground
        free = np.bitwise_count(room.free[nodes]).astype(np.int64)
        order = np.lexsort((free, ground.pool[nodes]))
        nodes = nodes[order]
        offered = room.gpus()[nodes]
        left = np.bincount(ground.pool[nodes], minlength=len(ground.starts))
        tiers = _tiers(room)
        return cls(
            nodes=nodes,
            full=(offered - free[order] + room.shape.per_node) / offered,
            at=np.cumsum(left) - left,
            left=left,
            tiers=tiers,
            alone=ground.loose if not ground.loose.all() else np.zeros_like(ground.loose),
            size=room.shape.nodes,
            whole=room.shape.per_node == ground.size,
            placed=np.zeros(int(tiers[0].max()) + 1, np.int64),
        )

    def next(self, rank: Ints) -> int:
        """The pool of the next pod."""
        open_ = np.flatnonzero(self.left)
        score = self.full[self.at[open_]]
        if self.home >= 0:
            near = self.near(open_)
            best = near == near.max()
            if int(self.left[open_[best]].sum()) > 1:
                near = near + np.where(best, self.placed[self.tiers[0][open_]] / self.size, 0.0)
            score = score + near
        alike = open_[score * _SCORE >= score.max() * _SCORE - _ALIKE]
        return int(alike[np.argmin(rank[alike])])

    def take(self, pool: int, count: int) -> Positions:
        """The next nodes of a pool."""
        start = int(self.at[pool])
        self.at[pool] += count
        self.left[pool] -= count
        if not self.alone[pool]:
            self.placed[self.tiers[0][pool]] += count
            if self.home < 0:
                self.home = pool
            else:
                self.tier = int(self.shared(np.array([pool]))[0])
        return self.nodes[start : start + count]

    def near(self, pools: Positions) -> Floats:
        """How near each pool is to the pods so far, from 0 to 1."""
        top = len(self.tiers) - 1
        return np.where(self.alone[pools], 0.0, (top - self.shared(pools)) / top)

    def shared(self, pools: Positions) -> Positions:
        """The lowest tier with a group that holds the pool and all pods so far."""
        found = np.full(len(pools), len(self.tiers) - 1, np.int64)
        for tier in range(len(self.tiers) - 2, self.tier - 1, -1):
            groups = self.tiers[tier]
            found[groups[pools] == groups[self.home]] = tier
        return found


def _tiers(room: Room) -> list[Ints]:
    """Tiers whose groups are those of the tier below have no HyperNodes; the cluster itself always is one more."""
    ground = room.ground
    found: list[Ints] = []
    for tier in TIERS[:-1]:
        groups = ground.tiers[tier]
        if tier == "domain" and ground.loose.all():
            continue
        if not found or int(groups.max()) < int(found[-1].max()):
            found.append(groups)
    return [*found, ground.tiers[TIERS[-1]]]
