"""What NCCL would find on a node: the hardware for `load`, as far as the site's model knows it."""

import hashlib
import re

from rackyard.errors import UsageError
from rackyard.fabric.model import Gpu, Nic, Node
from rackyard.fabric.readers.sysfs_values import generation
from rackyard.nccl.generatepci import bus_id
from rackyard.nccl.hardware import Hardware, HostCpu, HostGpu, HostNet

COMPUTE = {"A100": 80, "H100": 90, "H200": 90, "GH200": 90, "B200": 100, "GB200": 100, "B300": 103, "GB300": 103}
"""Ten times the compute capability (CUDA C Programming Guide; GB300 as in the published dump)."""
C2C_LINKS = {"GB300": (44712, 5)}
"""MB/s per C2C link and number of links (published GB300 dump); other kinds are left for NCCL to ask."""


def affinity(cpus: str) -> str:
    """Linux' list of CPUs (`0-71,144`) as NCCL's mask: 32-bit hexadecimal groups, highest first; empty for none."""
    mask = 0
    for part in cpus.replace(" ", "").split(","):
        found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part, re.ASCII)
        if not found:
            continue
        first, last = int(found[1]), int(found[2] or found[1])
        mask |= (1 << max(0, last - first + 1)) - 1 << first
    groups: list[str] = []
    while mask:
        groups.insert(0, f"{mask & 0xFFFFFFFF:08x}")
        mask >>= 32
    return ",".join(groups)


def hardware_of(node: Node) -> Hardware:
    """The node's GPUs and NICs as NCCL would find them, all NVLinks to switches. Other unknown figures stay unanswered.

    UsageError for a kind of GPU or CPU, or a number of NVLinks, that is not known, and for a PCI address that is none.
    """
    gpus = tuple(_gpu(node, gpu) for gpu in sorted(node.gpus, key=lambda gpu: gpu.index))
    nets = tuple(_net(nic) for nic in sorted(node.nics, key=lambda nic: nic.index))
    digest = hashlib.sha256(node.name.encode()).digest()
    classes = {bus_id(device.bdf): device.pci_class for device in node.pci}
    return Hardware(gpus, nets, _cpu(node), int.from_bytes(digest[:8], "big"), classes)


def _gpu(node: Node, gpu: Gpu) -> HostGpu:
    if gpu.kind not in COMPUTE:
        raise UsageError(f"the compute capability of {gpu.kind or 'an unknown GPU'} is not known", where=node.name)
    if gpu.nvlinks < 0:
        raise UsageError(
            f"the NVLinks of GPU {gpu.index} are not known",
            where=node.name,
            why="nobody looked, and a prediction without them would be one of a broken GPU",
            fix="read `nvidia-smi nvlink -s` of the node, too",
        )
    busid = bus_id(gpu.pci)
    bandwidth, links = C2C_LINKS.get(gpu.kind, (0, 0))
    device = next((device for device in node.pci if bus_id(device.bdf) == busid), None)
    return HostGpu(
        busid,
        COMPUTE[gpu.kind],
        gpu.nvlinks,
        c2c_links=links,
        c2c_mbps=bandwidth,
        pci_generation=(generation(device.link_speed) or 0) if device else 0,
        pci_width=device.link_width if device else 0,
    )


def _net(nic: Nic) -> HostNet:
    guid = int(nic.guid.replace(":", ""), 16) if re.fullmatch(r"(0x)?[0-9a-fA-F:]{1,40}", nic.guid, re.ASCII) else 0
    return HostNet(nic.name, bus_id(nic.pci) if nic.pci else None, nic.gbps * 1000, guid=guid % 2**64)


def _cpu(node: Node) -> HostCpu:
    masks = {str(cpu.numa): affinity(cpu.cpus) for cpu in node.cpus}
    first = next((cpu for cpu in node.cpus if cpu.arch), None)
    if first is None and node.kind == "nvl72-tray":
        return HostCpu("arm64", affinity=masks)  # Grace, whatever the rack
    if first is None:
        raise UsageError(
            f"the CPU architecture of node {node.name} is not known", fix="read its sysfs or /proc/cpuinfo"
        )
    x86 = first.arch == "x86_64"
    family, model = (first.family, first.model) if x86 and first.family >= 0 else (None, None)
    return HostCpu(first.arch, first.vendor if x86 and first.vendor else None, family, model, masks)
