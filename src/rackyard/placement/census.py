"""What each node could give a gang, and what stands in the way: the facts that solving and explaining share."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackyard.fabric import Health, Nic, Node
from rackyard.placement.columns import Columns, Flags, Ints, Masks
from rackyard.placement.model import Request
from rackyard.placement.shape import NodeClass, Shape
from rackyard.placement.yard import Yard

PROBLEMS = ("excluded", "busy", "shared", "cordoned", "health", "rail", "kind", "nvlink")
"""What can stand in a node's way, the easiest to change first."""
BIT = {problem: 1 << number for number, problem in enumerate(PROBLEMS)}
EVERYTHING = (1 << len(PROBLEMS)) - 1
MEMO = 64
"""Forms of requests whose lasting facts are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Census:
    """One node class under one request. Nodes and pools are counted from the first of the class."""

    columns: Columns
    group: NodeClass
    shape: Shape
    window: int | None
    """The GPUs to use on every node, as a mask; None: any free ones."""
    first_node: int
    first_pool: int
    starts: NDArray[np.int64]
    """First node of each pool."""
    problems: NDArray[np.uint16]
    """Of each node, as bits."""
    free: Masks
    """GPUs of each node that the gang could use."""
    idle: Flags
    """Nodes that nobody uses any GPU of."""

    def usable(self, ignored: int = 0) -> Flags:
        """Nodes with nothing in the way but what is `ignored` (bits of `BIT`)."""
        clear: Flags = (self.problems & np.uint16(EVERYTHING & ~ignored)) == 0
        return clear

    def counts(self, ignored: int = 0) -> Ints:
        """Usable nodes of each pool."""
        return np.add.reduceat(self.usable(ignored), self.starts, dtype=np.int32)

    def of_pool(self, pool: int) -> slice:
        """Where the nodes of a pool stand."""
        end = self.starts[pool + 1] if pool + 1 < len(self.starts) else len(self.problems)
        return slice(int(self.starts[pool]), int(end))

    def pools(self, column: NDArray[np.generic]) -> NDArray[np.generic]:
        """The part of a pool column that belongs to this class."""
        return column[self.first_pool : self.first_pool + len(self.starts)]


def windows(request: Request, group: NodeClass, shape: Shape) -> list[int | None]:
    """The GPU sets to try. Ranks of one rail must have the same GPU index on every node of a gang."""
    if shape.nodes == 1 or (request.rails == "any" and shape.per_node < group.size):
        return [None]
    mask = (1 << shape.per_node) - 1
    return [mask << start for start in range(group.size - shape.per_node + 1)]


def census(request: Request, yard: Yard, kind: int, shape: Shape, window: int | None) -> Census:
    """Look at every node of a class."""
    columns = yard.columns
    nodes, pools = columns.span(kind), columns.pools(kind)
    usable, lasting = _lasting(request, columns, kind, shape, window)
    busy = yard.busy[nodes] & columns.all[nodes]
    free = usable & ~busy
    problems = lasting.copy()
    # busy only where nothing is wrong with the GPUs: else the fix would be the wrong one
    taken = ~_holds(free, shape.per_node, window) & ((lasting & np.uint16(BIT["health"] | BIT["rail"])) == 0)
    _mark(problems, taken, "busy")
    _mark(problems, yard.out[nodes], "cordoned")
    starts = columns.starts[pools] - nodes.start
    if request.exclusive:
        used = np.logical_or.reduceat(busy != 0, starts)
        _mark(problems, np.repeat(used, columns.total[pools]), "shared")
    _mark_excluded(problems, request, columns, nodes)
    group = columns.classes[kind]
    return Census(columns, group, shape, window, nodes.start, pools.start, starts, problems, free, busy == 0)


def _lasting(
    request: Request, columns: Columns, kind: int, shape: Shape, window: int | None
) -> tuple[Masks, NDArray[np.uint16]]:
    """The GPUs of each node that would do, and what stands in the way, whoever uses what. Kept with the columns: most
    requests ask for the same.
    """
    hardware = (request.gpu_memory, request.nic_gbps, request.domain_gpus)
    key = (kind, request.gpus == 1, request.rails, request.rail, shape.per_node, window, hardware)
    known: tuple[Masks, NDArray[np.uint16]] | None = columns.memo.get(key)
    if known is not None:
        return known
    nodes, pools = columns.span(kind), columns.pools(kind)
    sound = (columns.healthy if request.gpus == 1 else columns.sound)[nodes]
    railed = sound & (columns.aligned if request.rails == "aligned" else columns.served)[nodes]
    problems = np.zeros(len(sound), np.uint16)
    ill = columns.bad[nodes] | ~_holds(sound, shape.per_node, window)
    _mark(problems, ill, "health")
    _mark(problems, ~ill & (~_holds(railed, shape.per_node, window) | ~_on_rail(request, columns, nodes)), "rail")
    _mark(problems, columns.cordoned[nodes], "cordoned")
    _mark_kind(problems, request, columns, nodes, pools)
    _mark(problems, np.repeat(columns.down[pools], columns.total[pools]), "nvlink")
    if len(columns.memo) >= MEMO:
        columns.memo.clear()
    columns.memo[key] = (railed, problems)
    return railed, problems


def neighbour(node: Node, gpu: int) -> Nic | None:
    """The healthy NIC that serves a GPU whose rail has none: one on its NUMA node, else any."""
    healthy = [nic for nic in node.nics if nic.health is Health.HEALTHY]
    numa = next(each.numa for each in node.gpus if each.index == gpu)
    return next((nic for nic in healthy if nic.numa == numa), healthy[0] if healthy else None)


def pick(node: Node, free: int, count: int) -> int:
    """`count` of the free GPUs of a node, of the NUMA node that they fill best; as masks."""
    gpus = [gpu for gpu in node.gpus if free >> gpu.index & 1]
    by_numa: dict[int, list[int]] = {}
    for gpu in gpus:
        by_numa.setdefault(gpu.numa, []).append(gpu.index)
    enough = [group for group in by_numa.values() if len(group) >= count]
    chosen = min(enough, key=len, default=[gpu.index for gpu in gpus])
    return sum(1 << index for index in chosen[:count])


def _holds(free: Masks, count: int, window: int | None) -> Flags:
    held: Flags = np.bitwise_count(free) >= count
    if window is not None:
        held = (free & np.uint32(window)) == np.uint32(window)
    return held


def _mark(problems: NDArray[np.uint16], where: Flags, problem: str) -> None:
    problems |= where.astype(np.uint16) * np.uint16(BIT[problem])


def _mark_kind(problems: NDArray[np.uint16], request: Request, columns: Columns, nodes: slice, pools: slice) -> None:
    if request.gpu_memory:
        _mark(problems, columns.memory[nodes] < request.gpu_memory, "kind")
    if request.nic_gbps:
        _mark(problems, columns.nic[nodes] < request.nic_gbps, "kind")
    if request.domain_gpus:
        small = columns.domain_gpus[pools] < request.domain_gpus
        _mark(problems, np.repeat(small, columns.total[pools]), "kind")


def _on_rail(request: Request, columns: Columns, nodes: slice) -> Flags:
    if request.rail is None:
        return np.ones(nodes.stop - nodes.start, np.bool_)
    there: Flags = (columns.rails[nodes] & np.uint32(1 << request.rail)) != 0
    return there


def _mark_excluded(problems: NDArray[np.uint16], request: Request, columns: Columns, nodes: slice) -> None:
    for position in columns.positions(request.exclude):
        if nodes.start <= position < nodes.stop:
            problems[position - nodes.start] |= BIT["excluded"]
    if request.exclude_racks:
        racks = [number for number, rack in enumerate(columns.site.racks) if rack.name in request.exclude_racks]
        _mark(problems, np.isin(columns.rack_of[nodes], racks), "excluded")
