"""A gang spread on purpose: evenly over all racks, or over exactly so many."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Ints
from rackyard.placement.levels import Taken
from rackyard.placement.pack import Prices, pack
from rackyard.placement.rooms import Rooms


def evenly(rooms: Rooms, unit: int, units: int, spread: str | int) -> Taken | None:
    """Units of so many nodes by pool. Over a number of racks, their shares differ by one at most; over all, a rack
    gives less only when it has no more. None when it can't be.
    """
    racks = _Racks(rooms, unit)
    if isinstance(spread, int):
        shares = _exactly(racks, units, spread)
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


def _exactly(racks: _Racks, units: int, count: int) -> dict[int, int] | None:
    """Shares of exactly `count` racks: of as few blocks as possible, and of those the least harmed."""
    low, more = divmod(units, count)
    able = [name for name, rack in racks.racks.items() if rack.held >= max(low, 1)]
    if not low or len(able) < count or sum(racks.racks[name].held > low for name in able) < more:
        return None
    harm = {name: racks.harm(name, low) for name in able}
    members: dict[int, list[int]] = {}
    for name in sorted(able, key=lambda name: (harm[name], name)):
        members.setdefault(racks.racks[name].block, []).append(name)
    must = any(racks.racks[name].pinned for name in able)
    alone = [] if must else [there for there in members.values() if _shared(there, racks, low, more, count)]
    if alone:
        ordered = min(alone, key=lambda there: (sum(harm[name] for name in there[:count]), there))
    else:
        ordered = [name for there in sorted(members.values(), key=lambda there: -len(there)) for name in there]
    ordered.sort(key=lambda name: -racks.racks[name].pinned)  # stable
    return _shared(ordered, racks, low, more, count)


def _shared(ordered: list[int], racks: _Racks, low: int, more: int, count: int) -> dict[int, int] | None:
    """The first racks that do. Those that a unit more harms least take one."""
    larger = [name for name in ordered if racks.racks[name].held > low]
    if len(larger) < more or len(ordered) < count:
        return None
    chosen = ordered[:count]
    missing = more - sum(name in set(chosen) for name in larger)
    for name in [name for name in larger if name not in set(chosen)][: max(0, missing)]:
        last = next(other for other in reversed(chosen) if racks.racks[other].held <= low)
        chosen[chosen.index(last)] = name
    able = [name for name in chosen if racks.racks[name].held > low]
    pinned = {name: racks.racks[name].pinned > low for name in able}
    able.sort(key=lambda name: (not pinned[name], racks.harm(name, low + 1) - racks.harm(name, low), name))
    large = set(able[:more])
    return {name: low + (name in large) for name in sorted(chosen)}


def _water(racks: _Racks, units: int) -> dict[int, int]:
    """As level as the racks' room allows, over what pinned nodes take."""
    least = np.array([rack.pinned for rack in racks.racks.values()], np.int64)

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
