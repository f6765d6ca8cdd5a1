"""What all searches of one communicator share: GPUs, nets, and the order in which neighbours are tried.

Source of the rules: NCCL 2.30.7 and 2.29.7, `src/graph/search.cc`.
"""

from rackyard.nccl.graphs import PATTERN_BALANCED_TREE, PATTERN_RING
from rackyard.nccl.linktypes import GPU, LINK_PCI, NET, NVS, PATH_DIS
from rackyard.nccl.search_board import Board
from rackyard.nccl.search_nets import NetChoice
from rackyard.nccl.topology import GpuNode, System


class Arena:
    """GPUs and nets by their places, the board, and lists that depend on paths only."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.board = Board(system)
        self.nets = NetChoice(system)
        self.net_nodes = system.nets()
        self.n_gpus = system.count(GPU)
        self.has_switch = system.count(NVS) > 0
        self.one_latency = len({net.latency for net in self.net_nodes}) < 2
        # 2.30 was the first to look at rails and planes of nets.
        self.has_rails = system.has_dev
        ranks = [gpu.rank for gpu in system.gpus()]
        self.first_of_rank = [ranks.index(rank) for rank in ranks]
        ports = [(net.asic, net.port) for net in self.net_nodes]
        self.same_port = [[place for place, other in enumerate(ports) if other == port] for port in ports]
        self.intra_types = self._types(((GPU, GPU), (GPU, NVS), (NVS, GPU)))
        self.inter_types = self._types(((GPU, NET), (NET, GPU)))
        self._onward: dict[tuple[int, int], list[int]] = {}
        self._pci_links = [self._find_pci_links(gpu) for gpu in system.gpus()]

    def _types(self, pairs: tuple[tuple[int, int], ...]) -> list[int]:
        """The path types that occur between nodes of the given types, in order."""
        found: set[int] = set()
        for source_type, target_type in pairs:
            for number in self.system.of_type[source_type]:
                row = self.system.rows[target_type][number]
                found.update(row.type if row else ())
        return sorted(found - {PATH_DIS})

    def onward(self, gpu: int, pattern: int) -> list[int]:
        """The GPUs to go on to from a GPU, best first, where nets do not count.

        With NVSwitches only the neighbours in the GPUs' order are tried, so that each GPU has few peers.
        """
        key = (gpu, pattern if self.has_switch else -1)
        found = self._onward.get(key)
        if found is None:
            found = self._neighbours(gpu, pattern) if self.has_switch else self._ranked(gpu)
            self._onward[key] = found
        return found

    def onward_with_net(self, gpu: int, net: int, used: int) -> list[int]:
        """The GPUs not in the mask ``used``, those nearest to a net first. The order follows the PCI bandwidth left."""
        row = self.system.rows[GPU][self.system.of_type[NET][net]]
        others = [on for on in self.onward(gpu, -1) if not used >> on & 1]
        if row is None:
            return others
        return sorted(others, key=lambda on: (-int(row.bw[on]), -self._pci_bw(on), len(row.links[on])))

    def all_alike(self, gpu: int, others: list[int]) -> bool:
        """Whether all these GPUs are equally far from a GPU, in whole GB/s and hops."""
        row = self.system.rows[GPU][self.system.of_type[GPU][gpu]]
        return row is None or len({(int(row.bw[on]), len(row.links[on])) for on in others}) < 2

    def _neighbours(self, gpu: int, pattern: int) -> list[int]:
        before, after = (gpu - 1) % self.n_gpus, (gpu + 1) % self.n_gpus
        if pattern == PATTERN_RING:
            both = [before, after]
        elif pattern == PATTERN_BALANCED_TREE:
            both = [after, before]
        else:
            both = [after]
        row = self.system.rows[GPU][self.system.of_type[GPU][gpu]]
        return [on for on in dict.fromkeys(both) if row is not None and row.links[on]]

    def _ranked(self, gpu: int) -> list[int]:
        row = self.system.rows[GPU][self.system.of_type[GPU][gpu]]
        if row is None:
            return []
        around = [(gpu + distance) % self.n_gpus for distance in range(1, self.n_gpus)]
        return sorted((on for on in around if row.links[on]), key=lambda on: (-int(row.bw[on]), len(row.links[on])))

    def _pci_bw(self, gpu: int) -> int:
        """Whole GB/s left on the PCI link below a GPU, the lesser of both directions; -1 without one."""
        pair = self._pci_links[gpu]
        return -1 if pair is None else int(min(self.board.left[pair[0]], self.board.left[pair[1]]))

    def _find_pci_links(self, gpu: GpuNode) -> tuple[int, int] | None:
        system = self.system
        dev = gpu.parent if system.has_dev else gpu.index
        for link in system.links[dev]:
            if system.link_type[link] != LINK_PCI:
                continue
            for back in system.links[system.link_to[link]]:
                if system.link_to[back] == dev:
                    return link, back
        return None
