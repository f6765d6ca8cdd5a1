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
    order = np.argsort(where, kind="stable")
    pools, counts = np.unique(where, return_counts=True)
    usable = looked.usable()
    nodes = np.empty(len(where), np.int32)
    taken, spares = [], []
    for pool, count in zip(pools, counts, strict=True):
        able = by_preference(looked, usable, int(pool), request)
        taken.append(np.sort(able[:count]))
        keep = len(able) if request.exclusive else count + request.spares
        spares.append(able[count:keep])
    nodes[order] = np.concatenate(taken)
    kept = np.concatenate(spares).astype(np.int32) + np.int32(looked.first_node)
    decision = Decision(
        nodes=nodes + np.int32(looked.first_node),
        gpus=gpus_of(looked, nodes),
        runs=runs_of(looked, where, solution),
        spares=kept,
        cost=solution.cost,
        held=yard.columns.all[kept] & ~yard.busy[kept],
    )
    return Found(looked, solution, decision)


def by_preference(looked: Census, usable: NDArray[np.bool_], pool: int, request: Request) -> NDArray[np.intp]:
    """The usable nodes of a pool: pinned ones, those in use already by others, those with nothing worn; site order."""
    span = looked.of_pool(pool)
    able: NDArray[np.intp] = np.flatnonzero(usable[span]) + span.start
    wear = looked.columns.wear[able + looked.first_node]
    partial = looked.shape.per_node < looked.group.size
    if not (wear.any() or partial or request.pin):
        return able
    free = np.bitwise_count(looked.free[able]) if partial else np.zeros(len(able), np.uint8)
    pins = set(looked.columns.positions(request.pin))
    pinned = np.array([position + looked.first_node not in pins for position in able], np.bool_)
    ordered: NDArray[np.intp] = able[np.lexsort((able, wear, free, pinned))]
    return ordered


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
