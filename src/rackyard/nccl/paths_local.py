"""What is near what: the CPU of a GPU, the networks that a GPU uses, the GPU that serves a network.

Near means most bandwidth, then best path type. Places are places in ``System.of_type``.
Source: NCCL 2.30.7 and 2.29.7, ``src/graph/topo.cc`` and ``paths.cc``.
"""

from rackyard.nccl.linktypes import CPU, GPU, MAX_CHANNELS, NET, PATH_DIS, UNDEF
from rackyard.nccl.paths import refused, row_of
from rackyard.nccl.topology import System


class Local:
    """Nearness on one system. Answers are kept; whoever changes a path says so with `changed`."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.gpus = system.gpus()
        self._near: dict[tuple[int, int], list[int]] = {}
        self._cpu: dict[int, int] = {}
        self._cycle: dict[tuple[int, int], list[int]] = {}
        self._ids = {kind: [system.nodes[n].id for n in system.of_type[kind]] for kind in range(len(system.of_type))}

    def changed(self, node: int, node_type: int) -> None:
        """A path from ``node`` to a node of ``node_type`` is another one now."""
        self._near.pop((node, node_type), None)
        if node_type == GPU:
            self._cycle.clear()
        else:
            self._cycle.pop((node, node_type), None)

    def near(self, node: int, node_type: int) -> list[int]:
        """Places of the nearest nodes of a type; if nothing is connected, of all that are not."""
        key = (node, node_type)
        places = self._near.get(key)
        if places is None:
            places = self._near[key] = self._nearest(node, node_type)
        return places

    def _nearest(self, node: int, node_type: int) -> list[int]:
        row = self.system.rows[node_type][node]
        if row is None or not row.bw:
            return []
        most = max(max(row.bw), 0.0)
        places = [place for place, bw in enumerate(row.bw) if bw == most]
        best = min((row.type[place] for place in places), default=PATH_DIS)
        return [place for place in places if row.type[place] == best]

    def cpu(self, gpu: int) -> int:
        """Place of a GPU's CPU: the nearest with the fewest hops; before 2.30 simply that with the fewest hops."""
        place = self._cpu.get(gpu)
        if place is None:
            place = self._cpu[gpu] = self._find_cpu(gpu)
        return place

    def _find_cpu(self, gpu: int) -> int:
        node = self.gpus[gpu].index
        if self.system.has_dev:
            candidates = self.near(node, CPU)
        else:
            candidates = [place for place, links in enumerate(row_of(self.system, node, CPU).links) if links]
        row = self.system.rows[CPU][node]
        if row is not None and candidates:
            return min(candidates, key=lambda place: len(row.links[place]))
        raise refused(self.system, f"Error : could not find CPU close to GPU {gpu}", self.gpus[gpu].line)

    def nets(self, gpu: int, node_type: int = NET) -> list[int]:
        """Places of the networks (NET, GIN or RMA) that a GPU uses, by channel; channels beyond start over."""
        key = (self.gpus[gpu].index, node_type)
        cycle = self._cycle.get(key)
        if cycle is None:
            cycle = self._cycle[key] = self._find_cycle(gpu, node_type)
        return cycle

    def _find_cycle(self, gpu: int, node_type: int) -> list[int]:
        """GPUs that share networks start at different ones: by NVML number, with its bits mirrored if that fits."""
        nets = self.near(self.gpus[gpu].index, node_type)
        if not nets:
            message = f"Could not find any local path from gpu {gpu} to net."
            raise refused(self.system, message, self.gpus[gpu].line)
        sharing = len(self.near(self.system.of_type[node_type][nets[0]], GPU))
        if sharing == 0:
            raise refused(self.system, "", self.gpus[gpu].line, crashes=True)
        each = -(-len(nets) // sharing)
        start = self.gpus[gpu].dev
        if self.system.has_dev:
            start = abs(start) % sharing * (1 if start >= 0 else -1)
        if len(nets) & (len(nets) - 1) == 0:
            start = mirror_bits(start, len(nets))
        return [nets[(start + channel) % len(nets)] for channel in range(each)]

    def gpu(self, net: int) -> int:
        """Place of the GPU that serves a network: the first near one that uses it on the lowest channel; else UNDEF."""
        ids = self._ids[NET]
        wanted = ids[net]
        sharing = self.near(self.system.of_type[NET][ids.index(wanted)], GPU)
        cycles = [self.nets(gpu) for gpu in sharing]
        for channel in range(min(MAX_CHANNELS, max(map(len, cycles), default=0))):
            for gpu, cycle in zip(sharing, cycles, strict=True):
                if ids[cycle[channel % len(cycle)]] == wanted:
                    return gpu
        return UNDEF


def mirror_bits(value: int, power: int) -> int:
    """The bits of ``value`` below ``power`` (a power of two) in reverse order."""
    mirrored = 0
    low, high = 1, power >> 1
    while low < power:
        if value & low:
            mirrored |= high
        low, high = low << 1, high >> 1
    return mirrored
