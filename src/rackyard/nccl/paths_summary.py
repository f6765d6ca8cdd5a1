"""What NCCL derives from paths: bandwidth limits of the search, NVLink flags, GPUDirect, NIC choice, p2p channels.

Source: NCCL 2.30.7 and 2.29.7, ``src/graph/search.cc``, ``paths.cc`` and ``topo.cc``.
"""

from collections import Counter

from rackyard.nccl.linktypes import (
    CPU,
    GPU,
    LINK_NVL,
    LINK_PCI,
    LOC_BW,
    MAX_CHANNELS,
    NET,
    PATH_LOC,
    PATH_NVB,
    PATH_NVL,
    PATH_PIX,
)
from rackyard.nccl.numbers import as_float
from rackyard.nccl.paths_gdr import GDR_OFF, Gdr
from rackyard.nccl.paths_local import Local
from rackyard.nccl.system_links import nvlink_bw
from rackyard.nccl.topology import Comm, System

P2P_CHANNEL_NET_GBPS = 14


def limit_bw(system: System) -> None:
    """Set ``max_bw`` (the fastest way of one channel) and ``total_bw`` (all of a GPU's links) for ``system.inter``."""
    system.max_bw = system.total_bw = 0.0
    if system.inter == 0 and system.count(GPU) == 1:
        system.max_bw = system.total_bw = LOC_BW
        return
    target = NET if system.inter else system.dev_type
    for dev in system.devs():
        row = system.rows[target][dev]
        if row is not None:
            fastest = [bw for bw, links in zip(row.bw, row.links, strict=True) if links]
            system.max_bw = max(system.max_bw, *fastest) if fastest else system.max_bw
        system.total_bw = max(system.total_bw, _total_bw(system, dev))


def _total_bw(system: System, dev: int) -> float:
    """All NVLinks together or the last PCI link, whichever is more."""
    nvlink = pci = 0.0
    for link in system.links[dev]:
        if system.link_type[link] == LINK_NVL:
            nvlink = as_float(nvlink + system.link_bw[link])
        elif system.link_type[link] == LINK_PCI:
            pci = system.link_bw[link]
    return max(pci, nvlink)


def worst_gpu_path(system: System) -> int:
    """Worst path type between two GPUs; PATH_LOC with one GPU."""
    worst = PATH_LOC
    for place, gpu in enumerate(system.of_type[GPU]):
        row = system.rows[GPU][gpu]
        if row is not None:
            worst = max([worst, *row.type[:place], *row.type[place + 1 :]])
    return worst


def all_nvlink(system: System) -> bool:
    """Whether all GPUs reach each other over NVLink or C2C, directly or by relay."""
    return worst_gpu_path(system) < PATH_PIX


def all_direct_nvlink(system: System) -> bool:
    """Whether all GPUs reach each other over NVLink without relay; a single GPU does from 2.30 on."""
    worst = worst_gpu_path(system)
    return worst <= PATH_NVL if system.has_dev else worst == PATH_NVL


def split_nvlink(system: System) -> bool:
    """Whether the GPUs form two groups of two or more by NVLink."""
    gpus = system.of_type[GPU]
    groups = list(range(len(gpus)))
    for place, gpu in enumerate(gpus):
        row = system.rows[GPU][gpu]
        for other in range(place + 1, len(gpus)):
            if row is not None and row.type[other] == PATH_NVL:
                groups[other] = groups[place]
    return sum(size > 1 for size in Counter(groups).values()) == 2


def gdr_modes(system: System) -> list[tuple[int, int, int, int]]:
    """Place of GPU, place of NET, mode for receive, mode for send, where GPUDirect RDMA is on for one of them."""
    gdr = Gdr(system, Local(system), _first_of_rank(system))
    modes = [
        (gpu, net, gdr.mode(gpu, net, read=False), gdr.mode(gpu, net, read=True))
        for gpu in range(system.count(GPU))
        for net in range(system.count(NET))
    ]
    return [mode for mode in modes if mode[2] != GDR_OFF or mode[3] != GDR_OFF]


def local_nets(system: System) -> list[list[int]]:
    """Per GPU the places of the NETs it uses, by channel until they repeat. Raises TopologyRefused without NETs."""
    local = Local(system)
    first = _first_of_rank(system)
    return [local.nets(first[gpu.rank]) for gpu in system.gpus()]


def p2p_channels_per_peer(system: System, comm: Comm) -> int:
    """Channels of a send or receive: the least over all ranks, seen from ``comm.rank``; not yet a power of 2."""
    first = _first_of_rank(system)
    own = first[comm.rank]
    ways = (_channels_to(system, own, first.get(rank)) for rank in range(comm.n_ranks) if first.get(rank) != own)
    return min(ways, default=MAX_CHANNELS)


def _channels_to(system: System, own: int, peer: int | None) -> int:
    if peer is None:
        return _net_channels(system, own)
    row = system.rows[GPU][system.of_type[GPU][peer]]
    nvlink = (PATH_NVL, PATH_NVB) if system.has_dev else (PATH_NVL,)
    if row is None or row.type[own] not in nvlink:
        return 2
    one = nvlink_bw(system.gpus()[own].sm)
    return 2 * max(1, int(as_float(row.bw[own] / one)))


def _net_channels(system: System, own: int) -> int:
    """A channel for each NIC that the GPU can fill, and enough for their bandwidth."""
    local = Local(system)
    node = system.of_type[GPU][own]
    to_cpu, to_net = system.rows[CPU][node], system.rows[NET][node]
    enough = to_cpu.bw[local.cpu(own)] if to_cpu is not None else 0.0
    nets, total = 0, 0.0
    for net in local.nets(own)[:MAX_CHANNELS]:
        total = as_float(total + (to_net.bw[net] if to_net is not None else 0.0))
        nets += 1
        if total >= enough:
            break
    return max(nets, -(-int(total) // P2P_CHANNEL_NET_GBPS))


def _first_of_rank(system: System) -> dict[int, int]:
    first: dict[int, int] = {}
    for place, gpu in enumerate(system.gpus()):
        first.setdefault(gpu.rank, place)
    return first
