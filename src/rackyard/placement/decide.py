"""The decision itself, in numbers: which nodes, in which order, at what cost. Pure, deterministic, and fast."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.census import Census, census, pick, windows
from rackyard.placement.columns import Ints, Masks
from rackyard.placement.model import Request
from rackyard.placement.shape import Misfit, Shape, shape_of
from rackyard.placement.solve import Solution, solve
from rackyard.placement.yard import Decision, Yard


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A decision and what it was chosen from."""

    looked: Census
    solution: Solution
    decision: Decision


def decide(request: Request, yard: Yard) -> Decision | None:
    """Seats for the gang, or None. The yard stays as it is: `yard.take(decision)` seats the gang.

    A gang sits on nodes of one class; the class with most GPUs is tried first. `request.apart` needs names of jobs,
    which a yard doesn't have: `engine.place` turns them into racks to avoid. `engine.place` also says why.
    """
    for looked in looks(request, yard):
        solution = solve(looked, request)
        if solution is not None:
            return found(looked, solution, request, yard).decision
    return None


def looks(request: Request, yard: Yard) -> Iterator[Census]:
    """A look at every class of nodes that the gang divides over, and every set of GPUs on them that would do."""
    for kind, group in enumerate(yard.columns.classes):
        shape = shape_of(request, group) if request.gpu_kind in (None, group.gpu) else None
        if isinstance(shape, Shape):
            for window in windows(request, group, shape):
                yield census(request, yard, kind, shape, window)


def misfits(request: Request, yard: Yard) -> list[Misfit]:
    """Why it does not divide over the other classes of its kind."""
    shapes = [shape_of(request, group) for group in yard.columns.classes if request.gpu_kind in (None, group.gpu)]
    return [shape for shape in shapes if isinstance(shape, Misfit)]


def found(looked: Census, solution: Solution, request: Request, yard: Yard) -> Found:
    """The nodes for a solution: of each pool those that suit best, in site order."""
    where = solution.where
    pools, counts = np.unique(where, return_counts=True)
    able, of = by_preference(looked, looked.usable(), pools, request)
    number = np.arange(len(able)) - np.searchsorted(of, np.arange(len(pools)))[of]
    taken = number < counts[of]
    spare = ~taken if request.exclusive else ~taken & (number < counts[of] + request.spares)
    spares = able[spare].astype(np.int32) + np.int32(looked.first_node)
    nodes = np.empty(len(where), np.int32)
    nodes[np.argsort(where, kind="stable")] = np.sort(able[taken])
    decision = Decision(
        nodes=nodes + np.int32(looked.first_node),
        gpus=gpus_of(looked, nodes),
        runs=runs_of(looked, where, solution),
        spares=spares,
        cost=solution.cost,
        held=yard.columns.all[spares] & ~yard.busy[spares],
    )
    return Found(looked, solution, decision)


def by_preference(
    looked: Census, usable: NDArray[np.bool_], pools: Ints, request: Request
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The usable nodes of some pools, and which of these pools each is in: pool by pool, pinned ones first, then those
    with least worn, then those in use already by others; in site order.
    """
    first, end = looked.starts[pools], np.append(looked.starts, len(usable))[pools + 1]
    of = np.repeat(np.arange(len(pools)), end - first)
    nodes = np.arange(len(of)) + np.repeat(end - np.cumsum(end - first), end - first)
    nodes, of = nodes[usable[nodes]], of[usable[nodes]]
    wear = looked.columns.wear[nodes + looked.first_node]
    partial = looked.shape.per_node < looked.group.size
    if wear.any() or partial or request.pin:
        free = np.bitwise_count(looked.free[nodes]) if partial else np.zeros(len(nodes), np.uint8)
        pinned = np.isin(nodes + looked.first_node, looked.columns.positions(request.pin))
        order = np.lexsort((nodes, free, wear, ~pinned, of))
        nodes, of = nodes[order], of[order]
    return nodes, of


def gpus_of(looked: Census, nodes: Ints) -> Masks:
    """The GPUs to use on each of those nodes, counted in the census."""
    if looked.window is not None:
        return np.full(len(nodes), looked.window, np.uint32)
    masks = [
        pick(looked.columns.nodes[node + looked.first_node], int(looked.free[node]), looked.shape.per_node)
        for node in nodes.tolist()
    ]
    return np.array(masks, np.uint32)


def runs_of(looked: Census, where: Ints, solution: Solution) -> tuple[int, ...]:
    """Lengths of the segments, or pieces of segments, in rank order."""
    cut = where[1:] != where[:-1]
    cut |= solution.rooms.loose[where[1:]]
    if looked.shape.segment:
        cut |= np.arange(1, len(where)) % looked.shape.segment == 0
    edges = np.concatenate(([0], np.flatnonzero(cut) + 1, [len(where)]))
    return tuple(np.diff(edges).tolist())
