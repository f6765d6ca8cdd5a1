"""GPUDirect RDMA: whether a NIC reads and writes a GPU's memory directly, and over which relay a GPU reaches a NIC.

All settings are NCCL's defaults. Source: NCCL 2.30.7 and 2.29.7, ``src/graph/paths.cc``.
"""

from rackyard.nccl.linktypes import (
    CPU,
    GPU,
    NET,
    NVS,
    PATH_C2C,
    PATH_DIS,
    PATH_NVL,
    PATH_P2C,
    PATH_PXN,
    UNDEF,
)
from rackyard.nccl.p2p import rank_of_dev
from rackyard.nccl.paths import refused
from rackyard.nccl.paths_local import Local
from rackyard.nccl.topology import GpuNode, System

GDR_OFF, GDR_DEFAULT, GDR_PCI = 0, 1, 2
AMPERE = 80


class Gdr:
    """GPUDirect RDMA on one system, by places of GPUs and NETs."""

    def __init__(self, system: System, local: Local, first: dict[int, int]) -> None:
        """``first`` maps a rank to the place of the first GPU that has it."""
        self.system = system
        self.local = local
        self.first = first
        self.gpus = system.gpus()
        self.nets = system.nets()
        first_net: dict[int, int] = {}
        # NCCL asks by id, so of two networks with one id the first is meant.
        self.first_net = [first_net.setdefault(net.id, place) for place, net in enumerate(self.nets)]

    def mode(self, gpu: int, net: int, *, read: bool) -> int:
        """GDR_OFF, GDR_DEFAULT or GDR_PCI (GPU memory mapped over PCI although C2C is there). ``read`` is for sends."""
        gpu, net = self.first[self.gpus[gpu].rank], self.first_net[net]
        node = self.gpus[gpu]
        if self.nets[net].gdr == 0 or node.gdr == 0 or node.mlopart != UNDEF:
            return GDR_OFF
        if read and node.sm < AMPERE and not self._has_nvlink(gpu):
            return GDR_OFF
        distance = self._distance(gpu, net)
        if distance == PATH_PXN:
            gpu = self.first[self.relay_rank(gpu, net)]
            distance = self._distance(gpu, net)
        if distance > PATH_P2C:
            return GDR_OFF
        row = self.system.rows[CPU][self.gpus[gpu].index]
        over_c2c = row is not None and row.type[self.local.cpu(gpu)] == PATH_C2C
        return GDR_PCI if over_c2c and distance != PATH_P2C else GDR_DEFAULT

    def relay_rank(self, gpu: int, net: int) -> int:
        """Rank that sends to a NET for a GPU: that of the GPU behind the first hop by NVLink on a PXN path."""
        system = self.system
        row = system.rows[NET][self.gpus[gpu].index]
        if row is None or row.type[net] != PATH_PXN:
            return self.gpus[gpu].rank
        stops = [system.nodes[system.link_to[link]] for link in row.links[net]][1 if system.has_dev else 0 :]
        stop = next((node for node in stops if node.type != NVS), None)
        if stop is not None and not isinstance(stop, GpuNode) and stop.type == system.dev_type:
            below = [system.nodes[system.link_to[link]] for link in system.links[stop.index]]
            stop = next((node for node in below if isinstance(node, GpuNode)), None)
        if not isinstance(stop, GpuNode):
            message = (
                f"Could not find intermediate GPU between GPU rank {self.gpus[gpu].rank} and NIC {self.nets[net].id:x}"
            )
            raise refused(system, message, self.gpus[gpu].line)
        return rank_of_dev(system, self.gpus, stop.host, stop.dev) if system.has_dev else stop.rank

    def _distance(self, gpu: int, net: int) -> int:
        row = self.system.rows[NET][self.gpus[gpu].index]
        return row.type[net] if row is not None else PATH_DIS

    def _has_nvlink(self, gpu: int) -> bool:
        """Whether a GPU has another one by NVLink, or is alone."""
        row = self.system.rows[GPU][self.gpus[gpu].index]
        kinds = row.type if row is not None else []
        return len(self.gpus) == 1 or any(kind == PATH_NVL for other, kind in enumerate(kinds) if other != gpu)
