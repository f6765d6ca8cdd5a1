"""What NCCL would make of a topology: system, paths and graphs for one node and for two, and a verdict in plain words.

All of it is computed from the file, without NCCL and without a GPU. NCCL itself says nothing of most of what the
verdict names: a GPU without NVLink costs every graph of its clique, and communicator init still succeeds without a
warning.
"""

from dataclasses import dataclass

from rackyard.findings import Finding
from rackyard.nccl.comm import CommOptions
from rackyard.nccl.element import Element
from rackyard.nccl.graphs import Graph
from rackyard.nccl.linktypes import GPU
from rackyard.nccl.paths_compute import Computed, Sized, compute, sized
from rackyard.nccl.search_graphs import Graphs, search_graphs
from rackyard.nccl.search_peers import lesser, restored
from rackyard.nccl.search_verdict import Facts, Scale, verdict
from rackyard.nccl.version import Version
from rackyard.nccl.xmlrefused import TopologyRefused

MAX_STEPS = 5_000_000
"""Steps of the graph search for one communicator before a graph is given up as unknown; about half a minute."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The topology, its graphs for a communicator of its own size (one) and of twice as many ranks (two), and findings.

    ``one_view`` and ``two_view`` are the systems as these communicators see them.
    """

    version: Version
    computed: Computed
    one_view: Sized
    two_view: Sized
    one: Graphs
    two: Graphs
    findings: tuple[Finding, ...]


def predict(
    root: Element | None,
    version: Version,
    *,
    options: CommOptions | None = None,
    file: str = "",
    collnet: bool = False,
    max_steps: int | None = MAX_STEPS,
) -> Prediction:
    """The prediction for a tree, as `xmlread.parse` gives it.

    Raises TopologyRefused where NCCL would not get as far as the graphs. A graph at which NCCL would end, or which
    takes more than ``max_steps``, is in the findings.
    """
    computed = compute(root, version, options, file)
    one_view, two_view = sized(computed, 1), sized(computed, 2)
    one = search_graphs(one_view.system, collnet=collnet, max_steps=max_steps)
    two = search_graphs(two_view.system, collnet=collnet, max_steps=max_steps)
    poor = lesser(computed.before_trim)
    what = "node" if computed.comm.hosts_with_gpus < 2 else "clique"
    facts = Facts(
        file=file,
        version=version,
        computed=computed,
        lesser=poor,
        scales=(
            Scale(f"one {what}", one_view.system, one, None),
            Scale(f"two {what}s", two_view.system, two, None),
        ),
    )
    tree = restored(root, poor, computed.before_trim) if root is not None and poor else None
    if tree is not None:
        facts = _with_restored(facts, tree, options, max_steps)
    return Prediction(version, computed, one_view, two_view, one, two, verdict(facts))


def _with_restored(facts: Facts, tree: Element, options: CommOptions | None, max_steps: int | None) -> Facts:
    """The facts with the rings that the topology would have with all its NVLinks."""
    try:
        healthy = compute(tree, facts.version, options)
    except TopologyRefused:
        return facts
    rings: list[Graph | None] = []
    for factor in (1, 2):
        system = sized(healthy, factor).system
        found = search_graphs(system, max_steps=max_steps, ring_only=True) if system.count(GPU) else None
        rings.append(found.get("ring") if found else None)
    return facts.with_rings(rings)
