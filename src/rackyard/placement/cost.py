"""The objective: what makes one placement better than another, term by term (docs/placement.md)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackyard.placement.columns import Ints
from rackyard.placement.model import CostTerm
from rackyard.placement.rooms import SIXTEEN, Rooms
from rackyard.placement.shape import Shape
from rackyard.placement.spread import Grid, spread_cost

TERMS = (
    ("split-segments", "NVLink domains under a segment beyond its first; 0: every segment inside one domain"),
    ("weak-domains", "domains used whose NVLink is degraded or unknown"),
    ("split-groups", "leaf groups, blocks and parts under a group asked for beyond its first"),
    ("blocks", "blocks used"),
    ("spread", "domains under the groups of the parallel plan beyond the first of each, times their weights"),
    ("domains", "NVLink domains used"),
    ("whole-domains-opened", "domains used that were entirely free"),
    ("sixteens-broken", "domains that had 16 free nodes and have no longer"),
    ("nodes-left", "usable nodes left over in the domains used"),
    ("pieces-left", "domains used in which some are left over"),
    ("worn-nodes", "nodes used that have a degraded link or NIC, where others would have done"),
)
"""Names and meanings, the most important term first; smaller is better in all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Wish:
    """What the terms are counted against, in nodes: the segment asked for (0: none), and groups by tier column."""

    segment: int
    groups: tuple[tuple[int, Ints], ...]
    plan: Grid | None


def cost_of(where: Ints, rooms: Rooms, wish: Wish) -> tuple[int, ...]:
    """The terms of a gang whose nodes, in rank order, sit in the pools `where`."""
    pools, counts = np.unique(where, return_counts=True)
    loose = rooms.loose[pools]
    usable, left = rooms.usable[pools], rooms.usable[pools] - counts
    domains = int(np.where(loose, counts, 1).sum())
    return (
        splits(_domains(where, rooms), wish.segment) if wish.segment else 0,
        int(np.where(loose, counts, 1)[rooms.weak[pools]].sum()),
        sum(splits(column[where], length) for length, column in wish.groups),
        len(np.unique(rooms.tier["block"][pools])),
        spread_cost(where, wish.plan) + (domains - len(pools) if wish.plan is None else 0),
        domains,
        int((rooms.fresh[pools] & ~loose).sum()),
        int(((usable >= SIXTEEN) & (left < SIXTEEN)).sum()),
        int(left.sum()),
        int((left > 0).sum()),
        int(np.maximum(0, counts - rooms.clean[pools]).sum()),
    )


def wish_of(shape: Shape, groups: Sequence[tuple[int, Ints]], plan: Grid | None) -> Wish:
    """`groups` are (nodes, tier column)."""
    return Wish(shape.segment or 0, tuple(groups), plan)


def explained(cost: Sequence[int]) -> tuple[CostTerm, ...]:
    """The terms with their meanings."""
    return tuple(CostTerm(name, float(value), meaning) for (name, meaning), value in zip(TERMS, cost, strict=True))


def _domains(where: Ints, rooms: Rooms) -> Ints:
    """The NVLink domain of each node: its pool, but every server by itself."""
    return np.where(rooms.loose[where], -1 - np.arange(len(where)), where)


def splits(where: Ints, length: int) -> int:
    """Groups of numbers under runs of `length` nodes beyond the first of each."""
    if len(where) % length:
        return 0
    ordered = np.sort(where.reshape(-1, length), axis=1)
    return int((ordered[:, 1:] != ordered[:, :-1]).sum())
