"""A topology that NCCL dumped (NCCL_TOPO_DUMP_FILE) as facts: GPUs with the NVLinks that NCCL counted, and NICs.

A dump knows no host names. Its hosts are told apart by host_hash, and called `host-<hash>` here. Its PCI bridges are
not taken: NCCL writes only every second one, and a site's tree has them all.
"""

from collections.abc import Iterator

from rackyard.fabric.facts import CpuFact, Facts, GpuFact, NicFact, Source
from rackyard.fabric.readers.reader import Capture, Reader
from rackyard.nccl.cpus import ranges
from rackyard.nccl.element import Element
from rackyard.nccl.numbers import c_int
from rackyard.nccl.version import NEWEST
from rackyard.nccl.xmlread import parse

NAME = "nccl-topology"

MOST_NODES = 64 * 1024
"""Elements of a fused dump: an 18-tray rack has 613, and 64 racks would fit."""


def _knows(head: str, file: str) -> bool:
    return "<system" in head and "<html" not in head


def read(capture: Capture) -> Facts:
    """Facts of every host in the dump. TopologyRefused, with the line, for what NCCL itself would not take."""
    parsed = parse(capture.data, capture.file, NEWEST, max_nodes=MOST_NODES)
    facts = Facts()
    if parsed.root is None:
        return facts
    text = capture.data.decode("utf-8", "replace").split("\n")

    def source(element: Element) -> Source:
        line = text[element.line - 1] if 0 < element.line <= len(text) else ""
        return Source(NAME, capture.file, element.line or None, line.strip()[:400])

    for cpu in parsed.root.children:
        hashed = cpu.attrs.get("host_hash")
        node = f"host-{hashed}" if hashed else capture.node or "host-unknown"
        numa = c_int(cpu.attrs.get("numaid", "0"))
        cpus = cpu_list(cpu.attrs.get("affinity", ""))
        arch = cpu.attrs.get("arch")
        facts.cpus.append(CpuFact(node=node, source=source(cpu), numa=numa, cpus=cpus, arch=arch))
        for element, parent in _below(cpu, ""):
            _take(element, parent, (node, numa), source(element), facts)
    return facts


def _below(element: Element, parent: str) -> Iterator[tuple[Element, str]]:
    """Every element under a CPU with the bus id of the PCI device above it."""
    waiting = [(child, parent) for child in reversed(element.children)]
    while waiting:
        child, above = waiting.pop()
        yield child, above
        here = child.attrs.get("busid", above) if child.name == "pci" else above
        waiting += [(grandchild, here) for grandchild in reversed(child.children)]


def _take(element: Element, parent: str, host: tuple[str, int], source: Source, facts: Facts) -> None:
    node, numa = host
    attrs = element.attrs
    if element.name == "gpu":
        links = [child for child in element.children if child.name == "nvlink"]
        facts.gpus.append(
            GpuFact(
                node=node,
                source=source,
                pci=parent.lower() or None,
                index=c_int(attrs["dev"]) if "dev" in attrs else None,
                numa=numa,
                # NCCL writes every link into a dump, where GPUs have a rank; a file for it may leave links out.
                links=sum(max(0, c_int(link.attrs.get("count", "0"))) for link in links)
                if links or "rank" in attrs
                else None,
            )
        )
    elif element.name == "net" and "name" in attrs:
        speed = c_int(attrs.get("speed", "0"))
        facts.nics.append(
            NicFact(
                node=node,
                source=source,
                name=attrs["name"],
                port=max(1, c_int(attrs.get("port", "1"))),
                pci=parent.lower() or None,
                numa=numa,
                guid=_guid(attrs.get("guid", "")),
                gbps=speed / 1000 if speed > 0 else None,
            )
        )


def _guid(text: str) -> str | None:
    digits = text.lower().removeprefix("0x")
    return digits.zfill(16) if digits and set(digits) <= set("0123456789abcdef") and len(digits) <= 16 else None


def cpu_list(affinity: str) -> str:
    """NCCL's CPU mask (hex groups of 32 bits, high first) as Linux lists CPUs (`0-71`); empty when it is no mask."""
    groups = affinity.split(",")
    if not affinity or len(groups) > 128 or any(len(g) > 8 or set(g) - set("0123456789abcdefABCDEF") for g in groups):
        return ""
    mask = 0
    for group in groups:
        mask = mask << 32 | int(group or "0", 16)
    return ranges(mask)


READER = Reader(NAME, _knows, read)
