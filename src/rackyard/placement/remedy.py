"""The smallest change that would fit. Every change proposed is tried first; what can't be tried says so."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import lcm

from rackyard.placement.census import Census
from rackyard.placement.change import Advice, Change, advice, later, tried, wording
from rackyard.placement.model import Request
from rackyard.placement.rules import MOST_GPUS
from rackyard.placement.sizes import divisors, largest, most
from rackyard.placement.tries import TRIES
from rackyard.placement.yard import Yard

_LESS: tuple[dict[str, object], ...] = (
    {"groups": ()},
    {"spread": "pack", "copies": 1},
    {"exclusive": False},
    {"spares": 0},
    {"pin": frozenset()},
    {"gpu_memory": 0.0, "nic_gbps": 0, "domain_gpus": 0},
    {"segment_gpus": None},
)
"""What a gang may give up, as values of a request."""


def smaller_gang(request: Request, yard: Yard) -> Advice:
    """The largest gang of that form that fits now; where there is none, of a form that asks for less."""
    found, complete = largest(request, yard)
    if found is not None:
        change = Change(found, wording(request, found), True)
        return Advice(f"{change.text} is the most that fits now" if complete else change.sentence(), (change,))
    looser = (tried(request, loose, yard) or _largest_of(request, loose, yard) for loose in _looser(request))
    others = [change for change in (_in_smaller_groups(request, yard), _first(looser)) if change is not None]
    if not others:
        return Advice("nothing of this form fits now")
    best = max(others, key=_gpus)
    return Advice(best.sentence(), (best,))


def meanwhile(request: Request, yard: Yard) -> tuple[Change, ...]:
    """What fits now while the gang itself has to wait: a smaller one of the same form."""
    found, _ = largest(request, yard)
    return () if found is None else (Change(found, wording(request, found), True),)


def without(request: Request, less: Request, yard: Yard) -> Advice:
    """The advice to ask for less."""
    return advice([later(request, less, yard)], lambda: smaller_gang(request, yard))


def fewer_spares(request: Request, yard: Yard) -> Advice:
    """The most spares with which the gang fits."""
    most = min(request.spares - 1, len(yard.columns.names))
    low = [spares for spares in (most - TRIES * 2, 0) if spares >= 0]
    counts = dict.fromkeys((*range(most, max(-1, most - TRIES * 2), -1), *low))
    fewer = (tried(request, replace(request, spares=spares), yard) for spares in counts)
    return advice([_first(fewer)], lambda: smaller_gang(request, yard))


def other_spread(request: Request, yard: Yard) -> Advice:
    """The nearest number of racks over which the gang spreads, else packing."""
    racks = len(yard.columns.site.racks)
    goal = request.spread if isinstance(request.spread, int) else racks
    counts = sorted(range(1, racks + 1), key=lambda count: (abs(count - goal), count))
    others = [*counts[: TRIES * 2], "pack"]
    found = _first(tried(request, replace(request, spread=other), yard) for other in others)  # type: ignore[arg-type]
    return advice([found], lambda: smaller_gang(request, yard))


def fewer_copies(request: Request, yard: Yard, units: int) -> Advice:
    """The most copies that are kept apart; for a gang with fewer pieces than copies, the size that has enough; else no
    copies apart.
    """
    most = min(request.copies - 1, units, len(yard.columns.site.racks))
    copies = range(most, max(1, most - TRIES), -1)
    fewer = _first(tried(request, replace(request, copies=count), yard) for count in copies)
    if fewer is not None:
        return Advice(fewer.sentence(), (fewer,))
    larger = larger_gang(request, yard) if units < request.copies else None
    pack = later(request, replace(request, copies=1), yard)
    return advice([larger, pack], lambda: smaller_gang(request, yard))


def smaller_groups(request: Request, yard: Yard) -> Advice:
    """Groups that are only preferred, or the largest that can be whole."""
    wished = tuple(replace(group, required=False) for group in request.groups)
    loose = later(request, replace(request, groups=wished), yard)
    smaller = _first(tried(request, other, yard) for other in islice(_with_smaller_groups(request), TRIES))
    return advice([smaller, loose], lambda: smaller_gang(request, yard))


def smaller_segment(request: Request, yard: Yard, looked: Census) -> Advice:
    """The largest segment that the gang, as large as it is, can be cut into; as many smaller segments, where this
    leaves more of them whole; and a split, where that would do.
    """
    segment = min(request.segment_gpus or request.gpus, request.gpus)
    sizes = [size for size in reversed(divisors(request.gpus)) if size < segment]
    same = _first(tried(request, replace(request, segment_gpus=size), yard) for size in sizes)
    changes = [same]
    if same is None or (same.request.segment_gpus or 0) * 2 < segment:
        as_many = _as_many(request, yard, looked)
        more = as_many and (same is None or (as_many.request.segment_gpus or 0) > (same.request.segment_gpus or 0))
        changes.append(as_many if more else None)
    told = "`required: false` lets a segment span domains and"
    changes.append(tried(request, replace(request, segment_required=False), yard, told))
    return advice(changes, lambda: _in_time(request, sizes, yard))


def _in_time(request: Request, sizes: Sequence[int], yard: Yard) -> Advice:
    """Where no segments fit now: a smaller gang that does, else segments for when more is free."""
    smaller = smaller_gang(request, yard)
    if smaller.changes:
        return smaller
    changes = (later(request, replace(request, segment_gpus=size), yard) for size in sizes)
    return advice([_first(changes)], lambda: smaller)


def _as_many(request: Request, yard: Yard, looked: Census) -> Change | None:
    """As many segments, each smaller."""
    shape = looked.shape
    largest_domain = int(looked.columns.total[looked.first_pool : looked.first_pool + len(looked.starts)].max())
    segments = (nodes * shape.per_node for nodes in range(min(shape.unit - 1, largest_domain), 0, -1))
    smaller = (replace(request, segment_gpus=size, gpus=size * shape.units) for size in segments)
    return _first(tried(request, other, yard) for other in islice(smaller, TRIES))


def larger_gang(request: Request, yard: Yard) -> Change | None:
    """The smallest larger gang that fits now, in whole segments and nodes."""
    sizes: set[int] = set()
    for group in yard.columns.classes:
        step = lcm(request.segment_gpus or 1, request.gpus_per_node or group.size, *(g.gpus for g in request.groups))
        first = (request.gpus // step + 1) * step
        sizes |= set(range(first, min(first + TRIES * step, MOST_GPUS + 1), step))
    return _first(tried(request, replace(request, gpus=gpus), yard) for gpus in sorted(sizes)[:TRIES])


def _in_smaller_groups(request: Request, yard: Yard) -> Change | None:
    """As many GPUs as there are, in whole groups that are smaller than asked for."""
    held = min(request.gpus, most(request, yard)) if any(group.required for group in request.groups) else 0
    step = request.segment_gpus or min((group.size for group in yard.columns.classes), default=1)
    widest = len(request.groups) - 1
    group = request.groups[widest] if held else None
    if group is None or held < step:
        return None
    sizes = range((min(group.gpus, held + 1) - 1) // step * step, 0, -step)[:TRIES]
    smaller = (
        replace(request, gpus=held // size * size, groups=(*request.groups[:widest], replace(group, gpus=size)))
        for size in sizes
    )
    return max((found for other in smaller if (found := tried(request, other, yard))), key=_gpus, default=None)


def _gpus(change: Change) -> int:
    return change.request.gpus


def _with_smaller_groups(request: Request) -> Iterator[Request]:
    for at, group in enumerate(request.groups):
        if group.required:
            for size in reversed(divisors(request.gpus)):
                if size < group.gpus:
                    smaller = replace(group, gpus=size)
                    yield replace(request, groups=(*request.groups[:at], smaller, *request.groups[at + 1 :]))


def _looser(request: Request) -> Iterator[Request]:
    """The same gang asking for less: without one of the things it asks for, the least first; then without any."""
    bare: dict[str, object] = {}
    if any(group.required for group in request.groups):
        yield replace(request, groups=tuple(replace(group, required=False) for group in request.groups))
    if request.segment_gpus and request.segment_required:
        yield replace(request, segment_required=False)
    for less in _LESS:
        changed = {key: value for key, value in less.items() if getattr(request, key) != value}
        if changed:
            bare |= changed
            yield replace(request, **changed)  # type: ignore[arg-type]
    if bare:
        yield replace(request, **bare)  # type: ignore[arg-type]


def _largest_of(request: Request, loose: Request, yard: Yard) -> Change | None:
    found, _ = largest(loose, yard)
    return None if found is None else Change(found, wording(request, found), True)


def _first(changes: Iterable[Change | None]) -> Change | None:
    return next((change for change in changes if change is not None), None)
