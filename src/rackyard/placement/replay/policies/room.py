"""What a scheduler that counts nodes and GPUs sees of a yard: the ground that all peer policies stand on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Columns, Flags, Ints, Masks
from rackyard.placement.model import Request
from rackyard.placement.shape import Misfit, Shape, shape_of
from rackyard.placement.yard import Decision, Yard

TIERS = ("domain", "leaf", "block", "part", "site")
"""What holds nodes together, nearest first."""

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """One node class of a site. Nodes and pools count from the first of the class."""

    first: int
    """Where its first node stands in the columns."""
    size: int
    """GPUs of each node."""
    starts: Positions
    """The first node of each pool."""
    pool: Ints
    """The pool of each node."""
    total: Ints
    """Nodes of each pool."""
    loose: Flags
    """Pools whose nodes share no NVLink domain."""
    tiers: Mapping[str, Ints]
    """By tier: the group of each pool, counted from 0 in the order of the fabric. A loose pool is no domain."""
    usable: Masks
    """GPUs of each node that a device plugin or slurmd would offer: the healthy ones of nodes in service."""
    walk: Positions
    """The nodes in site order."""


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """A node class as a gang finds it now."""

    ground: Ground
    shape: Shape
    fits: Flags
    """Nodes that have room for their share of the gang."""
    free: Masks
    """GPUs of each node that nobody uses."""
    offered: Masks
    """GPUs of each node in service, in use or not."""

    def counts(self) -> Ints:
        """Fitting nodes of each pool."""
        return np.add.reduceat(self.fits, self.ground.starts, dtype=np.int32)

    def used(self) -> Ints:
        """GPUs in use on each node."""
        return self.gpus() - np.bitwise_count(self.free).astype(np.int32)

    def gpus(self) -> Ints:
        """GPUs on offer on each node."""
        return np.bitwise_count(self.offered).astype(np.int32)

    def of_pool(self, pool: int) -> Positions:
        """The fitting nodes of a pool, in column order."""
        start = int(self.ground.starts[pool])
        return start + np.flatnonzero(self.fits[start : start + int(self.ground.total[pool])])

    def in_pools(self, pools: Flags) -> Positions:
        """The fitting nodes of some pools, in column order."""
        return np.flatnonzero(self.fits & pools[self.ground.pool])

    def seats(self, nodes: Positions) -> Decision:
        """Seat the gang on these nodes, in rank order. Each node gives its lowest free GPUs."""
        unit = self.shape.unit if self.shape.segment else len(nodes)
        pools = self.ground.pool[nodes]
        alone = self.ground.loose[pools]
        cuts = np.ones(len(nodes), np.bool_)
        cuts[1:] = (pools[1:] != pools[:-1]) | alone[1:]
        cuts[:: max(unit, 1)] = True
        ends = np.append(np.flatnonzero(cuts), len(nodes))
        return Decision(
            nodes=(nodes + self.ground.first).astype(np.int32),
            gpus=_lowest(self.free[nodes], self.shape.per_node),
            runs=tuple(np.diff(ends).tolist()),
            spares=np.zeros(0, np.int32),
            cost=(),
        )


def rooms(request: Request, yard: Yard) -> Iterator[Room]:
    """The node classes with enough fitting nodes for the gang, the class with most GPUs first.

    Peers are told a class by node selector, flavour or partition; here each is tried in turn.
    """
    columns = yard.columns
    for kind, group in enumerate(columns.classes):
        shape = shape_of(request, group)
        if isinstance(shape, Misfit):
            continue
        ground = ground_of(columns, kind)
        nodes = slice(ground.first, ground.first + len(ground.pool))
        offered = np.where(yard.out[nodes], np.uint32(0), ground.usable)
        free = offered & ~yard.busy[nodes]
        fits = np.bitwise_count(free) >= shape.per_node
        if int(np.count_nonzero(fits)) >= shape.nodes:
            yield Room(ground, shape, fits, free, offered)


@lru_cache(maxsize=64)
def ground_of(columns: Columns, kind: int) -> Ground:
    """What never changes about a node class."""
    nodes, pools = columns.span(kind), columns.pools(kind)
    away = columns.bad[nodes] | columns.cordoned[nodes]
    total = columns.total[pools]
    loose = columns.loose[pools]
    tiers = {"domain": np.arange(len(total), dtype=np.int32)}
    for tier in TIERS[1:-1]:
        _, groups = np.unique(columns.tier[tier][pools], return_inverse=True)
        tiers[tier] = groups.astype(np.int32)
    tiers["site"] = np.zeros(len(total), np.int32)
    return Ground(
        first=nodes.start,
        size=columns.classes[kind].size,
        starts=columns.starts[pools] - nodes.start,
        pool=columns.pool[nodes] - np.int32(pools.start),
        total=total,
        loose=loose,
        tiers=MappingProxyType(tiers),
        usable=np.where(away, np.uint32(0), columns.healthy[nodes]),
        walk=np.argsort(columns.order[nodes], kind="stable"),
    )


def _lowest(free: Masks, count: int) -> Masks:
    """The `count` lowest set bits of each mask."""
    found = np.zeros_like(free)
    rest = free.copy()
    for _ in range(count):
        bit = rest & (~rest + np.uint32(1))
        found |= bit
        rest ^= bit
    return found
