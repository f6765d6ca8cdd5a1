"""A gang that can't be where it is pinned: which pinned nodes are in the way, and what is wrong with them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from rackyard.placement.census import BIT, PROBLEMS, Census
from rackyard.placement.change import Advice, Change, names, tried
from rackyard.placement.model import Occupancy, Request
from rackyard.placement.release import advice_on, enough
from rackyard.placement.remedy import larger_gang
from rackyard.placement.shape import Misfit, shape_of
from rackyard.placement.tries import TRIES
from rackyard.placement.yard import Yard

_IS = {
    "excluded": "excluded",
    "busy": "in use",
    "shared": "in a domain that others use",
    "cordoned": "cordoned",
    "health": "not healthy",
    "rail": "without the rails",
    "kind": "short of the hardware asked for",
    "nvlink": "without NVLink",
}


def pinned_wrong(
    request: Request, yard: Yard, occupancy: Occupancy, tried_on: Sequence[Census]
) -> tuple[str, Advice] | None:
    """Summary and fix where a pinned node is no node for this gang, or can't be had now. None where all of them can, at
    least one by one.
    """
    columns = yard.columns
    pins = sorted(request.pin)
    wrong = _excluded(request, yard, pins) or _of_wrong_kind(request, yard, pins)
    if wrong is not None:
        return wrong
    kind = int(columns.kind[columns.index[pins[0]]])
    mine = [looked for looked in tried_on if looked.group is columns.classes[kind]]
    nodes = mine[0].shape.nodes
    if len(pins) > nodes:
        what = f"{len(pins)} nodes are pinned, and the gang has {nodes}"
        return what, _one_of([dropped(request, yard), larger_gang(request, yard)], f"pin {nodes} or fewer")
    at = columns.positions(pins)
    looked = min(mine, key=lambda each: sum(each.problems[node - each.first_node] != 0 for node in at))
    ill = [node - looked.first_node for node in at if looked.problems[node - looked.first_node]]
    return _unusable(request, yard, occupancy, looked, ill) if ill else None


def fewer(request: Request, yard: Yard) -> Advice | None:
    """The fewest pins to give up so that the gang fits now."""
    found = dropped(request, yard)
    return None if found is None else Advice(found.sentence(), (found,))


def dropped(request: Request, yard: Yard, first: Iterable[str] = ()) -> Change | None:
    """The change to fewer pins: without `first`, without any one, without all."""
    changes = (tried(request, replace(request, pin=request.pin - gone), yard) for gone in _parts(request, set(first)))
    return next((change for change in changes if change is not None), None)


def _parts(request: Request, first: set[str]) -> Iterator[set[str]]:
    if first:
        yield first
    yield from ({name} for name in islice(sorted(request.pin), TRIES))
    yield set(request.pin)


def _excluded(request: Request, yard: Yard, pins: list[str]) -> tuple[str, Advice] | None:
    rack_of = {name: yard.columns.nodes[yard.columns.index[name]].rack for name in pins}
    racks = sorted({rack_of[name] for name in pins} & request.exclude_racks)
    nodes = [name for name in pins if name in request.exclude]
    hit = sorted({*nodes, *(name for name in pins if rack_of[name] in racks)})
    if not hit:
        return None
    what = (
        f"{names(hit)} {_are(hit)} pinned, and excluded" + (f" with rack {names(racks)}" if racks else "") + " as well"
    )
    without = dropped(request, yard, hit)
    let_in = replace(request, exclude=request.exclude - set(nodes), exclude_racks=request.exclude_racks - set(racks))
    changes = tuple(change for change in (without, tried(request, let_in, yard)) if change is not None)
    fix = ", or ".join(change.sentence() for change in changes)
    return what, Advice(fix or f"name {names(hit)} in one of the two", changes)


def _of_wrong_kind(request: Request, yard: Yard, pins: list[str]) -> tuple[str, Advice] | None:
    columns = yard.columns
    kinds = {name: int(columns.kind[columns.index[name]]) for name in pins}
    others = sorted(name for name in pins if kinds[name] != kinds[pins[0]])
    if others:
        what = f"{pins[0]} and {others[0]} are pinned, which are of two kinds, and a gang sits on nodes of one"
        same = [dropped(request, yard, gone) for gone in (others, set(pins) - set(others))]
        return what, _one_of(same, f"pin nodes like {pins[0]} only")
    group = columns.classes[kinds[pins[0]]]
    if request.gpu_kind not in (None, group.gpu):
        what = f"{names(pins)} {_are(pins)} pinned, with {group.gpu} GPUs, and the gang asks for {request.gpu_kind}"
        other = tried(request, replace(request, gpu_kind=group.gpu), yard, f"`gpu: {group.gpu}`")
        return what, _one_of([dropped(request, yard, pins), other], f"pin {request.gpu_kind} nodes")
    shape = shape_of(request, group)
    if isinstance(shape, Misfit):
        what = f"{names(pins)} {_are(pins)} pinned, and {shape.summary}"
        return what, _one_of([dropped(request, yard, pins)], "pin other nodes")
    return None


def _unusable(
    request: Request, yard: Yard, occupancy: Occupancy, looked: Census, ill: list[int]
) -> tuple[str, Advice] | None:
    """Pinned nodes that can't be had now. None where these are not all that is in the way."""
    columns = looked.columns
    problem_of = {at: [name for name in PROBLEMS if looked.problems[at] & BIT[name]] for at in ill}
    told = [f"{columns.names[at + looked.first_node]} is {' and '.join(_IS[p] for p in problem_of[at])}" for at in ill]
    more = f" and {len(told) - 2} more" if len(told) > 2 else ""
    what = f"the gang is pinned to {_those(ill)} that can't be had: {', '.join(told[:2])}{more}"
    problems = {problem for every in problem_of.values() for problem in every}
    parts = []
    if "kind" not in problems and enough(looked, request, ill):
        parts = [advice_on(looked, ill, problem, yard, occupancy) for problem in PROBLEMS if problem in problems]
    without = dropped(request, yard, [columns.names[at + looked.first_node] for at in ill])
    texts = ["; and ".join(parts)] if parts else []
    texts += [without.sentence()] if without else []
    return (what, Advice(", or ".join(texts), (without,) if without else ())) if texts else None


def _one_of(changes: Iterable[Change | None], otherwise: str) -> Advice:
    found = tuple(dict.fromkeys(change for change in changes if change is not None))
    return Advice(", or ".join(change.sentence() for change in found) or otherwise, found)


def _are(some: Sequence[str]) -> str:
    return "is" if len(some) == 1 else "are"


def _those(some: Sequence[int]) -> str:
    return "a node" if len(some) == 1 else "nodes"
