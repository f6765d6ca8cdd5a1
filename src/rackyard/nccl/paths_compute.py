"""From the tree to a system that the graph search can start on, in NCCL's order of calls.

Graph, paths, trim, paths again where something was trimmed; then, for each size of communicator, the search's limits.
Source: NCCL 2.30.7, ``initTransportsRank`` in ``src/init.cc``.
"""

from dataclasses import dataclass, replace

from rackyard.nccl.comm import CommOptions, communicator
from rackyard.nccl.element import Element
from rackyard.nccl.linktypes import GPU
from rackyard.nccl.paths_rules import compute_paths
from rackyard.nccl.paths_summary import limit_bw
from rackyard.nccl.system import build_system
from rackyard.nccl.system_print import check_printable
from rackyard.nccl.topology import Comm, GpuNode, System
from rackyard.nccl.trim import outsiders, remove_gpu
from rackyard.nccl.version import Version


@dataclass(frozen=True, slots=True)
class Computed:
    """A topology with its paths. ``before_trim`` is the same object as ``system`` where no GPU was removed."""

    system: System
    before_trim: System
    removed: tuple[GpuNode, ...]
    comm: Comm


@dataclass(frozen=True, slots=True)
class Sized:
    """A topology as a communicator of one size sees it; its link bandwidths are its own, ready for a search."""

    system: System
    comm: Comm


def compute(root: Element | None, version: Version, options: CommOptions | None = None, file: str = "") -> Computed:
    """The graph and all paths for the communicator that is the GPUs of the tree.

    Raises TopologyRefused with stage ``system_from_xml``, ``communicator``, ``paths`` or ``print``.
    """
    options = options or CommOptions()
    built = build_system(root, version, local_rank=options.rank, file=file)
    comm = communicator(built, options)
    compute_paths(built, comm)
    if not built.count(GPU):
        return Computed(built, built, (), comm)
    outside = outsiders(built, comm.rank)
    system = built.clone() if outside else built
    if outside:
        for gpu in outside:
            remove_gpu(system, gpu.index)
        compute_paths(system, comm)
    check_printable(system)
    return Computed(system, built, tuple(outside), comm)


def sized(computed: Computed, factor: int = 1) -> Sized:
    """The system for a communicator with ``factor`` times the ranks of the tree: 1 is this system, 2 is two of it."""
    ranks = computed.comm.n_ranks * factor
    system = replace(computed.system, link_bw=list(computed.system.link_bw))
    system.inter = 0 if system.count(GPU) == ranks else 1
    limit_bw(system)
    return Sized(system, replace(computed.comm, n_ranks=ranks))
