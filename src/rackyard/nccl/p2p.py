"""Whether two GPUs use peer-to-peer copies, and whether the network beats them.

All settings are NCCL's defaults; CUDA peer access and shared memory are taken to work within a host. Places are places
in ``System.of_type``. Source: NCCL 2.30.7 and 2.29.7, ``src/graph/paths.cc``, ``src/transport/p2p.cc`` and ``shm.cc``.
"""

from rackyard.nccl.cpus import is_amd
from rackyard.nccl.linktypes import GPU, NET, PATH_PXB, PATH_SYS
from rackyard.nccl.paths import refused, row_of
from rackyard.nccl.topology import Comm, DevNode, GpuNode, Peer, System

AMD_PAIR = 2


def same_fabric(one: Peer, other: Peer) -> bool:
    """Whether two ranks share an NVLink fabric and a clique; uuid 0 stands for no fabric."""
    return other.uuid != 0 and one.uuid == other.uuid and one.clique == other.clique


class P2p:
    """The transport checks on one system and communicator."""

    def __init__(self, system: System, comm: Comm) -> None:
        self.system = system
        self.mnnvl = comm.mnnvl
        self.gpus = system.gpus()
        self.first: dict[int, int] = {}
        for place, gpu in enumerate(self.gpus):
            self.first.setdefault(gpu.rank, place)
        self.peers = [comm.peers[gpu.rank] for gpu in self.gpus]
        self.level = self._level()
        self._net_bw: dict[int, float] = {}

    def _level(self) -> int:
        """Worst path type for peer-to-peer: below the host bridge, but anything between two GPUs of an AMD host."""
        return PATH_SYS if is_amd(self.system.cpus()) and len(self.system.devs()) <= AMD_PAIR else PATH_PXB

    def same_host(self, one: int, other: int) -> bool:
        """Whether two GPUs' ranks are on one host."""
        return self.peers[one].host == self.peers[other].host

    def check(self, one: int, other: int) -> bool:
        """Whether GPU ``one`` reaches GPU ``other`` peer-to-peer. Of GPUs with one rank the first is meant."""
        here, there = self.peers[one], self.peers[other]
        if here.host != there.host and not (self.mnnvl and same_fabric(here, there)):
            return False
        one, other = self.first[here.rank], self.first[there.rank]
        row = self.system.rows[GPU][self.gpus[one].index]
        self.relay(one, other)  # not used here, but NCCL looks for it and ends where there is none
        return row is not None and row.type[other] <= self.level

    def relay(self, one: int, other: int) -> int | None:
        """Place of the GPU that the NVLink path between two GPUs goes through, if it goes through one."""
        system = self.system
        row = system.rows[GPU][self.gpus[one].index]
        links = row.links[other] if row is not None else ()
        if not system.has_dev:
            between = system.nodes[system.link_to[links[0]]] if len(links) == 2 else None
            return system.of_type[GPU].index(between.index) if isinstance(between, GpuNode) else None
        between = system.nodes[system.link_to[links[1]]] if len(links) == 4 else None
        if not isinstance(between, DevNode):
            return None
        rank = rank_of_dev(system, self.gpus, between.host, between.dev)
        return self.first[rank]

    def can_connect(self, one: int, other: int) -> bool:
        """Whether GPU ``one`` sends to GPU ``other`` by peer-to-peer or shared memory, and not over the network."""
        if self.check(one, other):
            if self.relay(self.first[self.peers[one].rank], self.first[self.peers[other].rank]) is not None:
                return True
            if not self.net_is_faster(one, other):
                return True
        return self.same_host(one, other) and not self.net_is_faster(one, other)

    def net_is_faster(self, one: int, other: int) -> bool:
        """Whether both GPUs reach a network below the host bridge with more bandwidth than each other."""
        one, other = self.first[self.peers[one].rank], self.first[self.peers[other].rank]
        row = self.system.rows[GPU][self.gpus[one].index]
        bw = row.bw[other] if row is not None else 0.0
        here, there = self._best_net(one), self._best_net(other)
        return here > bw and there > bw

    def _best_net(self, gpu: int) -> float:
        known = self._net_bw.get(gpu)
        if known is None:
            known = self._net_bw[gpu] = self._find_best_net(self.gpus[gpu].index)
        return known

    def _find_best_net(self, gpu: int) -> float:
        if not self.system.count(NET):
            return 0.0
        row = row_of(self.system, gpu, NET)
        return max((bw for kind, bw in zip(row.type, row.bw, strict=True) if kind <= PATH_PXB), default=0.0)


def rank_of_dev(system: System, gpus: list[GpuNode], host: int, dev: int) -> int:
    """Rank of the first GPU of a host with an NVML number."""
    for gpu in gpus:
        if gpu.host == host and gpu.dev == dev:
            return gpu.rank
    raise refused(system, f"ncclTopoDevToRank could not find rank for nvml dev {dev} in systemId {host}")
