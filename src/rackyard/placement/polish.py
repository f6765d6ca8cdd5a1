"""A better order for a gang whose groups can't all be whole, by swaps and moves in the manner of Kernighan and Lin.

Who sits with whom is graph partitioning; no rule finds the best of it. From an order that a rule made, the swap (or the
move into room that is left) that helps most, or harms least, is made, and what was moved then stays. After a few such
steps the best order met on the way is kept, and the next pass begins there. (Kernighan and Lin, An efficient heuristic
procedure for partitioning graphs, Bell System Technical Journal 49, 1970.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Ints
from rackyard.placement.cost import Wish
from rackyard.placement.rooms import Rooms

MOST = 128
"""Pieces up to which orders are polished: the work grows with their square."""
OTHERS = 16
"""Pools beside those in use that pieces may move to."""
PASSES, UPHILL = 4, 10
"""Passes, and steps in one that may follow the best order met so far."""
_GROUP, _SEGMENT = 2**40, 2**52
"""Weights that keep the terms of the objective in their order; a plan's own stay far below."""

Costs = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Groups that cut the gang up: under each of them, one more value costs `weight`."""

    weight: int
    groups: NDArray[np.intp]
    """Of each piece, those that it has a part in; filled up with -1, the last one, which never costs anything."""
    value: NDArray[np.intp]
    """Of each pool: the pool itself, or its leaf group, block or part."""
    counts: NDArray[np.int32]
    """Pieces by group and value."""

    def shifts(self, at: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], Costs]]:
        """Group of each piece, and what it costs there to put the piece into each pool while all others stay: once
        for every group that a piece has a part in.
        """
        mine = self.value[at]
        elsewhere = self.value[None, :] != mine[:, None]
        for group in self.groups.T:
            leaves = self.counts[group, mine] == 1
            enters = (self.counts[group] == 0)[:, self.value]
            yield group, self.weight * ((enters.astype(np.int64) - leaves[:, None]) * elsewhere)

    def share(self, group: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether another piece (column) has a part in the group of a piece (row)."""
        shared: NDArray[np.bool_] = (self.groups[None, :, :] == group[:, None, None]).any(axis=2)
        return shared

    def put(self, piece: int, old: int, new: int) -> None:
        """The piece sits in another pool now."""
        self.counts[self.groups[piece], self.value[old]] -= 1
        self.counts[self.groups[piece], self.value[new]] += 1


def polish(where: Ints, rooms: Rooms, wish: Wish, unit: int, moving: bool) -> Ints:
    """The pools of the nodes in a better order, or in the same. Pieces are whole units, and groups of them first.

    With `moving`, pieces may also go to other pools of the blocks in use. What that does to pins and to terms after the
    spread is for the caller to weigh.
    """
    for grain in _grains(where, wish, unit):
        pools = _pools(where, rooms, grain) if moving else np.unique(where)
        at = np.searchsorted(pools, where[::grain])
        families = list(_families(at, pools, rooms, wish, grain))
        room = (rooms.free[pools] // grain - np.bincount(at, minlength=len(pools))) * int(moving)
        for _ in range(PASSES):
            if not _better(at, families, room):
                break
        where = np.repeat(pools[at], grain).astype(np.int32)
    return where


def _grains(where: Ints, wish: Wish, unit: int) -> Iterator[int]:
    """Sizes of pieces, large ones first, in which no piece is in two pools."""
    lengths = {unit, *([] if wish.plan is None else [run.length for run in wish.plan.runs])}
    for grain in sorted(lengths, reverse=True):
        if 1 < len(where) // grain <= MOST and len(where) % grain == 0:
            pieces = where.reshape(-1, grain)
            if (pieces == pieces[:, :1]).all():
                yield grain


def _pools(where: Ints, rooms: Rooms, grain: int) -> Ints:
    """Those in use, and the largest others of their blocks that have room and sound NVLink."""
    used = np.unique(where)
    block = rooms.tier["block"]
    able = np.isin(block, block[used]) & (rooms.free >= grain) & ~rooms.weak & ~rooms.loose
    able[used] = False
    others = np.flatnonzero(able)
    others = others[np.argsort(-rooms.free[others], kind="stable")][:OTHERS]
    return np.sort(np.concatenate((used, others))).astype(np.int32)


def _families(at: NDArray[np.intp], pools: Ints, rooms: Rooms, wish: Wish, grain: int) -> Iterator[Family]:
    nodes = np.arange(len(at) * grain)
    themselves = np.arange(len(pools))
    runs = [(_SEGMENT, wish.segment, themselves)] if wish.segment else []
    runs += [(_GROUP, length, np.unique(column[pools], return_inverse=True)[1]) for length, column in wish.groups]
    runs += [(run.weight, run.length, themselves) for run in wish.plan.runs] if wish.plan else []
    for weight, length, value in runs:
        if grain % length:  # else the groups are inside pieces
            yield _family(weight, _touched(nodes // length, grain), value, at)
    if wish.plan is not None and wish.plan.pipeline_weight:
        times = grain if wish.plan.stage % grain == 0 else 1  # pipelines that are alike
        pipelines = nodes % wish.plan.stage // times
        yield _family(wish.plan.pipeline_weight * times, _touched(pipelines, grain), themselves, at)


def _touched(group: NDArray[np.intp], grain: int) -> NDArray[np.intp]:
    """From the group of each node to the different groups of each piece, in rows of one length, filled up with -1."""
    found = np.sort(group.reshape(-1, grain), axis=1)
    found[:, 1:][found[:, 1:] == found[:, :-1]] = -1
    found = -np.sort(-found, axis=1)
    return found[:, : int((found >= 0).sum(axis=1).max())]


def _family(weight: int, groups: NDArray[np.intp], value: NDArray[np.intp], at: NDArray[np.intp]) -> Family:
    counts = np.zeros((int(groups.max()) + 2, int(value.max()) + 1), np.int32)
    np.add.at(counts, (groups, value[at][:, None]), 1)
    counts[-1] = 2 * groups.size  # never none, never the only one
    return Family(weight, groups, value, counts)


def _better(at: NDArray[np.intp], families: Sequence[Family], room: Ints) -> bool:
    """One pass; `at`, counts and room are those of the best order met. Whether it is better than before."""
    made: list[tuple[int, int, int]] = []  # piece, old pool, new pool
    cost = best = kept = 0
    loose = np.ones(len(at), np.bool_)
    steps = 0
    while loose.any() and steps < UPHILL:
        step = _step(at, families, room, loose)
        if step is None:
            break
        change, moves = step
        for piece, new in moves:
            made.append((piece, int(at[piece]), new))
            _put(at, families, room, made[-1])
            loose[piece] = False
        cost += change
        steps += 1
        if cost < best:
            best, kept, steps = cost, len(made), 0
    for piece, old, new in reversed(made[kept:]):
        _put(at, families, room, (piece, new, old))
    return best < 0


def _put(at: NDArray[np.intp], families: Sequence[Family], room: Ints, move: tuple[int, int, int]) -> None:
    piece, old, new = move
    for family in families:
        family.put(piece, old, new)
    at[piece] = new
    room[old] += 1
    room[new] -= 1


_FAR = np.int64(2**62)


def _step(
    at: NDArray[np.intp], families: Sequence[Family], room: Ints, loose: NDArray[np.bool_]
) -> tuple[int, list[tuple[int, int]]] | None:
    """The best swap or move of pieces that have not moved yet, and what it changes; None when there is none."""
    pieces = len(at)
    swaps = np.zeros((pieces, pieces), np.int64)
    shifts = np.zeros((pieces, len(room)), np.int64)
    for family in families:
        for group, each in family.shifts(at):
            shifts += each
            one_way = np.where(family.share(group), 0, each[:, at])
            swaps += one_way + one_way.T
    swaps[~loose] = swaps[:, ~loose] = _FAR
    swaps[at[:, None] == at[None, :]] = _FAR
    shifts[~loose] = _FAR
    shifts[:, room < 1] = _FAR
    shifts[np.arange(pieces), at] = _FAR
    one, other = divmod(int(np.argmin(swaps)), pieces)
    piece, pool = divmod(int(np.argmin(shifts)), len(room))
    if min(swaps[one, other], shifts[piece, pool]) >= _FAR:
        return None
    if shifts[piece, pool] < swaps[one, other]:
        return int(shifts[piece, pool]), [(piece, pool)]
    return int(swaps[one, other]), [(one, int(at[other])), (other, int(at[one]))]
