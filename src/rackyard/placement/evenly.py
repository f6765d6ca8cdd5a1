"""A gang spread on purpose: evenly over all racks, or over exactly so many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Ints
from rackyard.placement.levels import Taken, Tier, seat
from rackyard.placement.pack import Prices, pack
from rackyard.placement.rooms import Rooms


def evenly(rooms: Rooms, unit: int, units: int, spread: str | int, tiers: Sequence[Tier]) -> Taken | None:
    """Units of so many nodes by pool. Over a number of racks, their shares differ by one at most, and tiers are heeded
    where shares are whole groups; over all, a rack gives less only when it has no more. None when it can't be.
    """
    racks = _Racks(rooms, unit)
    if isinstance(spread, int):
        shares = _exactly(racks, units, spread, tiers)
    else:
        shares = _water(racks, units) if int(racks.held.sum()) >= units else None
    if shares is None:
        return None
    taken: Taken = {}
    for rack, share in shares.items():
        taken |= racks.inside(rack, share)
    return taken


@dataclass(frozen=True, slots=True, eq=False)
class _Rack:
    """One rack: its block, its pools, the units these hold, and the units that pinned nodes take."""

    block: int
    pools: NDArray[np.intp]
    held: int
    pinned: int


class _Racks:
    """The racks that hold anything, in site order."""

    def __init__(self, rooms: Rooms, unit: int) -> None:
        self.room: Ints = rooms.free // unit if unit == 1 else np.where(rooms.loose, 0, rooms.free // unit)
        self.prices: Prices = rooms.prices(unit)
        self.pinned: Ints = -(-rooms.pinned // unit)
        self.racks: dict[int, _Rack] = {}
        order = np.argsort(rooms.rack, kind="stable")
        for pools in np.split(order, np.flatnonzero(np.diff(rooms.rack[order])) + 1):
            held, pinned = int(self.room[pools].sum()), int(self.pinned[pools].sum())
            if held:
                block = int(rooms.tier["block"][pools[0]])
                self.racks[int(rooms.rack[pools[0]])] = _Rack(block, pools, held, pinned)
        self.held = np.array([rack.held for rack in self.racks.values()], np.int64)

    def inside(self, rack: int, share: int) -> Taken:
        """A rack's share by pool."""
        pools = self.racks[rack].pools
        if len(pools) == 1 or not share:
            return {int(pools[0]): share} if share else {}
        if self.racks[rack].pinned:
            taken = {int(pool): int(self.pinned[pool]) for pool in pools if self.pinned[pool]}
            left = share - sum(taken.values())
            for pool in sorted(pools.tolist(), key=lambda pool: (pool not in taken, pool)):
                more = min(left, int(self.room[pool]) - taken.get(pool, 0))
                left -= more
                if more:
                    taken[pool] = taken.get(pool, 0) + more
            return taken
        only = np.zeros_like(self.room)
        only[pools] = self.room[pools]
        return pack(only, self.prices, share) or {}

    def harm(self, rack: int, share: int) -> int:
        """What a share does to those who come after."""
        return self.prices.of(self.inside(rack, share)) if share else 0


def _exactly(racks: _Racks, units: int, count: int, tiers: Sequence[Tier]) -> dict[int, int] | None:
    """Shares of exactly `count` racks: of as few blocks as possible, and of those the least harmed."""
    low, more = divmod(units, count)
    names = list(racks.racks)
    pinned = np.array([rack.pinned for rack in racks.racks.values()], np.int64)
    if not low or len(names) < count or (pinned > np.minimum(racks.held, low + (more > 0))).any():
        return None
    harm = np.array([racks.harm(name, low) if held >= low else 0 for name, held in zip(names, racks.held, strict=True)])
    prices = Prices(lambda: harm, lambda some, _: harm[some])
    above = [_of_racks(tier, racks, low, more) for tier in tiers]
    best: tuple[tuple[int, int], list[int]] | None = None
    for able, fixed in _choices(racks.held, harm, np.flatnonzero(pinned), (low, more)):
        found = _chosen(able, fixed, count, prices, above)
        if found is not None and int((racks.held[found] > low).sum()) >= more:
            worth = (len({racks.racks[names[at]].block for at in found}), int(harm[found].sum()))
            if best is None or worth < best[0]:
                best = (worth, found)
    if best is None:
        return None
    chosen = [names[at] for at in sorted(best[1])]
    larger = [name for name in chosen if racks.racks[name].held > low]
    dearer = {name: racks.harm(name, low + 1) - racks.harm(name, low) for name in larger}
    larger.sort(key=lambda name: (racks.racks[name].pinned <= low, dearer[name], name))
    return {name: low + (name in larger[:more]) for name in chosen}


def _choices(
    held: NDArray[np.int64], harm: NDArray[np.int64], pinned: NDArray[np.intp], share: tuple[int, int]
) -> Iterator[tuple[Ints, NDArray[np.intp]]]:
    """Racks to choose from, and those that must be chosen. Where `more` racks have to hold a unit more than `low`: any
    racks, only such, and any beside as many such, the least harmed.
    """
    low, more = share
    able, large = (held >= low).astype(np.int32), (held > low).astype(np.int32)
    yield able, pinned
    if more:
        yield large, pinned
        others = np.setdiff1d(np.flatnonzero(large), pinned)
        others = others[np.argsort(harm[others], kind="stable")]
        yield able, np.concatenate((pinned, others[: max(0, more - int(large[pinned].sum()))]))


def _chosen(
    able: Ints, pinned: NDArray[np.intp], count: int, prices: Prices, tiers: Sequence[Tier]
) -> list[int] | None:
    """So many racks, those with pinned nodes among them."""
    room = able.copy()
    room[pinned] = 0
    more = count - len(pinned)
    if more < 0 or not able[pinned].all():
        return None
    found = seat(room, prices, more, tiers) if more else {}
    return None if found is None else [*pinned.tolist(), *found]


def _of_racks(tier: Tier, racks: _Racks, low: int, more: int) -> Tier:
    """A tier of pools as one of racks. Groups of the gang that are no whole number of shares are left to chance."""
    group = np.array([int(tier.group[rack.pools[0]]) for rack in racks.racks.values()], np.int32)
    run = tier.run // low if not more and tier.run % low == 0 else 1
    return Tier(group, max(1, run), tier.given.intersection(group.tolist()))


def _water(racks: _Racks, units: int) -> dict[int, int] | None:
    """As level as the racks' room allows, over what pinned nodes take. None where that is more than the gang."""
    least = np.array([rack.pinned for rack in racks.racks.values()], np.int64)
    if int(least.sum()) > units:
        return None

    def filled(level: int) -> NDArray[np.int64]:
        shares: NDArray[np.int64] = np.minimum(racks.held, np.maximum(least, level))
        return shares

    low, high = 0, int(racks.held.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if int(filled(middle).sum()) <= units else (low, middle - 1)
    shares = dict(zip(racks.racks, filled(low).tolist(), strict=True))
    left = units - sum(shares.values())
    for name, rack in racks.racks.items():
        if left > 0 and rack.held > shares[name] == low:
            shares[name] += 1
            left -= 1
    return {name: share for name, share in shares.items() if share}
