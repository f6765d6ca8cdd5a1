"""First pass over the tree: CPUs, PCI switches, GPUs with their devices, NICs and networks.

Source: NCCL 2.30.7 and 2.29.7, ``src/graph/topo.cc``.
"""

from rackyard.nccl.cpus import identify, prefix_of
from rackyard.nccl.element import Element
from rackyard.nccl.linktypes import (
    CPU,
    DEV,
    GIN,
    GPU,
    LINK_LOC,
    LINK_NET,
    LINK_PCI,
    LOC_BW,
    MAX_CHANNELS,
    NET,
    NIC,
    NVS,
    PCI,
    RMA,
    UNDEF,
)
from rackyard.nccl.numbers import as_float, c_float, c_int, c_long, c_unsigned_long, wrap_int
from rackyard.nccl.system_graph import Growing, bus_id
from rackyard.nccl.topology import CpuNode, DevNode, GpuNode, NetNode, PciNode, TopoNode

# The class decides by prefix what a pci element is; CX-8's data-direct function counts as a bridge.
PCI_CLASSES = {"0x060400": PCI, "0x080100": PCI, "0x068000": NVS, "0x068001": CPU, "0x03": GPU, "0x02": NIC}
# Hundreds of Mb/s a lane, by prefix; anything else counts as Gen3.
PCI_LANE = {
    "2.5 GT/s": 15,
    "5 GT/s": 30,
    "8 GT/s": 60,
    "16 GT/s": 120,
    "32 GT/s": 240,
    "5.0 GT/s PCIe": 30,
    "8.0 GT/s PCIe": 60,
    "16.0 GT/s PCIe": 120,
    "32.0 GT/s PCIe": 240,
    "64.0 GT/s PCIe": 480,
}
PCI_LANE_UNKNOWN = 60
PARTS_OF_A_GPU = 2
PART_MASK = 0x3
PART_LOC_BW = 2618.0
DEFAULT_NET_MBPS = 10000


def int_or(element: Element, key: str, default: int) -> int:
    """An attribute as a C int, or a default where it is missing."""
    text = element.get(key)
    return default if text is None else c_int(text)


def device_key(pci: Element) -> int:
    """Vendor, device and subsystem ids packed into 64 bits."""
    keys = (("vendor", 48), ("device", 32), ("subsystem_vendor", 16), ("subsystem_device", 0))
    return sum(c_long(pci.get(key) or "") << shift for key, shift in keys) % 2**64


class Devices(Growing):
    """Reads what has a place in the PCI tree."""

    def add_cpu(self, element: Element) -> None:
        """A cpu element with everything below it, except links."""
        self.at = element
        numa = self.need_int(element, "numaid")
        host = self.host(element)
        cpu = self.create(CpuNode, CPU, host, numa)
        identify(cpu, element, self.need, self.need_int, amd_family=self.version.needs_amd_family)
        for child in element.children:
            if child.name == "pci":
                self._add_pci_tree(child, cpu)
            elif child.name == "nic":
                self.at = child
                nic = self.find(NIC, host, 0)
                if nic is None:
                    nic = self.create(TopoNode, NIC, host, 0)
                    self.connect_both(cpu, nic, LINK_PCI, LOC_BW)
                self._add_nets(child, nic, "")

    def _add_pci_tree(self, top: Element, cpu: CpuNode) -> None:
        """A pci element and all below. A switch is linked to what is above it only after what is below it."""
        waiting: list[tuple[Element, TopoNode, TopoNode | None]] = [(top, cpu, None)]
        while waiting:
            element, above, done = waiting.pop()
            self.at = element
            if done is not None:
                self.connect_both(done, above, LINK_PCI, self._pci_bw(element))
                continue
            node = self._add_pci(element, above)
            if node is None:
                continue
            waiting.append((element, above, node))
            if isinstance(node, PciNode):
                inner = [child for child in element.children if child.name != "pcilink"]
                waiting += [(child, node, None) for child in reversed(inner)]

    def _add_pci(self, element: Element, above: TopoNode) -> TopoNode | None:
        """One pci element; the node that is still to be linked to the one above, if any."""
        kind = prefix_of(self.need(element, "class"), PCI_CLASSES, PCI)
        busid = self.need(element, "busid")
        address = bus_id(busid)
        gpus = [child for child in element.children if child.name == "gpu"]
        node: TopoNode | None = None
        if self.version.has_dev_nodes:
            bw = self._pci_bw(element)
            for gpu in gpus:
                if gpu.get("rank") is None:
                    return None
                self._add_gpu_below_dev(element, gpu, above, bw)
        elif gpus:
            if gpus[0].get("rank") is None:
                return None
            kind = GPU
            node = self._add_gpu(gpus[0], self.create(GpuNode, GPU, above.host, address))
        self.at = element
        nic = element.child("nic")
        if nic is not None:
            known = self.find(NIC, above.host, address)
            if known is None:
                known = node = self.create(TopoNode, NIC, above.host, address)
            self._add_nets(nic, known, f"pci {busid}")
        elif kind == PCI:
            switch = node = self.create(PciNode, PCI, above.host, address)
            switch.device = device_key(element)
        return node

    def _pci_bw(self, element: Element) -> float:
        """GB/s of a PCI link: lanes times speed; no lanes means that the machine did not say, and counts as 16."""
        width = self.need_int(element, "link_width") or 16
        lane = prefix_of(self.need(element, "link_speed"), PCI_LANE, PCI_LANE_UNKNOWN)
        return as_float(wrap_int(width * lane) / 80.0)

    def _add_gpu(self, element: Element, gpu: GpuNode) -> GpuNode:
        first = ("rank", "sm") if self.version.has_dev_nodes else ("sm", "rank")
        values = {key: self.need_int(element, key) for key in (*first, "dev", "gdr")}
        gpu.rank, gpu.sm, gpu.dev, gpu.gdr = values["rank"], values["sm"], values["dev"], values["gdr"]
        if self.version.knows_mlopart:
            gpu.mlopart = int_or(element, "mlopart", UNDEF)
        return gpu

    def device_address(self, gpu: Element, address: int) -> int:
        """Bus id of the DEV node of a gpu element: the two lowest bits say which part of a split GPU it is."""
        if address & PART_MASK:
            self.refuse(
                f"BusId 0x{address % 2**64:x} has non-zero bits in MLOPart mask 0x{PART_MASK:x},"
                " cannot encode MLOPart partition index without collision"
            )
        part = int_or(gpu, "mlopart", UNDEF)
        self.need(gpu, "sm")
        return address if part == UNDEF else address | (part << 1 | 1) & PART_MASK

    def parts(self, host: int, address: int) -> list[DevNode]:
        """The DEV nodes of one physical GPU."""
        nodes = [self.system.nodes[number] for number in self.system.of_type[DEV]]
        wanted = address & ~PART_MASK
        same = [n for n in nodes if isinstance(n, DevNode) and n.host == host and n.local & ~PART_MASK == wanted]
        if len(same) > PARTS_OF_A_GPU:
            self.refuse(
                f"ncclTopoGetDevNodes : too many DEV nodes for busId {(host << 56) + address:x} (max {PARTS_OF_A_GPU})"
            )
        return same

    def _add_gpu_below_dev(self, pci: Element, gpu: Element, above: TopoNode, bw: float) -> None:
        self.at = gpu
        local = self.device_address(gpu, bus_id(pci.get("busid") or ""))
        part = int_or(gpu, "mlopart", UNDEF)
        if part >= PARTS_OF_A_GPU:
            self.refuse(f"MLOPart index {part} out of range (max {PARTS_OF_A_GPU - 1})")
        dev = self.find(DEV, above.host, local)
        if not isinstance(dev, DevNode):
            dev = self.create(DevNode, DEV, above.host, local)
            dev.device = device_key(pci)
            dev.sm = self.need_int(gpu, "sm")
            dev.dev = self.need_int(gpu, "dev")
            self.connect_both(dev, above, LINK_PCI, bw)
            for other in self.parts(dev.host, dev.local):
                if other is not dev:
                    self.connect_both(dev, other, LINK_LOC, PART_LOC_BW)
        node = self.create(GpuNode, GPU, above.host, dev.n_gpus << 40 | local & (1 << 40) - 1)
        self._add_gpu(gpu, node).parent = dev.index
        self.connect_both(dev, node, LINK_LOC, LOC_BW)
        dev.n_gpus += 1

    def _add_nets(self, nic: Element, node: TopoNode, function: str) -> None:
        """The net elements of a nic: each is a NET unless it says otherwise, and a GIN or RMA if it says so."""
        kinds = ((NET, "net", 1), (GIN, "gin", 0), (RMA, "rma", 0))
        for net in nic.children:
            if net.name != "net" or net.get("dev") is None:
                continue
            self.at = net
            for node_type, key, default in kinds:
                if int_or(net, key, default) and (node_type != RMA or self.version.has_dev_nodes):
                    self._add_net(net, node_type, node, function)

    def _add_net(self, element: Element, node_type: int, nic: TopoNode, function: str) -> None:
        dev = c_int(element.get("dev") or "")
        net = self.create(NetNode, node_type, nic.host, dev)
        mbps = int_or(element, "speed", 0)
        net.dev = dev
        net.bw = as_float((mbps if mbps > 0 else DEFAULT_NET_MBPS) / 8000.0)
        if node_type == NET:
            guid = element.get("guid")
            net.asic = c_unsigned_long(guid, 16) if guid is not None else net.id
            net.latency = c_float(element.get("latency") or "")
            net.port = int_or(element, "port", 0)
            net.gdr = int_or(element, "gdr", 0)
            net.max_channels = int_or(element, "maxconn", MAX_CHANNELS)
            net.coll = int_or(element, "coll", 0)
            if self.version.has_dev_nodes:
                net.rail = _int16(int_or(element, "rail", UNDEF))
                net.plane = _int16(int_or(element, "plane", UNDEF))
            net.pci_key = function or f"guid {net.asic:x}"
        self.connect_both(nic, net, LINK_NET, net.bw)


def _int16(number: int) -> int:
    return (number + 2**15) % 2**16 - 2**15
