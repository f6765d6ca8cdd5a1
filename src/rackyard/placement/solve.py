"""Where the nodes of a gang go: pools in rank order, by the objective of docs/placement.md.

What is asked for is given up in the order of the objective: first the preferred groups (leaf, block, part), then sound
NVLink, then whole segments where these are only preferred. Within each, a few arrangements are made, and the cost that
is reported decides between them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

import numpy as np

from rackyard.placement.arrange import Pieces, arrange, together
from rackyard.placement.census import Census
from rackyard.placement.columns import Flags, Ints
from rackyard.placement.cost import Wish, cost_of, splits, wish_of
from rackyard.placement.evenly import evenly
from rackyard.placement.levels import ALL_SETS, Taken, Tier, capacity, seat
from rackyard.placement.model import SCOPES, Group, Request
from rackyard.placement.pack import pack
from rackyard.placement.pins import levelled, pinned
from rackyard.placement.polish import polish
from rackyard.placement.rooms import Rooms, rooms
from rackyard.placement.spread import grid, pipeline_first

POLISHED = 3
"""Arrangements, the cheapest first, that are tried to be made better where groups had to be broken."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The pool (counted in the census) of every node, in rank order, and what the whole costs."""

    where: Ints
    cost: tuple[int, ...]
    rooms: Rooms


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """One attempt: units of `unit` nodes into the pools that `rooms` leaves open, under tiers."""

    looked: Census
    request: Request
    rooms: Rooms
    wish: Wish
    unit: int
    tiers: tuple[Tier, ...]
    kept: tuple[tuple[int, Ints], ...]
    """The groups that must be whole: nodes, and the tier's column."""

    @property
    def room(self) -> Ints:
        """Units by pool."""
        room = self.rooms.free // self.unit
        return np.where(self.rooms.loose, 0, room) if self.unit > 1 else room

    @property
    def units(self) -> int:
        return self.looked.shape.nodes // self.unit


def solve(looked: Census, request: Request, ignored: int = 0, spares: int | None = None) -> Solution | None:
    """The best way found to seat the gang, or None when it doesn't fit.

    `ignored` problems of nodes (bits) count as solved and `spares` replaces the request's: that is how a rejection
    finds out what binds.
    """
    room = rooms(looked, request, ignored, request.spares if spares is None else spares)
    if int(room.free.sum()) < looked.shape.nodes or not _pins_usable(looked, request, ignored):
        return None
    whole = looked.shape.unit
    found = _solved(looked, request, room, whole)
    if found is None and not request.segment_required and whole > 1:
        found = _solved(looked, request, room, 1)
    return found


def _solved(looked: Census, request: Request, room: Rooms, unit: int) -> Solution | None:
    """The best with units of so many nodes. Where segments have to be split, which is worse than weak NVLink, all
    choices of weak domains are compared; else the first that does, uses the fewest of them.
    """
    best: Solution | None = None
    weak = -1
    for used, part in _sound_first(room, looked.shape.nodes, unit):
        if best is not None and used > weak and unit == looked.shape.unit:
            break
        for groups in _groups_kept(request):
            task = _task(looked, request, part, unit, groups)
            found = None if task is None else _best(task)
            if found is not None:
                if best is None or found.cost < best.cost:
                    best, weak = found, used
                break
    return best if best is None else replace(best, rooms=room)


def _pins_usable(looked: Census, request: Request, ignored: int) -> bool:
    if not request.pin:
        return True
    usable = looked.usable(ignored)
    inside = [position - looked.first_node for position in looked.columns.positions(request.pin)]
    return len(inside) == len(request.pin) and all(0 <= at < len(usable) and usable[at] for at in inside)


def _sound_first(room: Rooms, nodes: int, unit: int) -> Iterator[tuple[int, Rooms]]:
    """The pools with sound NVLink; then with the fewest others that could make up the rest (every choice of them while
    there are few); then all. Each with the number of weak ones.
    """
    if not room.weak.any():
        yield 0, room
        return
    sound = np.where(room.weak, 0, room.free)
    yield 0, replace(room, free=sound)
    weak = np.flatnonzero(room.weak & (room.free >= unit))
    weak = weak[np.argsort(-room.free[weak], kind="stable")]
    have = int((sound // unit).sum())
    reach = have + np.cumsum(room.free[weak] // unit)
    count = int(np.searchsorted(reach, nodes // unit)) + 1
    if have and count <= len(weak):
        few = comb(len(weak), count) <= ALL_SETS
        for chosen in combinations(weak.tolist(), count) if few else [tuple(weak[:count].tolist())]:
            if have + int((room.free[list(chosen)] // unit).sum()) >= nodes // unit:
                some = sound.copy()
                some[list(chosen)] = room.free[list(chosen)]
                yield count, replace(room, free=some)
    yield len(weak), room


def _groups_kept(request: Request) -> Iterator[tuple[Group, ...]]:
    """All groups, then with ever fewer of those that are only preferred; the smaller ones are given up last."""
    must = [group for group in request.groups if group.required]
    wish = [group for group in request.groups if not group.required]
    for count in range(len(wish), -1, -1):
        for kept in combinations(wish, count):
            yield tuple(group for group in request.groups if group in must or group in kept)


def _task(looked: Census, request: Request, room: Rooms, unit: int, kept: Sequence[Group]) -> _Task | None:
    """None where a group that must be kept is not a whole number of units."""
    per_node, nodes = looked.shape.per_node, looked.shape.nodes
    length = {group.within: min(group.gpus, request.gpus) // per_node for group in request.groups}
    asked = {group.within: length[group.within] for group in kept}
    tiers = []
    for scope in reversed(SCOPES):
        run = asked.get(scope, unit)
        if run % unit or nodes % run:
            return None
        given_up = scope not in asked and length.get(scope) == nodes  # then at least in as few of them as can be
        few = scope == "block" or given_up
        if scope in asked or (few and (room.tier[scope] != room.tier[scope][0]).any()):
            given = frozenset(room.tier[scope][room.pinned > 0].tolist()) if few else frozenset[int]()
            tiers.append(Tier(room.tier[scope], run // unit, given, few))
    groups = [(length[group.within], room.tier[group.within]) for group in request.groups]
    whole = tuple((nodes, room.tier[scope]) for scope, nodes in asked.items())
    wish = wish_of(looked.shape, groups, grid(request, looked.shape))
    return _Task(looked, request, room, wish, unit, tuple(tiers), whole)


def _best(task: _Task) -> Solution | None:
    """The cheapest of the arrangements worth making; where groups had to be broken, the best of them polished."""
    found: list[Solution] = []
    for where in _arrangements(task):
        _weigh(where, task, found)
    found.sort(key=lambda solution: solution.cost)
    if found and (task.wish.plan is not None or sum(found[0].cost[:3])):
        for solution in found[:POLISHED]:
            _weigh(polish(solution.where, task.rooms, task.wish, task.unit, task.request.spread == "pack"), task, found)
    return min(found, key=lambda solution: solution.cost, default=None)


def _weigh(where: Ints, task: _Task, found: list[Solution]) -> None:
    """Add the arrangement with its cost, unless it breaks something or is there already."""
    assert len(where) == task.looked.shape.nodes
    if any(splits(column[where], nodes) for nodes, column in task.kept) or not _holds_pins(where, task):
        return
    if not any((where == solution.where).all() for solution in found):
        found.append(Solution(where, cost_of(where, task.rooms, task.wish), task.rooms))


def _holds_pins(where: Ints, task: _Task) -> bool:
    pinned = task.rooms.pinned
    return not pinned.any() or bool((np.bincount(where, minlength=len(pinned)) >= pinned).all())


def _arrangements(task: _Task) -> Iterator[Ints]:
    """The pools of the nodes in rank order, in every way worth comparing."""
    walked = pipeline_first(task.looked.shape.nodes, task.wish.plan, task.unit)
    seen: set[tuple[tuple[int, int], ...]] = set()
    for pieces in _orders(task):
        if tuple(pieces) in seen:
            continue
        seen.add(tuple(pieces))
        where = _where(pieces)
        yield where
        if walked is not None:
            ranked = np.empty_like(where)
            ranked[walked] = where
            yield ranked


def _orders(task: _Task) -> Iterator[Pieces]:
    if task.request.spread != "pack":
        shares = evenly(task.rooms, task.unit, task.units, task.request.spread, task.tiers)
        if shares is not None:
            yield arrange(_nodes(shares, task.unit), task.unit, _order(task))
        return
    plan = task.wish.plan
    lengths = {task.looked.shape.unit, *([] if plan is None else [run.length for run in plan.runs])}
    if plan is not None and plan.pipeline_weight and plan.stage % plan.chunk(task.unit) == 0:
        lengths.add(plan.stages * plan.chunk(task.unit))
    lengths |= _equal_parts(lengths, int(task.rooms.free.max(initial=0)))
    grains = {task.unit, *lengths}
    blocks = task.rooms.tier["block"]
    within = {()}  # blocks; none: all
    for taken in _takings(task, lengths):
        within.add(tuple(np.unique(blocks[list(taken)]).tolist()))
        for grain in sorted(grains):
            yield arrange(taken, grain, _order(task))
        for nodes, column in task.wish.groups:
            yield arrange(taken, nodes, _order(task), column)
    for length in sorted(lengths - {task.unit}):
        for some in sorted(within):
            pieces = _mixed(task, length, np.isin(blocks, some) if some else np.ones(len(blocks), np.bool_))
            if pieces is not None:
                yield pieces


def _equal_parts(lengths: Iterable[int], largest: int) -> set[int]:
    """What each domain gives where a group that is larger than any of them is cut as seldom and as evenly as can be."""
    parts = ((length, -(-length // largest)) for length in lengths if length > largest > 0)
    return {length // count for length, count in parts if length % count == 0}


def _takings(task: _Task, lengths: set[int]) -> Iterator[Taken]:
    """Nodes by pool: in units, in whole groups of the plan, in whole groups of the request; and without heeding these,
    for they may come out whole all the same.
    """
    runs = {tier.run * task.unit for tier in task.tiers}
    for length in sorted({task.unit, *(n for n in lengths | runs if n % task.unit == 0)}):
        taken = _seat(task, length)
        if taken is not None:
            yield taken
    for nodes, column in task.wish.groups:
        if all(column is not kept for _, kept in task.kept):
            taken = _as_many_whole(task, nodes, column)
            if taken is not None:
                yield taken
    if task.kept:
        loosely = _seat(replace(task, tiers=tuple(replace(tier, run=1) for tier in task.tiers)), task.unit)
        if loosely is not None:
            yield loosely


def _seat(task: _Task, length: int) -> Taken | None:
    """Nodes by pool, in multiples of `length` nodes."""
    step = length // task.unit
    if any(tier.run > step and tier.run % step for tier in task.tiers):
        return None
    block = task.rooms.tier["block"]
    tiers = [
        replace(tier, run=max(1, tier.run // step))
        for tier in task.tiers
        if tier.run > step or tier.group is block or tier.given  # what is inside one pool is inside every group
    ]
    room, units = task.room // step, task.units // step
    fixed = pinned(task.rooms, length, units)
    if fixed is None or any(count > room[pool] for pool, count in fixed.items()):  # no segment spans two servers
        return None
    rest = units - sum(fixed.values())
    if rest:
        room = room.copy()
        room[list(fixed)] = 0
        more = seat(room, task.rooms.prices(length), rest, tiers)
        if more is None:
            return None
        free = fixed and all(tier.run == 1 for tier in tiers)  # else a group could be torn
        fixed = levelled(task.rooms, fixed | more, length) if free else fixed | more
    return _nodes(fixed, length)


def _as_many_whole(task: _Task, nodes: int, column: Ints) -> Taken | None:
    """Nodes by pool where groups that can't all be whole are, as far as they go. None where that is not worth a try."""
    if task.kept or nodes % task.unit or task.rooms.pinned.any():
        return None
    room, prices = task.room, task.rooms.prices(task.unit)
    tier = Tier(column, nodes // task.unit)
    held = int(capacity(room, [tier]).sum())
    if not 0 < held < task.units <= int(room.sum()):
        return None
    taken = seat(room, prices, held, [tier]) or {}
    left = room.copy()
    for pool, units in taken.items():
        left[pool] -= units
    more = pack(left, prices, task.units - held) or {}
    return _nodes({pool: taken.get(pool, 0) + more.get(pool, 0) for pool in {**taken, **more}}, task.unit)


def _mixed(task: _Task, length: int, inside: Flags) -> Pieces | None:
    """Whole groups of `length` nodes in some pools as far as they go, then as few remainders as make the rest. None
    where all groups are whole anyway, or something else is asked for that this would not heed.
    """
    if any(tier.run > 1 for tier in task.tiers) or task.rooms.pinned.any() or length % task.unit:
        return None
    free = np.where(inside, task.room * task.unit, 0)
    whole = np.where(task.rooms.loose, 0, free // length * length) if length > 1 else free
    nodes = task.looked.shape.nodes
    if int(whole.sum()) >= nodes or int(free.sum()) < nodes:
        return None
    taken = {int(pool): int(whole[pool]) for pool in np.flatnonzero(whole)}
    rest = pack(free - whole, task.rooms.rest_prices(whole), nodes - int(whole.sum()))
    assert rest is not None  # there are enough nodes, and none of them is in a whole group
    return arrange(taken, length, _order(task)) + together(rest, length)


def _order(task: _Task) -> list[Ints]:
    return [tier.group for tier in task.tiers]


def _nodes(taken: Taken, unit: int) -> Taken:
    return {pool: units * unit for pool, units in taken.items()}


def _where(pieces: Pieces) -> Ints:
    return np.repeat(
        np.array([pool for pool, _ in pieces], np.int32), np.array([nodes for _, nodes in pieces], np.int64)
    )
