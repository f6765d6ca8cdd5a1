"""Gangs of other sizes: the largest of the same form that fits now, and the nearest that divide."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from math import lcm

import numpy as np

from rackyard.placement.census import census, windows
from rackyard.placement.change import Change, later
from rackyard.placement.model import Request
from rackyard.placement.rules import valid
from rackyard.placement.shape import NodeClass, Shape
from rackyard.placement.tries import TRIES, divides, fits
from rackyard.placement.yard import Yard


def form(request: Request, gpus: int) -> Request:
    """The gang with so many GPUs. A segment or a group that was the whole gang still is."""
    segment = request.segment_gpus
    return replace(
        request,
        gpus=gpus,
        segment_gpus=gpus if segment is not None and segment >= request.gpus else segment,
        groups=tuple(replace(each, gpus=gpus) if each.gpus >= request.gpus else each for each in request.groups),
    )


def largest(request: Request, yard: Yard) -> tuple[Request | None, bool]:
    """The largest smaller gang of that form that fits now, and whether all larger ones were tried or can't be."""
    ranges = [sizes for kind in range(len(yard.columns.classes)) for sizes in _smaller(request, yard, kind)]
    candidates = (gpus for gpus, _ in groupby(heapq.merge(*(reversed(sizes) for sizes in ranges), reverse=True)))
    last = 0
    for gpus in islice(candidates, TRIES):
        last, changed = gpus, form(request, gpus)
        if valid(changed) and fits(changed, yard):
            return changed, True
    if next(candidates, None) is None:
        return None, True
    found = [_bisected(request, yard, range(sizes.start, min(sizes.stop, last), sizes.step)) for sizes in ranges]
    return max((each for each in found if each), key=lambda each: each.gpus, default=None), False


def _bisected(request: Request, yard: Yard, sizes: range) -> Request | None:
    """For gangs much larger than what is free: a part of what fits mostly fits."""
    best: Request | None = None
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        changed = form(request, sizes[middle])
        if valid(changed) and fits(changed, yard):
            best, low = changed, middle + 1
        else:
            high = middle
    return best


def _step(request: Request) -> int:
    """What the sizes of gangs of that form are multiples of, whatever the nodes."""
    plan = request.parallel
    cut = lcm(plan.tp * plan.cp * plan.pp, plan.pp * plan.ep) if plan else 1
    runs = [run for run in (request.segment_gpus or 1, *(group.gpus for group in request.groups)) if run < request.gpus]
    return lcm(cut, *runs)


def _smaller(request: Request, yard: Yard, kind: int) -> list[range]:
    """Sizes that one class could hold: in whole nodes, and less than a node. Ascending."""
    group = yard.columns.classes[kind]
    if request.gpu_kind not in (None, group.gpu):
        return []
    step, per_node = _step(request), _per_node(request, group)
    whole = lcm(step, per_node)
    most = min(request.gpus - 1, _capacity(request, yard, kind))
    return [range(whole, most + 1, whole), range(step, min(per_node, request.gpus), step)]


def _per_node(request: Request, group: NodeClass) -> int:
    return min(request.gpus_per_node or group.size, group.size)


def _capacity(request: Request, yard: Yard, kind: int) -> int:
    """GPUs that one class has room for now, counted by pools: no gang of that form can have more."""
    group = yard.columns.classes[kind]
    per_node, segment = _per_node(request, group), request.segment_gpus
    alone = segment is not None and segment >= request.gpus and request.segment_required
    unit = 1 if alone or not segment or not request.segment_required else max(1, segment // per_node)
    shape = Shape(per_node, 2, None)  # of two nodes, for these have to agree on the GPUs they use
    held = 0
    for window in windows(request, group, shape):
        looked = census(request, yard, kind, shape, window)
        loose = yard.columns.loose[yard.columns.pools(kind)]
        room = np.maximum(0, looked.counts() - request.spares)
        if alone:
            nodes = int(np.where(loose, np.minimum(room, 1), room).max(initial=0))
        else:
            nodes = int(np.where(loose & (unit > 1), 0, room // unit * unit).sum())
        held = max(held, nodes * per_node)
    return held


def most(request: Request, yard: Yard) -> int:
    """GPUs that no gang of that form can have more of now."""
    classes = enumerate(yard.columns.classes)
    kinds = [kind for kind, group in classes if request.gpu_kind in (None, group.gpu)]
    return max((_capacity(request, yard, kind) for kind in kinds), default=0)


def nearest(request: Request, yard: Yard, constraint: str) -> tuple[Change, ...]:
    """The nearest numbers that divide over nodes here: below, above. Those that fit now, if any does."""
    ways = {"gpus": _other_gpus, "segment": _other_segments, "groups": _other_groups, "both": _other_both}
    first = {"segment-size": "segment", "group-size": "groups"}.get(constraint, "gpus")
    if request.segment_gpus and request.gpus % request.segment_gpus:
        first = "gpus"
    if request.gpus_per_node:
        fewer = _fewer_ranks(request, yard)
        if fewer is not None:
            return (fewer,)
    for way in sorted(ways, key=lambda name: name != first):
        found = [change for below in (True, False) for change in islice(ways[way](request, yard, below), 1)]
        if found:
            return tuple(change for change in found if change.now) or tuple(found)
    return ()


def _fewer_ranks(request: Request, yard: Yard) -> Change | None:
    """All GPUs of the largest nodes, where more ranks were asked for than any node has GPUs."""
    most = max(group.size for group in yard.columns.classes if request.gpu_kind in (None, group.gpu))
    return later(request, replace(request, gpus_per_node=most), yard) if (request.gpus_per_node or 0) > most else None


def _possible(request: Request, others: Iterator[Request], yard: Yard) -> Iterator[Change]:
    """Those of the requests that are valid, divide over some nodes and fit, at least on an idle site."""
    likely = (other for other in others if valid(other) and divides(other, yard))
    return (change for other in islice(likely, TRIES) if (change := later(request, other, yard)) is not None)


def _other_gpus(request: Request, yard: Yard, below: bool) -> Iterator[Change]:
    return _possible(request, (form(request, gpus) for gpus in _around(request, yard, _step(request), below)), yard)


def _around(request: Request, yard: Yard, step: int, below: bool) -> list[int]:
    """The next size of each class in one direction, the nearest first."""
    found = set()
    for group in yard.columns.classes:
        per_node = _per_node(request, group)
        whole = lcm(step, per_node)
        part = request.gpus // step * step
        found.add(request.gpus // whole * whole if below else -(-request.gpus // whole) * whole)
        less = min(part, (per_node - 1) // step * step) if below else part + step
        found |= {less} if less < per_node else set()
    return sorted((gpus for gpus in found if gpus > 0 and gpus != request.gpus), reverse=below)


def _other_segments(request: Request, yard: Yard, below: bool) -> Iterator[Change]:
    segment = request.segment_gpus
    if segment is None:
        return iter(())
    sizes = [size for size in divisors(request.gpus) if (size < segment if below else size > segment)]
    others = (replace(request, segment_gpus=size) for size in (reversed(sizes) if below else sizes))
    return _possible(request, others, yard)


def _other_groups(request: Request, yard: Yard, below: bool) -> Iterator[Change]:
    def others() -> Iterator[Request]:
        for at, group in enumerate(request.groups):
            sizes = [size for size in divisors(request.gpus) if (size < group.gpus if below else size > group.gpus)]
            for size in reversed(sizes) if below else sizes:
                changed = (*request.groups[:at], replace(group, gpus=size), *request.groups[at + 1 :])
                yield replace(request, groups=changed)

    return _possible(request, others(), yard)


def _other_both(request: Request, yard: Yard, below: bool) -> Iterator[Change]:
    """Another size with other segments, the nearest by ratio; groups that no longer divide are left out."""
    segment = request.segment_gpus or 1
    bare = replace(request, segment_gpus=None, groups=())

    def others() -> Iterator[Request]:
        for gpus in _around(bare, yard, _step(bare), below):
            near = sorted(divisors(gpus), key=lambda size: (max(size / segment, segment / size), -size))
            for size in near if request.segment_gpus else near[:1]:
                changed = replace(request, gpus=gpus, segment_gpus=size if request.segment_gpus else None)
                yield changed if valid(changed) else replace(changed, groups=())

    return _possible(request, others(), yard)


def divisors(number: int) -> Sequence[int]:
    """All of them, ascending."""
    small = [size for size in range(1, int(number**0.5) + 1) if number % size == 0]
    return sorted({*small, *(number // size for size in small)})
