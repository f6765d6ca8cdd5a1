"""The fewest pools that hold so many units, and of those the ones whose use harms least: exactly, on counts alone.

With the k largest pools just enough, their slack is less than the smallest of them. A choice of k pools differs from
the k largest by swaps, each of which eats slack, so a dynamic programme over (swaps still open, slack eaten) finds the
cheapest choice in a few hundred steps, whatever the size of the site.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Ints

Costs = NDArray[np.int64]
_FAR = np.int64(2**60)


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """What using pools costs: below 2^57 for all of a gang together.

    `full` is for filling each pool to the brim; `part` for taking so many units (one number, or one a pool) from
    pools (by position, or a slice).
    """

    full: Callable[[], Costs]
    part: Callable[[NDArray[np.intp] | slice, int | Ints], Costs]
    uneven: bool = False
    """Whether one unit of a pool may cost more than another, as degraded nodes make it."""

    def of(self, taken: dict[int, int]) -> int:
        """The price of units by pool."""
        pools = np.fromiter(taken, np.intp, len(taken))
        return int(self.part(pools, np.fromiter(taken.values(), np.int32, len(taken))).sum())


def fewest(room: Ints, units: int) -> int:
    """How many pools it takes at least to hold so many units; 0 when they don't."""
    ordered = np.sort(room)[::-1]
    at = int(np.searchsorted(np.cumsum(ordered, dtype=np.int64), units))
    return at + 1 if at < len(ordered) else 0


def pack(room: Ints, prices: Prices, units: int) -> dict[int, int] | None:
    """Units by pool (its position in `room`): fewest pools, then least price, then the first pools.

    Each pool is filled to the brim but one, so that what is left over is in one piece. None when the units don't fit.
    """
    enough = np.flatnonzero(room >= units)
    if len(enough):
        return {int(enough[np.argmin(prices.part(enough, units))]): units}
    price = prices.full()
    able = np.flatnonzero(room)
    able = able[np.lexsort((able, price[able], -room[able]))]
    sizes = room[able]
    reach = np.cumsum(sizes, dtype=np.int64)
    top = int(np.searchsorted(reach, units)) + 1
    if top > len(able):
        return None
    slack = int(reach[top - 1]) - units
    chosen = able[:top] if not slack else able[_swapped(sizes, price[able], top, slack)]
    return fill(chosen, room, prices, units)


def fill(chosen: NDArray[np.intp], room: Ints, prices: Prices, units: int) -> dict[int, int]:
    """All of the chosen pools full, but the one where leaving the rest harms least; the largest among equals. Where
    pools have degraded nodes, the rest may be left in several of them.
    """
    sizes = room[chosen]
    over = int(sizes.sum()) - units
    taken = dict(zip(chosen.tolist(), sizes.tolist(), strict=True))
    able = chosen[sizes > over]
    if over and len(able):
        saved = prices.part(able, room[able]) - prices.part(able, room[able] - np.int32(over))
        taken[int(able[np.lexsort((able, -room[able], -saved))[0]])] -= over
    if over > 1 and prices.uneven and len(chosen) > 1:
        other = _unit_by_unit(chosen, sizes.copy(), prices, over)
        if not len(able) or prices.of(other) < prices.of(taken):
            return other
    return taken


def _unit_by_unit(chosen: NDArray[np.intp], sizes: Ints, prices: Prices, over: int) -> dict[int, int]:
    """Leave one unit after the other where that harms least."""
    for _ in range(over):
        able = np.flatnonzero(sizes > 1)
        pools = chosen[able]
        saved = prices.part(pools, sizes[able]) - prices.part(pools, sizes[able] - np.int32(1))
        sizes[able[np.lexsort((able, -sizes[able], -saved))[0]]] -= 1
    return dict(zip(chosen.tolist(), sizes.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Size:
    """The pools of one size: where they stand, cheapest first, and how many the k largest have of them."""

    size: int
    first: int
    count: int
    base: int


def _swapped(sizes: Ints, price: Costs, top: int, slack: int) -> NDArray[np.intp]:
    """Positions of the best `top` pools; `sizes` falls, and prices rise among equals."""
    smallest = int(sizes[top - 1])
    end = int(np.searchsorted(-sizes, -(smallest - slack), "right"))
    values, firsts, counts = np.unique(-sizes[:end], return_index=True, return_counts=True)
    groups = [
        _Size(-int(value), int(first), int(count), min(int(count), max(0, top - int(first))))
        for value, first, count in zip(values, firsts, counts, strict=True)
    ]
    paid = np.concatenate(([0], np.cumsum(price[:end])))
    middle = next(group for group in groups if group.size == smallest)
    best = np.full((2 * slack + 1, slack + 1), _FAR)  # [open swaps + slack, slack eaten]
    best[slack, 0] = 0
    trail: list[tuple[_Size, NDArray[np.int16]]] = []
    for group in groups:
        if group is not middle:
            best, chosen = _step(best, group, smallest, slack, paid)
            trail.append((group, chosen))
    return _walk_back(best, trail, middle, slack, paid)


def _price(group: _Size, take: int, paid: Costs) -> int:
    return int(paid[group.first + take] - paid[group.first])


def _step(best: Costs, group: _Size, smallest: int, slack: int, paid: Costs) -> tuple[Costs, NDArray[np.int16]]:
    """Take other than the usual number of pools of one size: fewer of a large one, more of a small one."""
    gap = abs(group.size - smallest)
    sign = 1 if group.size < smallest else -1
    most = min(slack // gap, group.count if sign > 0 else group.base)
    out = np.full_like(best, _FAR)
    chosen = np.zeros(best.shape, np.int16)
    for change in range(most + 1):
        cost = _price(group, group.base + sign * change, paid)
        eaten, shift = change * gap, sign * change
        source = best[max(0, -shift) : len(best) - max(0, shift), : slack + 1 - eaten]
        target = (slice(max(0, shift), len(best) + min(0, shift)), slice(eaten, None))
        better = source + cost < out[target]
        out[target] = np.where(better, source + cost, out[target])
        chosen[target] = np.where(better, change, chosen[target])
    return out, chosen


def _walk_back(
    best: Costs, trail: Sequence[tuple[_Size, NDArray[np.int16]]], middle: _Size, slack: int, paid: Costs
) -> NDArray[np.intp]:
    """Close the open swaps with pools of the middle size, and follow the choices back to what to take of each size."""
    closing = np.full(len(best), _FAR)
    for balance in range(-slack, slack + 1):
        take = middle.base - balance
        if 0 <= take <= middle.count:
            closing[balance + slack] = _price(middle, take, paid)
    total = np.where(best < _FAR, best, _FAR) + closing[:, None]
    row, eaten = divmod(int(np.argmin(total)), total.shape[1])
    takes = [(middle, middle.base - (row - slack))]
    smallest = middle.size
    for group, chosen in reversed(trail):
        change = int(chosen[row, eaten])
        sign = 1 if group.size < smallest else -1
        takes.append((group, group.base + sign * change))
        row -= sign * change
        eaten -= change * abs(group.size - smallest)
    return np.concatenate([np.arange(group.first, group.first + take) for group, take in takes])
