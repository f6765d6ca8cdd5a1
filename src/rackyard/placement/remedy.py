"""The smallest change that would fit. Every change proposed is tried first; what can't be tried says so."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from rackyard.placement.census import BIT, Census
from rackyard.placement.decide import looks
from rackyard.placement.model import Occupancy, Request
from rackyard.placement.solve import solve
from rackyard.placement.verdicts import Pools
from rackyard.placement.yard import Yard

NAMED = 4
"""How many nodes a sentence lists before it counts the rest."""


def fits(request: Request, yard: Yard) -> bool:
    """Whether the request would be placed now."""
    return any(solve(looked, request) is not None for looked in looks(request, yard))


def without(request: Request, what: str, yard: Yard) -> str:
    """The advice to write `what`, which makes it `request`."""
    return f"{what} fits now" if fits(request, yard) else f"{what}; and that only when more is free"


def smaller_gang(request: Request, yard: Yard) -> str:
    """The largest gang of that form that fits now."""
    gpus = _largest_gang(request, yard)
    return f"`gpus: {gpus}` is the most that fits now" if gpus else "nothing of this form fits now"


def fewer_spares(request: Request, yard: Yard) -> str:
    """The most spares with which the gang fits."""
    for spares in range(request.spares - 1, -1, -1):
        if fits(replace(request, spares=spares), yard):
            return f"`spares: {spares}` fits now"
    return smaller_gang(request, yard)


def other_spread(request: Request, yard: Yard) -> str:
    """The nearest number of racks over which the gang spreads, else packing."""
    racks = len(yard.columns.site.racks)
    goal = request.spread if isinstance(request.spread, int) else racks
    for count in sorted(range(1, racks + 1), key=lambda count: (abs(count - goal), count)):
        if fits(replace(request, spread=count), yard):
            return f"`spread: {{racks: {count}}}` fits now"
    if fits(replace(request, spread="pack"), yard):
        return "`spread: pack` fits now"
    return smaller_gang(request, yard)


def smaller_segment(request: Request, yard: Yard, looked: Census, largest: int) -> str:
    """The largest segment that fits with as many segments, and whether a split would do."""
    shape = looked.shape
    advice = []
    for nodes in range(min(shape.unit - 1, largest), 0, -1):
        gpus = nodes * shape.per_node
        smaller = replace(request, segment_gpus=gpus, gpus=gpus * shape.units)
        if fits(smaller, yard):
            advice.append(f"`segment: {{gpus: {gpus}}}` with `gpus: {smaller.gpus}` fits now")
            break
    if request.segment_required and fits(replace(request, segment_required=False), yard):
        advice.append("`required: false` lets a segment span domains and fits now")
    return ", or ".join(advice) or smaller_gang(request, yard)


def release(looked: Census, request: Request, yard: Yard, occupancy: Occupancy, problem: str) -> str:
    """Which nodes have to lose their `problem` so that the gang fits, and what fits meanwhile."""
    columns = looked.columns
    chosen = [columns.nodes[at + looked.first_node] for at in _cheapest(looked, request, problem)]
    named = _names(node.name for node in chosen)
    if problem == "busy":
        jobs = sorted({job for node in chosen for job in occupancy.owners.get(node.name, ())})
        held = f" (held by {_names(jobs)})" if jobs else ""
        advice = f"busy, would fit when {named} {'frees' if len(chosen) == 1 else 'free'}{held}"
    elif problem == "cordoned":
        reasons = _names(sorted({node.cordoned or "failed" for node in chosen}))
        advice = f"return {named} to service (cordoned: {reasons})"
    elif problem == "nvlink":
        advice = f"restore the NVLink of {_names(dict.fromkeys(node.rack for node in chosen))}"
    elif problem == "kind":
        advice = "ask for less of `gpu_memory`, `nic_gbps` or `domain_gpus`"
    elif problem == "shared":
        advice = "`exclusive: false`, or wait until a whole NVLink domain is free"
    else:
        verb = {"excluded": "stop excluding", "health": "repair or replace", "rail": "restore the NICs of"}[problem]
        advice = f"{verb} {named}"
    gpus = _largest_gang(request, yard)
    return advice + (f"; `gpus: {gpus}` fits now" if gpus else "")


def _largest_gang(request: Request, yard: Yard) -> int:
    """GPUs of the largest gang of this form that fits now; 0 for none. Bisection: a part of what fits, fits."""
    best = 0
    request = replace(request, parallel=None, groups=tuple(g for g in request.groups if g.required))
    for group in yard.columns.classes:
        if request.gpu_kind not in (None, group.gpu):
            continue
        segment = request.segment_gpus
        step = segment if segment and segment < request.gpus else min(request.gpus_per_node or group.size, group.size)
        step = max([step, *(g.gpus for g in request.groups if g.gpus < request.gpus)])
        low, high = 0, min((request.gpus - 1) // step, group.size * len(group.nodes) // step)
        while low < high:
            middle = (low + high + 1) // 2
            smaller = replace(request, gpus=middle * step)
            if fits(smaller, yard):
                low = middle
            else:
                high = middle - 1
        best = max(best, low * step)
    return best


def _cheapest(looked: Census, request: Request, problem: str) -> list[int]:
    """The fewest nodes (greedily) that must lose the problem; all of them where counting can't tell. Positions in the
    census.
    """
    alone = np.flatnonzero(looked.problems == BIT[problem])
    afflicted = np.flatnonzero(looked.problems & BIT[problem]).tolist()
    if request.spread != "pack":
        return alone.tolist() or afflicted
    pool_of = looked.columns.pool[alone + looked.first_node] - looked.first_pool
    pools = Pools(looked)
    blocked = [alone[pool_of == number].tolist() for number in range(len(looked.starts))]
    unit = looked.shape.unit if request.segment_required else 1
    able = [unit == 1 or not loose for loose in pools.loose.tolist()]
    free = pools.usable.tolist()
    missing = looked.shape.nodes // unit - sum(
        max(0, count - request.spares) // unit for count, may in zip(free, able, strict=True) if may
    )
    chosen: list[int] = []
    while missing > 0:
        price, number = min(
            (
                ((max(0, free[at] - request.spares) // unit + 1) * unit + request.spares - free[at], at)
                for at, may in enumerate(able)
                if may
            ),
            key=lambda offer: (offer[0] > len(blocked[offer[1]]), offer),
            default=(1, -1),
        )
        if number < 0 or price > len(blocked[number]):
            return alone.tolist() or afflicted
        chosen += blocked[number][:price]
        blocked[number] = blocked[number][price:]
        free[number] += price
        missing -= 1
    return chosen or alone.tolist() or afflicted


def _names(names: Iterable[str]) -> str:
    every = list(names)
    shown = ", ".join(every[:NAMED])
    return shown + (f" and {len(every) - NAMED} more" if len(every) > NAMED else "")
