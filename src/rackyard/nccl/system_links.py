"""Later passes over the tree: NVLinks, C2C links, and links between PCI switches.

Source: NCCL 2.30.7 and 2.29.7, ``src/graph/topo.cc``; bandwidth of one NVLink: ``topo.h``.
"""

from collections.abc import Callable, Iterator

from rackyard.nccl.cpus import prefix_of
from rackyard.nccl.element import Element
from rackyard.nccl.linktypes import CPU, CXB, DEV, GPU, LINK_C2C, LINK_LOC, LINK_NVL, LOC_BW, NVS, PCI, UNDEF
from rackyard.nccl.numbers import as_float, wrap_int
from rackyard.nccl.system_devices import PART_MASK, PCI_CLASSES, Devices, int_or
from rackyard.nccl.system_graph import bus_id
from rackyard.nccl.topology import DevNode, GpuNode, TopoNode

# GB/s of one NVLink each way by least compute capability; sm 86 has slower ones than its neighbours.
_NVLINK_GBPS = ((100, 40.1), (90, 20.6), (87, 20.0), (86, 12.0), (80, 20.0), (70, 20.0), (60, 18.0))
_NVLINK_GBPS_OLDER = 20.0

Found = tuple[Element, tuple[Element, Element], str | None, int]
"""An element, its parents (the nearest first), the bus id in force there, and the index of its host."""


def nvlink_bw(sm: int) -> float:
    """GB/s of one NVLink in one direction, for a compute capability times 10."""
    return as_float(next((bw for least, bw in _NVLINK_GBPS if sm >= least), _NVLINK_GBPS_OLDER))


class Links(Devices):
    """Adds the links that are not part of the PCI tree."""

    def add_links(self, root: Element) -> None:
        """All NVLinks, then all C2C links, then all links between switches, as NCCL does."""
        passes: tuple[tuple[str, Callable[[Found], None]], ...] = (
            ("nvlink", self._add_nvlink),
            ("c2c", self._add_c2c),
            ("pcilink", self._add_pcilink),
        )
        for name, add in passes:
            for found in self._elements(root, name):
                self.at = found[0]
                add(found)

    def _elements(self, root: Element, name: str) -> Iterator[Found]:
        """Elements of a name in file order."""
        waiting: list[Found] = [(root, (root, root), None, 0)]
        while waiting:
            element, parents, address, host = waiting.pop()
            if element.name == name:
                yield element, parents, address, host
                continue
            if element.name == "cpu":
                host = self.host(element)
            inner = element.get("busid")
            inner = address if inner is None else inner
            waiting += [(child, (element, parents[0]), inner, host) for child in reversed(element.children)]

    def _holder(self, found: Found, what: str) -> tuple[TopoNode, int] | None:
        """The node that a link below a gpu element starts from, and in how many parts its GPU is split.

        None for a gpu element that shares its device with an earlier one: the links are the same.
        """
        _, (gpu, above), text, host = found
        if self.version.has_dev_nodes and _shares_device(gpu, above):
            return None
        address = bus_id(text) if text is not None else self.refuse("", crashes=True)
        if not self.version.has_dev_nodes:
            node = self.find(GPU, host, address)
            if node is None:
                self.refuse(f"Add NVLink error : could not find GPU {(host << 56) + address:x}")
            return node, 1
        dev = self.find(DEV, host, self.device_address(gpu, address))
        if dev is None:
            self.refuse(f"Add {what} error : could not find DEV for GPU {text}")
        return dev, len(self.parts(dev.host, dev.local))

    def _add_nvlink(self, found: Found) -> None:
        element = found[0]
        held = self._holder(found, "NVLink")
        if held is None:
            return
        node, parts = held
        count = self.need_int(element, "count")
        target_type = prefix_of(self.need(element, "tclass"), PCI_CLASSES, PCI)
        sm = node.sm if isinstance(node, DevNode | GpuNode) else UNDEF
        bw = as_float(count * nvlink_bw(sm))
        if target_type == GPU:
            targets = self._targets(bus_id(self.need(element, "target")), node.host)
            for target in targets:
                self.connect(node, target, LINK_NVL, as_float(as_float(bw / len(targets)) / parts))
            return
        remote = self.local_cpu(node) if target_type == CPU else self._switch()
        if remote is not None:
            self.connect_both(node, remote, LINK_NVL, as_float(bw / parts))

    def _targets(self, address: int, host: int) -> list[TopoNode]:
        if self.version.has_dev_nodes:
            return list(self.parts(host, address))
        gpu = self.find(GPU, host, address)
        return [] if gpu is None else [gpu]

    def _switch(self) -> TopoNode:
        """All NVLink switches, of whatever host, are one node."""
        known = self.find(NVS, 0, 0)
        return known if known is not None else self.create(TopoNode, NVS, 0, 0)

    def _add_c2c(self, found: Found) -> None:
        element = found[0]
        held = self._holder(found, "C2c")
        if held is None:
            return
        node, parts = held
        count, mbps = self.need_int(element, "count"), self.need_int(element, "bw")
        bw = as_float(wrap_int(mbps * count) / 1000.0)
        cpu = self.local_cpu(node)
        if cpu is None:
            return
        if parts == 1:
            self.connect_both(node, cpu, LINK_C2C, bw)
            return
        # The parts of a split GPU share one C2C link, so they meet in a node that has its bandwidth once.
        local = node.local & ~PART_MASK
        bridge = self.find(CXB, node.host, local)
        if bridge is None:
            bridge = self.create(TopoNode, CXB, node.host, local)
            self.connect_both(bridge, cpu, LINK_C2C, bw)
        self.connect_both(node, bridge, LINK_C2C, bw)

    def _add_pcilink(self, found: Found) -> None:
        element, _, text, host = found
        address = bus_id(text) if text is not None else self.refuse("", crashes=True)
        switch = self.find(PCI, host, address)
        if switch is None:
            self.refuse(f"Add PCI Link error : could not find PCI SW {(host << 56) + address:x}")
        remote = self.find(PCI, host, bus_id(self.need(element, "target")))
        if remote is not None:
            self.connect(switch, remote, LINK_LOC, LOC_BW)


def _shares_device(gpu: Element, pci: Element) -> bool:
    """Whether an earlier gpu element of the same pci element names the same part of the GPU."""
    part = int_or(gpu, "mlopart", UNDEF)
    for other in pci.children:
        if other is gpu:
            break
        if other.name == "gpu" and int_or(other, "mlopart", UNDEF) == part:
            return True
    return False
