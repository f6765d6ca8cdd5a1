"""How many nodes to take from which pool: the whole optimisation, on counts alone.

Fewest pools first, and among those the tightest, so that whole racks stay free for the gangs that need them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rackyard.placement.census import Census, Pool
from rackyard.placement.model import Request

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Piece:
    """Nodes with consecutive ranks to take from one pool (its position in the census)."""

    pool: int
    nodes: int


@dataclass(frozen=True, slots=True)
class _Room:
    """What a pool can give: `nodes` beside the spares, of which `units` whole units can be made."""

    pool: int
    rack: str
    nodes: int
    units: int
    tight: int
    """Free GPUs on its fullest usable node: lets part of a node fill up a node that is in use already."""


def solve(
    census: Census, request: Request, ignored: frozenset[str] = NOTHING, spares: int | None = None
) -> list[Piece] | None:
    """The pieces of the gang in rank order, or None when they don't fit.

    `ignored` problems of nodes count as solved and `spares` replaces the request's: that is how a rejection finds out
    what binds. Domains with weak NVLink are used only when it can't be done without.
    """
    keep = request.spares if spares is None else spares
    sound = [number for number, pool in enumerate(census.pools) if pool.healthy]
    every = range(len(census.pools))
    for solver in (_solve_whole, _solve_split):
        for numbers in (sound, every) if len(sound) < len(every) else (every,):
            pieces = solver(census, request, numbers, ignored, keep)
            if pieces is not None:
                return pieces
    return None


def _solve_whole(
    census: Census, request: Request, numbers: Sequence[int], ignored: frozenset[str], spares: int
) -> list[Piece] | None:
    shape = census.shape
    rooms = [_room(number, census.pools[number], shape.unit, ignored, spares) for number in numbers]
    taken = _choose(rooms, shape.units, request)
    return None if taken is None else _whole(census, {number: units * shape.unit for number, units in taken.items()})


def _solve_split(
    census: Census, request: Request, numbers: Sequence[int], ignored: frozenset[str], spares: int
) -> list[Piece] | None:
    shape = census.shape
    if shape.segment is None or request.segment_required:
        return None
    if request.spread == "pack":
        rooms = [_room(number, census.pools[number], shape.unit, ignored, spares) for number in numbers]
        return _split_pack(census, rooms)
    rooms = [_room(number, census.pools[number], 1, ignored, spares) for number in numbers]
    taken = _choose(rooms, shape.nodes, request)
    return None if taken is None else _whole(census, taken)


def _room(number: int, pool: Pool, unit: int, ignored: frozenset[str], spares: int) -> _Room:
    usable = pool.usable(ignored)
    nodes = max(0, len(usable) - spares)
    units = nodes // unit if not pool.loose or unit == 1 else 0
    return _Room(number, pool.rack, nodes, units, usable[0].free if usable else 0)


def _choose(rooms: list[_Room], units: int, request: Request) -> dict[int, int] | None:
    """Units to take from each pool, by the request's spread; None when they don't fit."""
    if request.spread == "pack":
        return _pack(rooms, units)
    return _spread(rooms, units, request.spread if isinstance(request.spread, int) else None)


def _pack(rooms: list[_Room], units: int) -> dict[int, int] | None:
    if units == 1:
        fitting = [room for room in rooms if room.units]
        best = min(fitting, key=lambda room: (room.tight, room.units, room.pool), default=None)
        return None if best is None else {best.pool: 1}
    largest = sorted((room for room in rooms if room.units), key=lambda room: (-room.units, room.pool))
    chosen: list[_Room] = []
    for room in largest:
        if sum(one.units for one in chosen) >= units:
            break
        chosen.append(room)
    if sum(room.units for room in chosen) < units:
        return None
    return _fill(_tighten(chosen, largest[len(chosen) :], units), units)


def _tighten(chosen: list[_Room], others: list[_Room], units: int) -> list[_Room]:
    """As many pools, but smaller ones where that still fits: the largest racks stay whole."""
    others = sorted(others, key=lambda room: (room.units, room.pool))
    total = sum(room.units for room in chosen)
    result = list(chosen)
    for position, room in enumerate(chosen):
        for other in others:
            if other.units < room.units and total - room.units + other.units >= units:
                result[position], total = other, total - room.units + other.units
                others.remove(other)
                break
    return result


def _fill(chosen: list[_Room], units: int) -> dict[int, int]:
    """Fill the smaller pools to the brim; the largest gives the rest, so that what is left over is in one piece."""
    taken = {}
    for room in sorted(chosen, key=lambda room: (room.units, room.pool)):
        taken[room.pool] = min(room.units, units)
        units -= taken[room.pool]
    return {number: count for number, count in taken.items() if count}


def _spread(rooms: list[_Room], units: int, racks: int | None) -> dict[int, int] | None:
    groups: dict[str, list[_Room]] = {}
    for room in rooms:
        if room.units:
            groups.setdefault(room.rack, []).append(room)
    room_of = {rack: sum(room.units for room in members) for rack, members in groups.items()}
    names = list(groups)
    if racks is not None:
        names = sorted(names, key=lambda rack: -room_of[rack])[:racks]  # stable: site order among equals
        if len(names) < racks or units < racks:
            return None
    shares = dict.fromkeys(names, 0)
    for _ in range(units):
        open_ = [rack for rack in names if shares[rack] < room_of[rack]]
        if not open_:
            return None
        shares[min(open_, key=lambda rack: shares[rack])] += 1
    if racks is not None and max(shares.values()) - min(shares.values()) > 1:
        return None
    taken: dict[int, int] = {}
    for rack, share in shares.items():
        for room in groups[rack]:
            taken[room.pool] = min(room.units, share)
            share -= taken[room.pool]
    return {number: count for number, count in taken.items() if count}


def _whole(census: Census, taken: dict[int, int]) -> list[Piece]:
    """Nodes by pool, in site order, cut into segments."""
    pieces = []
    for number in sorted(taken):
        unit = 1 if census.pools[number].loose else census.shape.segment or taken[number]
        left = taken[number]
        while left:
            pieces.append(Piece(number, min(unit, left)))
            left -= pieces[-1].nodes
    return pieces


def _split_pack(census: Census, rooms: list[_Room]) -> list[Piece] | None:
    """Whole segments as far as they go, then as few splits as the remainders allow."""
    shape = census.shape
    if sum(room.nodes for room in rooms) < shape.nodes:
        return None
    pieces = _whole(census, {room.pool: room.units * shape.unit for room in rooms if room.units})
    left = shape.nodes - sum(piece.nodes for piece in pieces)
    inside = shape.unit
    for room in sorted(rooms, key=lambda room: (room.units * shape.unit - room.nodes, room.pool)):
        rest = room.nodes - room.units * shape.unit
        while rest and left:
            count = min(rest, left, 1 if census.pools[room.pool].loose else inside)
            pieces.append(Piece(room.pool, count))
            rest, left, inside = rest - count, left - count, inside - count or shape.unit
    return pieces
