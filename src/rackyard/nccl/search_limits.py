"""Where a search begins and ends: path types and bandwidths that the system allows, and the list of speeds.

Source of the rules: NCCL 2.30.7 and 2.29.7, `src/graph/search.cc` and `src/graph/paths.cc`.
"""

from dataclasses import dataclass

from rackyard.nccl.cpus import is_amd
from rackyard.nccl.linktypes import GPU, NET, PATH_LOC, PATH_PIX, PATH_SYS
from rackyard.nccl.paths_summary import split_nvlink
from rackyard.nccl.speeds import speeds
from rackyard.nccl.topology import DevNode, GpuNode, System


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of all searches in one system.

    max_bw, total_bw   GB/s of the fastest path, and of all links of the GPU that has most
    min_*, max_*       best and worst path types between GPUs (intra) and between GPUs and nets (inter)
    amd                whether the first CPU is AMD's
    split_nvlink       whether there are two NVLink domains with a slower link between them
    """

    speeds: tuple[float, ...]
    min_sm: int
    max_bw: float
    total_bw: float
    min_intra: int
    max_intra: int
    min_inter: int
    max_inter: int
    amd: bool
    split_nvlink: bool


def limits(system: System) -> Limits:
    """The limits for one communicator, of a system with its paths and bandwidth limits (see `paths_compute.sized`)."""
    devs = [system.nodes[number] for number in system.devs()]
    min_sm = min(dev.sm for dev in devs if isinstance(dev, DevNode | GpuNode))
    min_intra, max_intra = (PATH_LOC, PATH_SYS) if system.count(GPU) == 1 else path_types(system, GPU)
    min_inter, max_inter = path_types(system, NET) if system.inter else (PATH_PIX, PATH_SYS)
    return Limits(
        speeds=speeds(min_sm, inter=bool(system.inter), has_dev=system.has_dev),
        min_sm=min_sm,
        max_bw=system.max_bw,
        total_bw=system.total_bw,
        min_intra=min_intra,
        max_intra=max_intra,
        min_inter=min_inter,
        # Balanced trees, used below sm 90, sometimes need a way back over the CPU.
        max_inter=PATH_SYS if min_sm < 90 else max_inter,
        amd=is_amd(system.cpus()),
        split_nvlink=split_nvlink(system),
    )


def path_types(system: System, node_type: int) -> tuple[int, int]:
    """Best (SYS or better) and worst type of the paths from GPUs to other GPUs, or to nets."""
    best, worst = PATH_SYS, PATH_LOC
    for place, gpu in enumerate(system.of_type[GPU]):
        row = system.rows[node_type][gpu]
        types = [] if row is None else [kind for at, kind in enumerate(row.type) if node_type != GPU or at != place]
        best, worst = min([best, *types]), max([worst, *types])
    return best, worst
