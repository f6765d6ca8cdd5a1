"""How much each pool gives where some have nodes that the gang must take."""

from collections.abc import Sequence
from itertools import permutations
from math import factorial

import numpy as np

from rackyard.placement.levels import ALL_SETS, Taken
from rackyard.placement.pack import Prices
from rackyard.placement.rooms import Rooms


def pinned(rooms: Rooms, length: int, units: int) -> Taken | None:
    """Units of `length` nodes from pools with pinned nodes: what these need, then as many more as they hold, where that
    harms least. None when it can't be.
    """
    least = {int(pool): -(-int(rooms.pinned[pool]) // length) for pool in np.flatnonzero(rooms.pinned)}
    room = {pool: int(rooms.free[pool]) // length for pool in least}
    left = units - sum(least.values())
    if left < 0 or any(least[pool] > room[pool] for pool in least):
        return None
    return _spread_out(least, room, left, rooms.prices(length))


def levelled(rooms: Rooms, taken: Taken, length: int) -> Taken:
    """As many units of the same pools, some with pinned nodes, where that harms least."""
    least = {pool: max(1, -(-int(rooms.pinned[pool]) // length)) for pool in taken}
    room = {pool: int(rooms.free[pool]) // length for pool in taken}
    prices = rooms.prices(length)
    other = _spread_out(least, room, sum(taken.values()) - sum(least.values()), prices)
    return min(taken, other, key=prices.of)


def _spread_out(least: Taken, room: Taken, left: int, prices: Prices) -> Taken:
    """So many units more than the least of each pool, as far as they hold them."""
    orders = permutations(least) if factorial(len(least)) <= ALL_SETS else [tuple(least)]
    ways = [_filled(order, least, room, left) for order in orders]
    if prices.uneven:
        ways.append(_grown(least, room, left, prices))
    return min(ways, key=prices.of)


def _filled(order: Sequence[int], least: Taken, room: Taken, left: int) -> Taken:
    """One pool after the other."""
    taken = dict(least)
    for pool in order:
        more = min(left, room[pool] - least[pool])
        taken[pool] += more
        left -= more
    return taken


def _grown(least: Taken, room: Taken, left: int, prices: Prices) -> Taken:
    """Each unit where it harms least."""
    taken = dict(least)
    for _ in range(left):
        able = [pool for pool in taken if taken[pool] < room[pool]]
        if not able:
            break
        best = min(able, key=lambda pool: prices.of({pool: taken[pool] + 1}) - prices.of({pool: taken[pool]}))
        taken[best] += 1
    return taken
