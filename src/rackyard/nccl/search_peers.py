"""GPUs whose links are less than those of their peers, and the same topology with their NVLinks restored."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rackyard.nccl.element import Element
from rackyard.nccl.linktypes import LINK_C2C, LINK_NVL, LINK_PCI
from rackyard.nccl.numbers import c_int
from rackyard.nccl.system_links import nvlink_bw
from rackyard.nccl.topology import GpuNode, System

_KINDS = ((LINK_NVL, "NVLink"), (LINK_C2C, "C2C"), (LINK_PCI, "PCI"))
_SWITCH_CLASS = "0x068"


@dataclass(frozen=True, slots=True)
class Lesser:
    """A GPU with less of one kind of link than most GPUs of its compute capability; GB/s, and NVLinks by number."""

    gpu: GpuNode
    kind: str
    bw: float
    usual_bw: float
    peers: int

    def text(self, together: int = 1) -> str:
        """`has no NVLink, its 3 peers have 18` and the like; ``together`` GPUs that are alike in this."""
        has, its = ("has", "its") if together == 1 else ("have", "their")
        peers = f"{its} {self.peers} peer{'s have' if self.peers > 1 else ' has'}"
        if self.kind != "NVLink":
            return f"{has} {self.bw:g} GB/s of {self.kind}, {peers} {self.usual_bw:g}"
        one = nvlink_bw(self.gpu.sm)
        count = round(self.bw / one)
        links = f"{count} NVLink{'s' if count != 1 else ''}" if count else "no NVLink"
        return f"{has} {links}, {peers} {round(self.usual_bw / one)}"


def lesser(system: System) -> list[Lesser]:
    """The GPUs that have less than most of their peers; of two equally common bandwidths the higher counts."""
    found: list[Lesser] = []
    gpus = system.gpus()
    for link_type, kind in _KINDS:
        bws = {gpu.index: _bw(system, gpu, link_type) for gpu in gpus}
        for gpu in gpus:
            peers = [bws[other.index] for other in gpus if other.sm == gpu.sm and other is not gpu]
            counts = Counter([*peers, bws[gpu.index]])
            usual = max(counts, key=lambda bw: (counts[bw], bw))
            if bws[gpu.index] < usual:
                found.append(Lesser(gpu, kind, bws[gpu.index], usual, peers.count(usual)))
    return found


def _bw(system: System, gpu: GpuNode, link_type: int) -> float:
    """GB/s of all links of one type that leave a GPU."""
    dev = gpu.parent if system.has_dev else gpu.index
    return sum(system.link_bw[link] for link in system.links[dev] if system.link_type[link] == link_type)


def restored(root: Element, fewer: Iterable[Lesser], system: System) -> Element | None:
    """A copy of the tree in which these GPUs have the NVLinks of a peer; None where links do not go to switches.

    Links from GPU to GPU have two ends, and nothing in the file says where a missing one went.
    """
    tree = root.copy()
    elements = {c_int(gpu.get("rank") or ""): gpu for gpu in tree.find_all("gpu") if gpu.get("rank") is not None}
    poor = {each.gpu.rank: each for each in fewer if each.kind == "NVLink"}
    for rank, each in poor.items():
        model = next(
            (
                elements[gpu.rank]
                for gpu in system.gpus()
                if gpu.rank in elements and gpu.sm == each.gpu.sm and _bw(system, gpu, LINK_NVL) == each.usual_bw
            ),
            None,
        )
        if model is None or rank not in elements or not _only_switches(model) or not _only_switches(elements[rank]):
            return None
        others = [child for child in elements[rank].children if child.name != "nvlink"]
        elements[rank].children = [*(link.copy() for link in model.children_named("nvlink")), *others]
    return tree if poor else None


def _only_switches(gpu: Element) -> bool:
    return all((link.get("tclass") or "").startswith(_SWITCH_CLASS) for link in gpu.children_named("nvlink"))
