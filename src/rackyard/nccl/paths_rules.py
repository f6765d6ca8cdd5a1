"""All paths as NCCL uses them: best paths, then detours where GPUs or NICs can't reach each other directly.

The rules run in NCCL's order, because each looks at paths that the ones before have changed.
Source: NCCL 2.30.7 and 2.29.7, ``ncclTopoComputePaths`` in ``src/graph/paths.cc``.
"""

from rackyard.nccl.linktypes import CPU, GPU, NET, PATH_C2C, PATH_NET, PATH_NVL, PATH_P2C, PATH_PHB, PATH_PXN, UNDEF
from rackyard.nccl.p2p import P2p
from rackyard.nccl.paths import row_of, set_paths
from rackyard.nccl.paths_gdr import GDR_OFF, Gdr
from rackyard.nccl.paths_local import Local
from rackyard.nccl.topology import Comm, PathRow, System


def compute_paths(system: System, comm: Comm) -> None:
    """Fill ``system.rows`` and the nets' ``local_gpu``. Raises TopologyRefused (stage ``paths``)."""
    set_paths(system)
    rules = _Rules(system, comm)
    rules.gpu_to_gpu()
    rules.over_c2c()
    rules.gpu_to_net()
    for place, net in enumerate(system.nets()):
        net.local_gpu = rules.local.gpu(place)


def merged_type(one: int, other: int) -> int:
    """Type of two paths in a row: the worse one, but C2C and a host bridge make P2C."""
    worse, better = max(one, other), min(one, other)
    return PATH_P2C if worse == PATH_PHB and better == PATH_C2C else worse


class _Rules:
    def __init__(self, system: System, comm: Comm) -> None:
        self.system = system
        self.local = Local(system)
        self.p2p = P2p(system, comm)
        self.gdr = Gdr(system, self.local, self.p2p.first)
        self.gpus = system.of_type[GPU]
        self.nets = system.of_type[NET]

    def _row(self, node: int, node_type: int) -> PathRow:
        return row_of(self.system, node, node_type)

    def _detour(self, source: int, over: tuple[int, int], target: tuple[int, int]) -> None:
        """Send the path from a node to a target over another node; over a GPU it is PXN."""
        (over_type, over_place), (target_type, target_place) = over, target
        first = self._row(source, over_type)
        then = self._row(self.system.of_type[over_type][over_place], target_type)
        row = self._row(source, target_type)
        kind = merged_type(first.type[over_place], then.type[target_place])
        row.type[target_place] = PATH_PXN if over_type == GPU else kind
        row.bw[target_place] = min(first.bw[over_place], then.bw[target_place])
        row.links[target_place] = first.links[over_place] + then.links[target_place]
        self.local.changed(source, target_type)

    def gpu_to_gpu(self) -> None:
        """Without peer-to-peer the path goes over the target's CPU; without shared memory too, it is a network path."""
        for target in range(len(self.gpus)):
            for source, node in enumerate(self.gpus):
                if not self.p2p.check(source, target):
                    self._detour(node, (CPU, self.local.cpu(target)), (GPU, target))
            for source, node in enumerate(self.gpus):
                if source != target and not self.p2p.can_connect(source, target):
                    self._row(node, GPU).type[target] = PATH_NET
                    self.local.changed(node, GPU)

    def over_c2c(self) -> None:
        """A GPU reaches its nearest NICs over C2C and the CPU, where both are on that CPU."""
        for place, gpu in enumerate(self.gpus):
            cpu = self.local.cpu(place)
            for net in self.local.near(gpu, NET):
                node = self.nets[net]
                if merged_type(self._row(gpu, CPU).type[cpu], self._row(node, CPU).type[cpu]) == PATH_P2C:
                    self._at_most_p2c(gpu, NET, net)
                    self._at_most_p2c(node, GPU, place)

    def _at_most_p2c(self, source: int, node_type: int, place: int) -> None:
        row = self._row(source, node_type)
        row.type[place] = min(PATH_P2C, row.type[place])
        self.local.changed(source, node_type)

    def gpu_to_net(self) -> None:
        """PXN where another GPU of the host serves the NIC better, and over the CPU where GPUDirect RDMA is off."""
        for net, net_node in enumerate(self.nets):
            for gpu, node in enumerate(self.gpus):
                relay = self.local.gpu(net)
                if relay not in (gpu, UNDEF) and self._prefers_relay(gpu, relay, net):
                    self._detour(node, (GPU, relay), (NET, net))
                row = self._row(node, NET)
                if row.type[net] < PATH_PHB and self.gdr.mode(gpu, net, read=False) == GDR_OFF:
                    cpu = (CPU, self.local.cpu(gpu))
                    self._detour(net_node, cpu, (GPU, gpu))
                    self._detour(node, cpu, (NET, net))

    def _prefers_relay(self, gpu: int, relay: int, net: int) -> bool:
        """Whether the NIC's own GPU is reached by NVLink and has a faster way to it, or one that avoids the CPU."""
        system = self.system
        node, peer = self.gpus[gpu], self.gpus[relay]
        if system.has_dev and self.gdr.mode(relay, net, read=True) == GDR_OFF:
            return False
        own, its = self._row(node, NET), self._row(peer, NET)
        return (
            its.type[net] <= PATH_P2C
            and self._row(peer, GPU).type[gpu] <= PATH_NVL
            and system.nodes[peer].host == system.nodes[node].host
            and (its.bw[net] > own.bw[net] or own.type[net] > PATH_PXN)
        )
