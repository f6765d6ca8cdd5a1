"""The smallest change that would fit. Every change proposed is tried first; what can't be tried says so."""

from collections.abc import Iterable
from dataclasses import replace

from rackyard.fabric import Site
from rackyard.placement.census import Census, Pool, View, census, windows
from rackyard.placement.model import Occupancy, Request
from rackyard.placement.shape import Misfit, node_classes, shape_of
from rackyard.placement.solve import solve

NAMED = 4
"""How many nodes a sentence lists before it counts the rest."""


def fits(request: Request, site: Site, occupancy: Occupancy) -> bool:
    """Whether the request would be placed now."""
    for group in node_classes(site):
        if request.gpu_kind not in (None, group.gpu):
            continue
        shape = shape_of(request, group)
        if isinstance(shape, Misfit):
            continue
        for window in windows(request, group, shape):
            if solve(census(request, site, occupancy, group, shape, window), request) is not None:
                return True
    return False


def smaller_gang(request: Request, site: Site, occupancy: Occupancy) -> str:
    """The largest gang of that form that fits now."""
    gpus = _largest_gang(request, site, occupancy)
    return f"`gpus: {gpus}` is the most that fits now" if gpus else "nothing of this form fits now"


def fewer_spares(request: Request, site: Site, occupancy: Occupancy) -> str:
    """The most spares with which the gang fits."""
    for spares in range(request.spares - 1, -1, -1):
        if fits(replace(request, spares=spares), site, occupancy):
            return f"`spares: {spares}` fits now"
    return smaller_gang(request, site, occupancy)


def other_spread(request: Request, site: Site, occupancy: Occupancy) -> str:
    """The nearest number of racks over which the gang spreads, else packing."""
    racks = len(site.racks)
    goal = request.spread if isinstance(request.spread, int) else racks
    for count in sorted(range(1, racks + 1), key=lambda count: (abs(count - goal), count)):
        if fits(replace(request, spread=count), site, occupancy):
            return f"`spread: {{racks: {count}}}` fits now"
    if fits(replace(request, spread="pack"), site, occupancy):
        return "`spread: pack` fits now"
    return smaller_gang(request, site, occupancy)


def smaller_segment(request: Request, site: Site, occupancy: Occupancy, looked: Census, largest: int) -> str:
    """The largest segment that fits with as many segments, and whether a split would do."""
    shape = looked.shape
    advice = []
    for nodes in range(min(shape.unit - 1, largest), 0, -1):
        gpus = nodes * shape.per_node
        smaller = replace(request, segment_gpus=gpus, gpus=gpus * shape.units)
        if fits(smaller, site, occupancy):
            advice.append(f"`segment: {{gpus: {gpus}}}` with `gpus: {smaller.gpus}` fits now")
            break
    if request.segment_required and fits(replace(request, segment_required=False), site, occupancy):
        advice.append("`required: false` lets a segment span domains and fits now")
    return ", or ".join(advice) or smaller_gang(request, site, occupancy)


def release(looked: Census, request: Request, site: Site, occupancy: Occupancy, problem: str) -> str:
    """Which nodes have to lose their `problem` so that the gang fits, and what fits meanwhile."""
    views = _cheapest(looked, request, problem)
    named = _names(view.node.name for view in views)
    if problem == "busy":
        jobs = sorted({job for view in views for job in occupancy.owners.get(view.node.name, ())})
        held = f" (held by {_names(jobs)})" if jobs else ""
        advice = f"busy, would fit when {named} {'frees' if len(views) == 1 else 'free'}{held}"
    elif problem == "cordoned":
        reasons = _names(sorted({view.node.cordoned for view in views}))
        advice = f"return {named} to service (cordoned: {reasons})"
    elif problem == "nvlink":
        advice = f"restore the NVLink of {_names(dict.fromkeys(view.node.rack for view in views))}"
    else:
        verb = {"excluded": "stop excluding", "health": "repair or replace", "rail": "restore the NICs of"}[problem]
        advice = f"{verb} {named}"
    gpus = _largest_gang(request, site, occupancy)
    return advice + (f"; `gpus: {gpus}` fits now" if gpus else "")


def _largest_gang(request: Request, site: Site, occupancy: Occupancy) -> int:
    """GPUs of the largest gang of this form that fits now; 0 for none. Bisection: a part of what fits, fits."""
    best = 0
    for group in node_classes(site):
        if request.gpu_kind not in (None, group.gpu):
            continue
        segment = request.segment_gpus
        step = segment if segment and segment < request.gpus else min(request.gpus_per_node or group.size, group.size)
        low, high = 0, min((request.gpus - 1) // step, group.size * len(group.nodes) // step)
        while low < high:
            middle = (low + high + 1) // 2
            smaller = replace(request, gpus=middle * step)
            if fits(smaller, site, occupancy):
                low = middle
            else:
                high = middle - 1
        best = max(best, low * step)
    return best


def _cheapest(looked: Census, request: Request, problem: str) -> list[View]:
    """The fewest nodes (greedily) that must lose the problem; all of them where counting can't tell."""
    blocked = [[view for view in pool.views if view.problems == {problem}] for pool in looked.pools]
    everything = [view for views in blocked for view in views]
    if request.spread != "pack":
        return everything or _afflicted(looked.pools, problem)
    unit = looked.shape.unit if request.segment_required else 1
    free = [len(pool.usable()) for pool in looked.pools]
    missing = looked.shape.nodes // unit - sum(
        _units(pool, count, unit, request) for pool, count in zip(looked.pools, free, strict=True)
    )
    chosen: list[View] = []
    while missing > 0:
        price, number = min(
            (
                ((_units(pool, free[at], unit, request) + 1) * unit + request.spares - free[at], at)
                for at, pool in enumerate(looked.pools)
                if unit == 1 or not pool.loose
            ),
            key=lambda offer: (offer[0] > len(blocked[offer[1]]), offer),
            default=(1, -1),
        )
        if number < 0 or price > len(blocked[number]):
            return everything or _afflicted(looked.pools, problem)
        chosen += blocked[number][:price]
        blocked[number] = blocked[number][price:]
        free[number] += price
        missing -= 1
    return chosen or everything or _afflicted(looked.pools, problem)


def _units(pool: Pool, free: int, unit: int, request: Request) -> int:
    return max(0, free - request.spares) // unit if unit == 1 or not pool.loose else 0


def _afflicted(pools: Iterable[Pool], problem: str) -> list[View]:
    return [view for pool in pools for view in pool.views if problem in view.problems]


def _names(names: Iterable[str]) -> str:
    every = list(names)
    shown = ", ".join(every[:NAMED])
    return shown + (f" and {len(every) - NAMED} more" if len(every) > NAMED else "")
