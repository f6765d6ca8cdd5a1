"""Units over pools that are nested in leaf groups, blocks and parts: the fewest of each, from the outermost in."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Ints
from rackyard.placement.pack import Prices, fewest, pack

ALL_SETS = 24
"""Choices of groups up to which every one is looked at."""
SOME_SETS = 4
"""How many are looked at beyond that."""

Taken = dict[int, int]
"""Units by pool."""


@dataclass(frozen=True, slots=True, eq=False)
class Tier:
    """One tier: the group of each pool, and how many units in a row must stay inside one group (1: any number)."""

    group: Ints
    run: int = 1
    given: frozenset[int] = frozenset()
    """Groups that are in use anyway."""
    fewest: bool = True
    """Whether fewer of them are better; else a choice of one more is looked at as well."""


def capacity(room: Ints, tiers: Sequence[Tier]) -> NDArray[np.int64]:
    """The units that each group of the outermost tier can hold under what all tiers ask."""
    tier, *inner = tiers
    count = int(tier.group.max()) + 1
    if not inner:
        held = np.bincount(tier.group, weights=room, minlength=count)
    else:
        below = capacity(room, inner)
        parent = np.zeros(len(below), np.int64)
        parent[inner[0].group] = tier.group
        held = np.bincount(parent, weights=below, minlength=count)
    held = held.astype(np.int64)
    return held // tier.run * tier.run


def seat(room: Ints, prices: Prices, units: int, tiers: Sequence[Tier]) -> Taken | None:
    """Units by pool; None when they don't fit. The fewest groups of the outermost tier, then of the next, then the
    fewest pools, then the least price.
    """
    if not tiers or (int(room.max(initial=0)) >= units and not any(tier.given for tier in tiers)):
        return pack(room, prices, units)  # in one pool, all tiers hold
    tier, held = tiers[0], capacity(room, tiers)
    best: Taken | None = None
    sets = list(_sets(held, units, room, tier))
    if tier.run == 1 and len(tiers) == 1 and len(sets) > 1:  # a glance tells how many pools each set will take
        pools = [fewest(room[np.isin(tier.group, groups)], units) for groups in sets]
        sets = [groups for groups, count in zip(sets, pools, strict=True) if count == min(pools)]
    for groups in sets:
        found = _within(groups, held, room, prices, units, tiers)
        if found is not None and (best is None or _worth(found, prices) < _worth(best, prices)):
            best = found
    return best


def _worth(taken: Taken, prices: Prices) -> tuple[int, int]:
    return len(taken), prices.of(taken)


def _within(
    groups: Sequence[int], held: NDArray[np.int64], room: Ints, prices: Prices, units: int, tiers: Sequence[Tier]
) -> Taken | None:
    tier, *inner = tiers
    if tier.run == 1:
        return seat(np.where(np.isin(tier.group, groups), room, 0), prices, units, inner)
    best: Taken | None = None
    for counts in (*_shares([int(held[group]) for group in groups], units, tier.run), _few(groups, room, units, tier)):
        taken: Taken = {}
        for group, count in zip(groups, counts, strict=True):
            part = seat(np.where(tier.group == group, room, 0), prices, count, inner) if count else {}
            if part is None:
                break
            taken |= part
        else:
            if best is None or _worth(taken, prices) < _worth(best, prices):
                best = taken
    return best


def _few(groups: Sequence[int], room: Ints, units: int, tier: Tier) -> list[int]:
    """What each group holds in as few pools as will do, the largest ones; the group of the last one gives way."""
    pools = np.flatnonzero(np.isin(tier.group, groups))
    pools = pools[np.argsort(-room[pools], kind="stable")]
    place = {group: at for at, group in enumerate(groups)}
    held = [0] * len(groups)
    for pool in pools.tolist():
        last = place[int(tier.group[pool])]
        held[last] += int(room[pool])
        over = sum(count // tier.run * tier.run for count in held) - units
        if over >= 0:
            break
    counts = [count // tier.run * tier.run for count in held]
    counts[last] -= over
    return counts


def _shares(held: Sequence[int], units: int, run: int) -> Iterable[list[int]]:
    """All groups full but one; each in turn while there are few, else the largest. Of two, every division while there
    are few.
    """
    over = sum(held) - units
    if len(held) == 2 and 0 < over // run <= ALL_SETS:
        yield from ([count, units - count] for count in range(held[0] - over, held[0] + 1, run) if 0 < count < units)
        return
    if not over:
        yield list(held)
        return
    able = [number for number, count in enumerate(held) if count > over]
    for number in able if len(held) <= SOME_SETS else able[:1]:
        yield [count - over * (at == number) for at, count in enumerate(held)]


def _sets(held: NDArray[np.int64], units: int, room: Ints, tier: Tier) -> Iterable[tuple[int, ...]]:
    """Sets of as few groups as hold the units."""
    given = [group for group in sorted(tier.given) if held[group]]
    if given:
        units -= int(held[given].sum())
        held = held.copy()
        held[given] = 0
        for more in _sets(held, units, room, replace(tier, given=frozenset())) if units > 0 else [()]:
            yield (*given, *more)
        return
    able = np.flatnonzero(held)
    able = able[np.argsort(-held[able], kind="stable")]
    reach = np.cumsum(held[able])
    count = int(np.searchsorted(reach, units)) + 1
    if count > len(able):
        return
    if comb(len(able), count) <= ALL_SETS:
        for size in (count,) if tier.fewest or comb(len(able), count + 1) > ALL_SETS else (count, count + 1):
            for chosen in combinations([int(group) for group in able], size):
                if held[list(chosen)].sum() >= units:
                    yield chosen
        return
    base = [int(group) for group in able[: count - 1]]
    missing = units - int(held[base].sum()) if base else units
    last = [int(group) for group in able[count - 1 :] if held[group] >= missing]
    if count == 1:
        last = _fewest_first(last, room, units, tier)
    else:
        last = sorted(last, key=lambda group: int(held[group]))
        yield (*base, int(able[count - 1]))
    for group in last[:SOME_SETS]:
        yield (*base, group)


def _fewest_first(groups: Sequence[int], room: Ints, units: int, tier: Tier) -> list[int]:
    """The groups in which one alone needs the fewest pools, then the fullest."""
    by_group = np.argsort(tier.group, kind="stable")
    edges = np.searchsorted(tier.group[by_group], np.arange(int(tier.group.max()) + 2))
    keys = []
    for group in groups:
        inside = room[by_group[edges[group] : edges[group + 1]]]
        keys.append((fewest(inside, units), int(inside.sum()), group))
    return [group for _, _, group in sorted(keys)]
