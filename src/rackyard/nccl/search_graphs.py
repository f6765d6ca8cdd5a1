"""All graphs of one communicator, in the order in which NCCL searches for them: each may depend on those before."""

from dataclasses import dataclass

from rackyard.nccl.graphs import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    NVLS,
    PATTERN_BALANCED_TREE,
    PATTERN_COLLNET_DIRECT,
    PATTERN_NVLS,
    PATTERN_RING,
    PATTERN_TREE,
    RING,
    TREE,
    Graph,
)
from rackyard.nccl.linktypes import GPU, MAX_CHANNELS
from rackyard.nccl.search import Budget, OutOfSteps, Search
from rackyard.nccl.search_arena import Arena
from rackyard.nccl.search_draft import Draft
from rackyard.nccl.search_limits import limits
from rackyard.nccl.topology import System
from rackyard.nccl.xmlrefused import TopologyRefused


@dataclass(frozen=True, slots=True)
class Graphs:
    """The graphs that were found, by name, and why there are no more.

    ``refused`` is NCCL's error at the graph ``ended_at``. ``out_of_steps`` says that the bound on steps was reached
    there: that graph and those after it are not known. ``steps`` counts the steps of all searches.
    """

    found: dict[str, Graph]
    steps: int
    ended_at: str = ""
    refused: TopologyRefused | None = None
    out_of_steps: bool = False

    def get(self, name: str) -> Graph | None:
        """A graph by its name (ring, tree, collnet, nvls, collnetDirect), or None."""
        return self.found.get(name)


def search_graphs(
    system: System, *, collnet: bool = False, max_steps: int | None = None, ring_only: bool = False
) -> Graphs:
    """Ring, tree and nvls of a system (see `paths_compute.sized`); collnet too where a collnet plugin is loaded.

    A real NCCL searches for nvls only where the devices support multicast. ``max_steps`` bounds the steps of all
    searches together; where it is reached the graph at hand stays unknown.
    """
    if not system.count(GPU):
        return Graphs({}, 0)
    arena = Arena(system)
    bounds = limits(system)
    budget = Budget(max_steps)
    found: dict[str, Graph] = {}
    ended_at, refused, out_of_steps = "", None, False
    wanted = [(RING, PATTERN_RING), (TREE, PATTERN_BALANCED_TREE)]
    wanted += [(COLLNET_CHAIN, PATTERN_TREE), (COLLNET_DIRECT, PATTERN_COLLNET_DIRECT)] if collnet else []
    wanted += [(NVLS, PATTERN_NVLS)] if system.count(GPU) > 1 else []
    for graph_id, pattern in wanted[:1] if ring_only else wanted:
        start = _start(graph_id, pattern, found)
        try:
            graph = Search(arena, bounds, start, budget).run().graph(system)
        except TopologyRefused as error:
            ended_at, refused = start.name, error
        except OutOfSteps:
            ended_at, out_of_steps = start.name, True
        if ended_at:
            break
        found[graph.name] = graph
    return Graphs(found, budget.used, ended_at, refused, out_of_steps)


def _start(graph_id: int, pattern: int, found: dict[str, Graph]) -> Draft:
    """What NCCL asks for: the tree and the collnet chain are to have as many channels as the ring."""
    least, most = 1, MAX_CHANNELS
    if graph_id == RING:
        most = MAX_CHANNELS // 2
    elif graph_id in (TREE, COLLNET_CHAIN):
        least = most = found["ring"].n_channels
    coll_net = 1 if graph_id in (COLLNET_CHAIN, COLLNET_DIRECT) else 0
    return Draft(graph_id, pattern, coll_net, least, most)
