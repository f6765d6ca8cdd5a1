"""What each pool can give a gang, on counts alone."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.census import Census
from rackyard.placement.columns import Flags, Ints
from rackyard.placement.model import SCOPES, Request
from rackyard.placement.pack import Costs, Prices

SIXTEEN = 16
"""Nodes that a rack of 18 is sold with (CoreWeave guarantees 16 of 18 usable, facts: scheduling §4): a domain with so
many free can take the segment that most gangs are made of."""

_PIECE, _LEFT, _SIXTEEN, _WHOLE, _TIGHT = 13, 23, 38, 48, 50
"""Where the terms of a price start in its bits; worn nodes start at 0. Sums of a thousand pools keep apart; beyond
that, a carry makes a term count towards the one before. Filling up a node in use comes before all, and concerns one
pool only, so that it may stand where many whole domains would.
"""
_WORN = 64
"""More free GPUs than any node has: a degraded node is filled up after all others."""
_POOLS = 7
"""Bits for pools that are new to a gang, in prices of remainders: some dozens at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Rooms:
    """One value a pool. `free` is in nodes, beside the spares to be kept."""

    free: Ints
    usable: Ints
    """With the spares."""
    fresh: Flags
    """Domains that nobody uses any part of."""
    weak: Flags
    loose: Flags
    rack: Ints
    tier: Mapping[str, Ints]
    clean: Ints
    """Usable nodes with nothing degraded."""
    tight: Ints
    """Free GPUs of the fullest usable node; only for gangs of a part of one node."""
    pinned: Ints
    """Nodes that the gang must take."""

    def prices(self, unit: int) -> Prices:
        """For units of so many nodes: sums of them compare as the terms of the objective from `whole domains` on do."""
        uneven = bool((self.clean < self.free).any())
        return Prices(lambda: self._full(unit), lambda pools, units: self.harm(pools, units * unit), uneven)

    def rest_prices(self, taken: Ints) -> Prices:
        """For more nodes beside those that the gang has already: blocks that are new to it, pools that are new, then as
        in `prices`, worn nodes aside.
        """
        used, block = taken > 0, self.tier["block"]
        company = np.where(used, 0, np.where(np.isin(block, block[used]), 1, 1 << _POOLS)).astype(np.int64)
        company <<= _TIGHT - _PIECE

        def part(pools: NDArray[np.intp] | slice, nodes: int | Ints) -> Costs:
            before = np.where(used[pools], self.harm(pools, taken[pools]), 0)
            costs: Costs = company[pools] + ((self.harm(pools, taken[pools] + nodes) - before) >> _PIECE)
            return costs

        rest = self.free - taken
        return Prices(lambda: part(slice(None), rest) + (rest.astype(np.int64) << _LEFT - _PIECE), part)

    def _full(self, unit: int) -> Costs:
        taken = self.free // unit * unit
        # What is left over in the end is all that is usable less the gang, whichever pool is not filled to the brim.
        full: Costs = self.harm(slice(None), taken) + (taken.astype(np.int64) << _LEFT)
        return full

    def harm(self, pools: NDArray[np.intp] | slice, nodes: Ints | int) -> Costs:
        """What taking so many nodes from each of those pools costs those who come after."""
        usable = self.usable[pools].astype(np.int64)
        left = np.maximum(0, usable - nodes)
        worn = np.maximum(0, nodes - self.clean[pools]).astype(np.int64)
        whole = (self.fresh[pools] & ~self.loose[pools]).astype(np.int64) << _WHOLE
        broken = ((usable >= SIXTEEN) & (left < SIXTEEN)).astype(np.int64) << _SIXTEEN
        tight = self.tight[pools].astype(np.int64) << _TIGHT
        harm: Costs = tight + whole + broken + (left << _LEFT) + ((left > 0).astype(np.int64) << _PIECE) + worn
        return harm


def rooms(looked: Census, request: Request, ignored: int, spares: int) -> Rooms:
    """The room in every pool of a census; `ignored` problems (bits) count as solved."""
    columns = looked.columns
    usable = looked.usable(ignored)
    counts = np.add.reduceat(usable, looked.starts, dtype=np.int32)
    nodes = slice(looked.first_node, looked.first_node + len(usable))
    pools = slice(looked.first_pool, looked.first_pool + len(counts))
    clean = counts
    if columns.worn:
        clean = np.add.reduceat(usable & (columns.wear[nodes] == 0), looked.starts, dtype=np.int32)
    pinned = np.zeros(len(counts), np.int32)
    for position in columns.positions(request.pin):
        if nodes.start <= position < nodes.stop:
            pinned[columns.pool[position] - pools.start] += 1
    free = np.maximum(0, counts - spares)
    fresh = np.logical_and.reduceat(looked.idle, looked.starts)
    if request.copies > 1:
        share = looked.shape.nodes // request.copies
        alone = free >= max(1, share // looked.shape.unit * looked.shape.unit)
        free = _shared(free, columns.rack[pools], share, (~alone, alone & fresh))
    return Rooms(
        free=free,
        usable=counts,
        fresh=fresh,
        weak=columns.weak[pools],
        loose=columns.loose[pools],
        rack=columns.rack[pools],
        tier={scope: columns.tier[scope][pools] for scope in SCOPES},
        clean=clean,
        tight=_tight(looked, usable),
        pinned=pinned,
    )


def _shared(free: Ints, rack: Ints, share: int, last: tuple[Flags, Flags]) -> Ints:
    """At most so many nodes of a rack, so that every rank's peers, as many ranks further on, sit in other racks. Of a
    rack with several domains one that can give it all does, in use and as full as can be; else the larger ones first.
    `last` says which can't, and which nobody uses.
    """
    too_small, fresh = last
    order = np.lexsort((np.where(too_small, -free, free), fresh, too_small, rack))
    before = np.concatenate(([0], np.cumsum(free[order])[:-1]))
    first = np.concatenate(([True], rack[order][1:] != rack[order][:-1]))
    inside = before - np.maximum.accumulate(np.where(first, before, 0))
    out = np.empty_like(free)
    out[order] = np.clip(share - inside, 0, free[order])
    return out


def _tight(looked: Census, usable: Flags) -> Ints:
    if looked.shape.nodes > 1 or looked.shape.per_node == looked.group.size:
        return np.zeros(len(looked.starts), np.int32)
    wear = looked.columns.wear[looked.first_node : looked.first_node + len(usable)]
    counts = np.where(usable, np.bitwise_count(looked.free) + np.where(wear > 0, _WORN, 0), 127).astype(np.int32)
    return np.minimum.reduceat(counts, looked.starts)
