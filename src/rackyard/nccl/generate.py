"""Writes the topology file of one node: the way from CPUs over bridges to GPUs and NICs, and by default nothing else.

NCCL then still asks the GPUs for their links and the network plugin for its devices, so a link that goes down shows
(advice of the NCCL maintainer in nccl-tests#86). Links are written only on request.
"""

from collections.abc import Iterable

from rackyard.errors import UsageError
from rackyard.fabric.model import Cpu, Gpu, Node
from rackyard.nccl.cpus import VENDORS
from rackyard.nccl.element import Element
from rackyard.nccl.generatehost import C2C_LINKS, COMPUTE, affinity
from rackyard.nccl.generatepci import bus_id, link_of, way_up
from rackyard.nccl.loadfill import HIDDEN_TARGET, SWITCH_CLASS
from rackyard.nccl.version import Version
from rackyard.nccl.xmlwrite import LONGEST_VALUE, write

_ARCHES = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "arm64": "arm64",
    "aarch64": "arm64",
    "ppc64": "ppc64",
    "ppc64le": "ppc64",
}
_NO_TREE = "<!-- No PCI tree was known: bridges are left out, and all devices of a NUMA node are equally near. -->\n"


def generate(node: Node, *, pin_links: bool = False) -> str:
    """The file's text, for every NCCL from 2.18 on. `pin_links` writes GPU number, NVLinks and C2C links too.

    Raises UsageError for a node whose GPUs have no PCI address, or with more devices than NCCL reads.
    """
    root = system(node, pin_links=pin_links)
    most = Version(2, 21).file_nodes - 1
    count = sum(1 for _ in root.walk())
    room = count + 2 * len(node.nics) + (0 if pin_links else 3)
    if room > most:
        why = f"{count} elements, and NCCL adds {room - count}; it has room for {most}"
        raise UsageError(f"node {node.name} has too many devices for a topology file", why=why)
    return ("" if node.pci else _NO_TREE) + write(root)


def system(node: Node, *, pin_links: bool = False) -> Element:
    """The tree of the file."""
    root = Element("system", {"version": "1"})
    cpus: dict[int, Element] = {}
    pcis: dict[str, Element] = {}
    for address, numa, pci_class in _devices(node):
        parent = None
        for device in way_up(node, address, numa, pci_class):
            busid = bus_id(device.bdf)
            element = pcis.get(busid)
            if element is None:
                element = Element("pci", {"busid": busid, **link_of(node, device)})
                pcis[busid] = element
                (parent or _cpu(root, cpus, node, device.numa)).children.append(element)
            parent = element
    root.children.sort(key=lambda cpu: int(cpu.attrs["numaid"]))
    if pin_links:
        for gpu in node.gpus:
            pcis[bus_id(gpu.pci)].children.append(_gpu(gpu))
    return root


def _devices(node: Node) -> Iterable[tuple[str, int, str]]:
    """Bus id, NUMA node and assumed class of each GPU and NIC. NICs without an address are left for NCCL to find."""
    if not node.gpus:
        raise UsageError(f"node {node.name} has no GPU", why="NCCL needs no topology file there")
    for gpu in node.gpus:
        if not gpu.pci:
            fix = "read nvidia-smi or sysfs of the node first"
            raise UsageError(f"GPU {gpu.index} of node {node.name} has no PCI address", fix=fix)
        yield bus_id(gpu.pci), gpu.numa, "0x030200"
    for nic in node.nics:
        if nic.pci:
            yield bus_id(nic.pci), nic.numa, "0x020000"


def _cpu(root: Element, cpus: dict[int, Element], node: Node, numa: int) -> Element:
    # A machine with one NUMA node says -1, which NCCL would take for an unknown CPU.
    numa = max(0, numa)
    if numa not in cpus:
        known = next((cpu for cpu in node.cpus if cpu.numa == numa), None)
        cpus[numa] = Element("cpu", {"numaid": str(numa), **(_cpu_attributes(known) if known else {})})
        root.children.append(cpus[numa])
    return cpus[numa]


def _cpu_attributes(cpu: Cpu) -> dict[str, str]:
    """What is known, in NCCL's spelling. What is left out, NCCL reads from the machine."""
    attrs: dict[str, str] = {}
    mask = affinity(cpu.cpus)
    if mask and len(mask) <= LONGEST_VALUE:
        attrs["affinity"] = mask
    arch = _ARCHES.get(cpu.arch)
    if arch is None:
        return attrs
    attrs["arch"] = arch
    if arch == "x86_64" and cpu.vendor in VENDORS:
        attrs["vendor"] = cpu.vendor
        if cpu.family >= 0 and cpu.model >= 0:
            attrs |= {"familyid": str(cpu.family), "modelid": str(cpu.model)}
    return attrs


def _gpu(gpu: Gpu) -> Element:
    attrs = {"dev": str(gpu.index)}
    if gpu.kind in COMPUTE:
        attrs["sm"] = str(COMPUTE[gpu.kind])
    element = Element("gpu", attrs)
    if gpu.nvlinks > 0:
        link = {"target": HIDDEN_TARGET, "count": str(gpu.nvlinks), "tclass": SWITCH_CLASS}
        element.children.append(Element("nvlink", link))
    if gpu.kind in C2C_LINKS:
        bandwidth, count = C2C_LINKS[gpu.kind]
        element.children.append(Element("c2c", {"bw": str(bandwidth), "count": str(count)}))
    return element
