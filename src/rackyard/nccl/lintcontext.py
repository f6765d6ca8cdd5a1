"""What the rules of `rackyard nccl lint` see, and what they say."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rackyard.findings import Severity
from rackyard.nccl.element import Element
from rackyard.nccl.numbers import c_int
from rackyard.nccl.version import Version
from rackyard.nccl.xmlrefused import printable

SWITCH_CLASS = "0x068000"
GPU_CLASS = "0x03"
NET_CLASS = "0x02"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem at one line: what comes of it, and what to write instead."""

    severity: Severity
    line: int
    subject: str
    summary: str
    advice: str


class Context:
    """A file's tree with what several rules ask of it."""

    def __init__(self, root: Element, version: Version, nodes: int) -> None:
        self.root = root
        self.version = version
        self.nodes = nodes
        self.parents = {id(child): parent for child, parent in root.walk_with_parents()}
        self.cpus = list(root.children_named("cpu"))
        self.pcis = list(root.find_all("pci"))
        self.gpus = list(root.find_all("gpu"))
        self.nets = list(root.find_all("net"))
        self.is_dump = any("rank" in gpu.attrs for gpu in self.gpus)
        """A tree that NCCL wrote itself: only there have GPUs a rank."""

    def hosts(self) -> list[list[Element]]:
        """The cpus of each host, told apart by host_hash."""
        hosts: dict[str, list[Element]] = {}
        for cpu in self.cpus:
            hosts.setdefault(cpu.get("host_hash") or "", []).append(cpu)
        return list(hosts.values())

    def above(self, element: Element) -> Iterator[Element]:
        """The elements above, nearest first."""
        parent = self.parents.get(id(element))
        while parent is not None:
            yield parent
            parent = self.parents.get(id(parent))

    def busid(self, element: Element) -> str:
        """The bus id of the pci element that this one is or stands in; empty if there is none."""
        for each in (element, *self.above(element)):
            if each.name == "pci":
                return each.get("busid") or ""
        return ""

    def name(self, element: Element) -> str:
        """How the element is called in a message."""
        if element.name == "cpu":
            return f"cpu numaid {printable(element.get('numaid') or '?', 40)}"
        if element.name == "net":
            return f"net {printable(element.get('name') or '?', 40)}"
        busid = printable(self.busid(element), 40)
        return f"{element.name} {busid}" if busid else element.name

    def warn(self, element: Element, summary: str, advice: str) -> Problem:
        """NCCL goes on, with something else than was meant."""
        return Problem(Severity.WARNING, element.line, self.name(element), summary, advice)

    def error(self, element: Element, summary: str, advice: str) -> Problem:
        """Init dies, or the job is not worth running."""
        return Problem(Severity.ERROR, element.line, self.name(element), summary, advice)

    def info(self, element: Element, summary: str, advice: str) -> Problem:
        """Worth knowing."""
        return Problem(Severity.INFO, element.line, self.name(element), summary, advice)


Rule = Callable[[Context], Iterator[Problem]]


def count_of(link: Element) -> int:
    """How many links an nvlink or c2c element stands for."""
    return c_int(link.get("count") or "")


def shown(text: str | None) -> str:
    """An attribute's text for a message."""
    return f'"{printable(text or "", 60)}"'
