"""Fills a rank's tree with what NCCL finds on the host: only what the file leaves out, and only on the way up."""

from rackyard.nccl.element import Element
from rackyard.nccl.hardware import Hardware, HostGpu
from rackyard.nccl.numbers import c_int
from rackyard.nccl.version import Version
from rackyard.nccl.xmlrefused import TopologyRefused
from rackyard.nccl.xmltoken import SLOTS

HIDDEN_TARGET = "fffffff:ffff:ff"
"""The bus id that NVML gives for a switch that can't be seen."""
SWITCH_CLASS = "0x068000"
GPU_CLASS = "0x03"
NET_CLASS = "0x02"
STAGE = "get_system_per_rank"
_SPEEDS = ("", "2.5", "5.0", "8.0", "16.0", "32.0", "64.0")
_LINKS_BY_SM = ((60, 0), (70, 4), (80, 6), (90, 12))
_MOST_LINKS = 18


class Tree:
    """A tree that grows. `order` is the order in which NCCL finds elements: the file's, then as they were added."""

    def __init__(self, root: Element, hardware: Hardware, version: Version) -> None:
        self.root = root
        self.hardware = hardware
        self.version = version
        self.host_hash = f"{hardware.host_hash:#x}" if hardware.host_hash else "0"
        self.order = list(root.walk())
        self.parents = {id(child): parent for child, parent in root.walk_with_parents()}

    def fill_gpu(self, place: int, rank: int) -> None:
        """Finds or adds the GPU, completes the way up to its cpu, and gives it its rank."""
        gpu = self.hardware.gpus[place]
        pci = self._pci(gpu.busid)
        self._put_new(pci, "class", GPU_CLASS)
        self._complete(pci)
        element = pci.child("gpu") or self._add(pci, "gpu")
        self._put_new(element, "dev", str(place))
        if c_int(element.attrs["dev"]) == -1:
            return
        self._put_new(element, "sm", str(gpu.sm))
        self._links(element, gpu)
        self.put(element, "keep", "1")
        self.put(element, "rank", str(rank))
        self._put_new(element, "gdr", str(int(gpu.gdr)))
        if self.version.knows_mlopart:
            self.put(element, "mlopart", "-1")

    def fill_net(self, dev: int) -> None:
        """Finds the net by its name, or adds it where its PCI device is; the file's values stay."""
        device = self.hardware.nets[dev]
        net = next((each for each in self.order if each.name == "net" and each.get("name") == device.name), None)
        if net is None:
            parent = self._net_parent(device.busid)
            nic = parent.child("nic") or self._add(parent, "nic")
            net = self._add(nic, "net")
            self.put(net, "name", device.name)
        self.put(net, "keep", "1")
        self.put(net, "dev", str(dev))
        self._put_new(net, "latency", str(device.latency))
        self._put_new(net, "speed", str(device.speed_mbps))
        self._put_new(net, "port", str(device.port))
        self._put_new(net, "guid", f"0x{device.guid:x}")
        self._put_new(net, "maxconn", str(device.max_connections))
        self._put_new(net, "gdr", str(int(device.gdr)))
        if self.version.marks_nets:
            self.put(net, "net", "1")

    def put(self, element: Element, key: str, value: str) -> None:
        """Sets an attribute. NCCL has room for one more than it reads from a file, and does not check."""
        if key not in element.attrs and len(element.attrs) + len(element.repeats) > SLOTS:
            fix = f"leave at most {SLOTS - 4} attributes on <{element.name}>"
            raise TopologyRefused("", stage=STAGE, crashes=True, fix=fix)
        element.attrs[key] = value

    def _put_new(self, element: Element, key: str, value: str) -> None:
        if key not in element.attrs:
            self.put(element, key, value)

    def _add(self, parent: Element | None, name: str) -> Element:
        limit = self.version.file_nodes
        if len(self.order) == limit:
            message = f"Error : too many XML nodes (max {limit})"
            raise TopologyRefused(message, stage=STAGE, fix="drop what no GPU and NIC needs from the file")
        element = Element(name)
        self.order.append(element)
        if parent is not None:
            self._room(parent, "Error : too many XML subnodes (max {limit})")
            parent.children.append(element)
            self.parents[id(element)] = parent
        return element

    def _room(self, parent: Element, message: str) -> None:
        limit = self.version.max_children
        if len(parent.children) == limit:
            text = message.format(limit=limit)
            raise TopologyRefused(text, stage=STAGE, fix=f"at most {limit} children under one element")

    def _pci(self, busid: str) -> Element:
        for element in self.order:
            if element.name == "pci" and element.get("busid") == busid:
                return element
        pci = self._add(None, "pci")
        self.put(pci, "busid", busid)
        return pci

    def _net_parent(self, busid: str | None) -> Element:
        if busid is not None:
            pci = self._pci(busid)
            self._put_new(pci, "class", NET_CLASS)
            self._complete(pci)
            return pci
        first = next((each for each in self.order if each.name == "cpu"), None)
        return first or self._new_cpu("0")

    def _new_cpu(self, numaid: str) -> Element:
        cpu = self._add(self.root, "cpu")
        self.put(cpu, "host_hash", self.host_hash)
        self.put(cpu, "numaid", numaid)
        return cpu

    def _complete(self, pci: Element) -> None:
        """Speed and width of this device and of all above it, then the cpu; a device of no cpu goes to cpu -1."""
        element: Element | None = pci
        while element is not None and element.name == "pci":
            self._complete_link(element)
            if id(element) not in self.parents:
                self._to_unknown_cpu(element)
            element = self.parents.get(id(element))
        if element is not None and element.name == "cpu":
            self._complete_cpu(element)

    def _complete_link(self, pci: Element) -> None:
        gpu = None
        if (pci.get("class") or GPU_CLASS).startswith(GPU_CLASS):
            busid = (pci.get("busid") or "").lower()
            gpu = next((each for each in self.hardware.gpus if each.busid.lower() == busid), None)
        if "link_speed" not in pci.attrs:
            self._put_speed(pci, gpu)
        if "link_width" not in pci.attrs:
            unknown = "16" if gpu and self.version.asks_nvml_for_pci else ""
            self.put(pci, "link_width", str(gpu.pci_width) if gpu and gpu.pci_width > 0 else unknown)

    def _put_speed(self, pci: Element, gpu: HostGpu | None) -> None:
        if gpu is None:
            self.put(pci, "link_speed", "")
        elif gpu.pci_generation <= 0:
            # The text lacks " PCIe" and so counts as Gen3 later on.
            self.put(pci, "link_speed", "16.0 GT/s" if self.version.asks_nvml_for_pci else "")
        elif gpu.pci_generation < len(_SPEEDS):
            self.put(pci, "link_speed", f"{_SPEEDS[gpu.pci_generation]} GT/s PCIe")

    def _to_unknown_cpu(self, pci: Element) -> None:
        cpu = next((each for each in self.order if each.name == "cpu" and each.get("numaid") == "-1"), None)
        if cpu is None:
            cpu = self._new_cpu("-1")
            self._complete_cpu(cpu)
        self._room(cpu, "Error : XML parser is limited to {limit} subnodes")
        busid = pci.attrs["busid"]
        later = (place for place, other in enumerate(cpu.children) if busid < (other.get("busid") or ""))
        cpu.children.insert(next(later, len(cpu.children)), pci)
        self.parents[id(pci)] = cpu

    def _complete_cpu(self, cpu: Element) -> None:
        host = self.hardware.cpu
        if "affinity" not in cpu.attrs:
            numaid = cpu.get("numaid")
            if numaid is None:
                message = "GetXmlFromCpu : could not find CPU numa ID."
                raise TopologyRefused(message, stage=STAGE, fix='give every cpu a numaid="N"')
            self.put(cpu, "affinity", host.affinity.get(numaid, ""))
        self._put_new(cpu, "arch", host.arch)
        if host.vendor is not None:
            self._put_new(cpu, "vendor", host.vendor)
        if host.family is not None and "familyid" not in cpu.attrs:
            self.put(cpu, "familyid", str(host.family))
            self.put(cpu, "modelid", str(host.model or 0))

    def _links(self, element: Element, gpu: HostGpu) -> None:
        """NVLinks and C2C links. What the file gives, if only one, hides what the hardware has."""
        sm = c_int(element.attrs["sm"])
        if element.child("nvlink") is None:
            count = min(gpu.nvlinks, next((most for below, most in _LINKS_BY_SM if sm < below), _MOST_LINKS))
            if count > 0:
                link = self._add(element, "nvlink")
                self.put(link, "target", (gpu.target or HIDDEN_TARGET).lower())
                self.put(link, "count", str(count))
                self._put_class(link)
        if self.version.knows_element("c2c") and element.child("c2c") is None and sm >= 90 and gpu.c2c_links > 0:
            link = self._add(element, "c2c")
            self.put(link, "bw", str(gpu.c2c_mbps))
            self.put(link, "count", str(gpu.c2c_links))
        if self.version.fills_tclass:
            for link in element.children_named("nvlink"):
                self._put_class(link)

    def _put_class(self, link: Element) -> None:
        if "tclass" in link.attrs:
            return
        if "target" not in link.attrs:
            raise TopologyRefused("", stage=STAGE, crashes=True, fix="give every nvlink a target, count and tclass")
        self.put(link, "tclass", self.hardware.pci_classes.get(link.attrs["target"], SWITCH_CLASS))
