"""How far the groups of the parallel plan are spread: NVLink domains under each, counted in nodes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Ints
from rackyard.placement.model import Request
from rackyard.placement.shape import Shape


@dataclass(frozen=True, slots=True)
class Runs:
    """Groups that are `length` consecutive nodes each, and what one more domain under one costs."""

    length: int
    weight: int


@dataclass(frozen=True, slots=True)
class Grid:
    """The plan on nodes: groups of neighbours (TP, EP, DP), and pipelines across `stages` stages of `stage` nodes."""

    runs: tuple[Runs, ...]
    stages: int
    stage: int
    pipeline_weight: int

    def chunk(self, unit: int) -> int:
        """Nodes that stay neighbours when the pipeline is walked first: whole units, TP and EP groups."""
        return max([unit, *(run.length for run in self.runs[:-1])])


def grid(request: Request, shape: Shape) -> Grid | None:
    """The plan in nodes; None where there is none, or where it doesn't divide over the nodes."""
    plan = request.parallel
    if plan is None or request.gpus % (plan.tp * plan.cp * plan.pp):
        return None
    inner = plan.tp * plan.cp
    stage_ranks = request.gpus // plan.pp
    runs = []
    for ranks, weight in ((inner, plan.tp_weight), (inner * plan.ep, plan.ep_weight), (stage_ranks, plan.dp_weight)):
        length = ranks // shape.per_node
        if length > 1 and weight and ranks % shape.per_node == 0 and shape.nodes % length == 0:
            runs.append(Runs(length, weight))
    whole = stage_ranks % shape.per_node == 0
    stage = stage_ranks // shape.per_node if whole else shape.nodes
    stages = plan.pp if whole else 1
    return Grid(tuple(runs), stages, stage, plan.pp_weight if stages > 1 else 0)


def spread_cost(where: Ints, plan: Grid | None) -> int:
    """The weighted sum, over all groups, of domains under a group beyond the first. `where` is the domain of each node
    in rank order. Without a plan the whole gang is one group of weight 1.
    """
    if plan is None:
        return _beyond_first(where[None, :])
    cost = sum(run.weight * _beyond_first(where.reshape(-1, run.length)) for run in plan.runs)
    if plan.pipeline_weight:
        cost += plan.pipeline_weight * _beyond_first(where.reshape(plan.stages, plan.stage).T)
    return int(cost)


def pipeline_first(nodes: int, plan: Grid | None, unit: int) -> NDArray[np.intp] | None:
    """The node numbers in the order that walks each pipeline before the next; None where that is no other order."""
    if plan is None or not plan.pipeline_weight:
        return None
    chunk = plan.chunk(unit)
    if plan.stage % chunk or plan.stage == chunk:
        return None
    walk = np.arange(nodes).reshape(plan.stages, plan.stage // chunk, chunk)
    return walk.transpose(1, 0, 2).reshape(-1)


def _beyond_first(groups: Ints) -> int:
    ordered = np.sort(groups, axis=1)
    return int((ordered[:, 1:] != ordered[:, :-1]).sum())
