"""What the ranks of a host make of NCCL_TOPO_FILE: each fills in its own GPU and all NICs, trims, and all are fused.

Read in src/graph/topo.cc (ncclTopoGetSystem) and xml.cc (ncclTopoFillGpu, ncclTopoFillNet, ncclTopoFuseXml),
NCCL 2.18 to 2.30. Not done here: merging the ports of one card, collective and GPU-initiated network plugins.
"""

from collections.abc import Sequence

from rackyard.nccl.element import Element
from rackyard.nccl.hardware import Hardware
from rackyard.nccl.loadfill import Tree
from rackyard.nccl.loadfuse import fuse
from rackyard.nccl.version import Version
from rackyard.nccl.xmltrim import trim


def load(file_root: Element | None, hardware: Hardware, version: Version, first_rank: int = 0) -> Element:
    """The fused tree of one host whose ranks are its GPUs, from `first_rank` on. Raises TopologyRefused.

    `file_root` is the system element of the file, None for an empty or missing one; it is left as it is.
    """
    return fuse(rank_trees(file_root, hardware, version, first_rank), version.file_nodes)


def load_clique(hosts: Sequence[tuple[Element | None, Hardware]], version: Version) -> Element:
    """The fused tree of the hosts of one NVLink clique, ranks counted through in their order."""
    trees: list[Element] = []
    for file_root, hardware in hosts:
        trees += rank_trees(file_root, hardware, version, len(trees))
    return fuse(trees, version.file_nodes * len(trees))


def rank_trees(file_root: Element | None, hardware: Hardware, version: Version, first_rank: int) -> list[Element]:
    """The trimmed tree of each rank of a host. Before 2.21 every rank detected all GPUs, so the trees are equal."""
    places = range(len(hardware.gpus))
    groups = [[place] for place in places] if version.fuses_ranks else [list(places) for _ in places]
    return [
        _rank_tree(file_root, hardware, version, {place: first_rank + place for place in group}) for group in groups
    ]


def _rank_tree(file_root: Element | None, hardware: Hardware, version: Version, ranks: dict[int, int]) -> Element:
    tree = Tree(file_root.copy() if file_root else Element("system", {"version": "1"}), hardware, version)
    if version.overwrites_host_hash:
        for cpu in list(tree.root.find_all("cpu")):
            tree.put(cpu, "host_hash", tree.host_hash)
    for place, rank in ranks.items():
        tree.fill_gpu(place, rank)
    for dev in range(len(hardware.nets)):
        tree.fill_net(dev)
    trim(tree.root)
    return tree.root
