"""Which nodes have to lose what stands in their way so that the gang fits."""

from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.census import BIT, PROBLEMS, Census
from rackyard.placement.change import names
from rackyard.placement.model import Occupancy, Request
from rackyard.placement.solve import solve
from rackyard.placement.yard import Yard


def problems_to_lift(looked: Census, request: Request) -> tuple[str, ...]:
    """What must not stand in nodes' way: one problem if that is enough, else as few as can be. Empty where nothing is
    enough, with the spares that are asked for.
    """
    for problem in PROBLEMS:
        if solve(looked, request, BIT[problem]) is not None:
            return (problem,)
    lifted: list[str] = []
    for problem in PROBLEMS:
        lifted.append(problem)
        if solve(looked, request, _bits(lifted)) is not None:
            break
    else:
        return ()
    for problem in lifted[:-1]:
        others = [other for other in lifted if other != problem]
        if solve(looked, request, _bits(others)) is not None:
            lifted = others
    return tuple(lifted)


def nodes_to_lift(looked: Census, request: Request, problems: Iterable[str]) -> list[int]:
    """Few nodes that, without these problems, let the gang fit: chosen greedily, and tried. Positions in the census."""
    bits = np.uint16(_bits(problems))
    alone = np.flatnonzero(((looked.problems & bits) != 0) & ((looked.problems & ~bits) == 0))
    pinned = [at for at in alone.tolist() if at + looked.first_node in set(looked.columns.positions(request.pin))]
    chosen = _cheapest(looked, request, alone)
    if chosen and enough(looked, request, chosen):
        return chosen
    ordered = [*pinned, *_fullest_first(looked, [at for at in alone.tolist() if at not in pinned])]
    low, high = 1, len(ordered)
    while low < high:  # more nodes never hurt
        middle = (low + high) // 2
        low, high = (low, middle) if enough(looked, request, ordered[:middle]) else (middle + 1, high)
    return sorted(ordered[:high])


def advice_on(looked: Census, chosen: list[int], problem: str, yard: Yard, occupancy: Occupancy) -> str:
    """What to do about a problem of those nodes of the census."""
    columns = looked.columns
    where = [at + looked.first_node for at in chosen if looked.problems[at] & BIT[problem]]
    nodes = [columns.nodes[at] for at in where]
    named = names([node.name for node in nodes])
    if problem == "busy":
        jobs = sorted({job for node in nodes for job in occupancy.owners.get(node.name, ())})
        held = f" (held by {names(jobs)})" if jobs else ""
        return f"busy, would fit when {named} {'frees' if len(nodes) == 1 else 'free'}{held}"
    if problem == "cordoned":
        reasons = names(sorted({node.cordoned or "failed" for node in nodes}))
        return f"return {named} to service (cordoned: {reasons})"
    if problem == "nvlink":
        return (
            f"restore the NVLink of {names(list(dict.fromkeys(columns.rack_names[columns.pool[at]] for at in where)))}"
        )
    if problem == "shared":
        return "wait until a whole NVLink domain is free"
    verb = {"excluded": "stop excluding", "health": "repair or replace", "rail": "restore the NICs of"}[problem]
    return f"{verb} {named}"


def _bits(problems: Iterable[str]) -> int:
    return sum(BIT[problem] for problem in problems)


def enough(looked: Census, request: Request, nodes: list[int]) -> bool:
    """Whether the gang fits when nothing is in the way of those nodes of the census."""
    clear = looked.problems.copy()
    clear[nodes] = 0
    return solve(replace(looked, problems=clear), request) is not None


def _fullest_first(looked: Census, nodes: list[int]) -> list[int]:
    """Those in pools with much room first."""
    room = looked.counts()
    pool = looked.columns.pool[looked.first_node :] - looked.first_pool
    return sorted(nodes, key=lambda at: (-int(room[pool[at]]), int(pool[at]), at))


def _cheapest(looked: Census, request: Request, alone: NDArray[np.intp]) -> list[int]:
    """The fewest of those nodes by counting alone: pool by pool, whatever completes one more segment at least cost."""
    pool_of = looked.columns.pool[alone + looked.first_node] - looked.first_pool
    blocked = [alone[pool_of == number].tolist() for number in range(len(looked.starts))]
    unit = looked.shape.unit if request.segment_required else 1
    able = [unit == 1 or not loose for loose in looked.pools(looked.columns.loose).tolist()]
    free = looked.counts().tolist()
    missing = looked.shape.nodes // unit - sum(
        max(0, count - request.spares) // unit for count, may in zip(free, able, strict=True) if may
    )
    offers = [_offer(free[at], len(blocked[at]), unit, request.spares, at) for at, may in enumerate(able) if may]
    heapify(offers)
    chosen: list[int] = []
    for _ in range(missing):
        if not offers or offers[0][0]:
            return []
        _, price, number = heappop(offers)
        chosen += blocked[number][:price]
        blocked[number] = blocked[number][price:]
        free[number] += price
        heappush(offers, _offer(free[number], len(blocked[number]), unit, request.spares, number))
    return chosen


def _offer(free: int, blocked: int, unit: int, spares: int, pool: int) -> tuple[bool, int, int]:
    """Whether a pool has too few such nodes for one more segment, how many these have to be, and the pool."""
    price = (max(0, free - spares) // unit + 1) * unit + spares - free
    return price > blocked, price, pool
