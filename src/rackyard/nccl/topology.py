"""NCCL's topology as a graph: nodes, links, and the path from every node to every node that NCCL computes paths to.

Nodes and links are numbered, and everything that the graph search touches millions of times lies in flat lists: the
bandwidth of link ``l`` is ``system.link_bw[l]`` and a path is a tuple of link numbers. Bandwidths are GB/s, always
values of a 32-bit float (``numbers.as_float``).
"""

from copy import copy
from dataclasses import dataclass, field

from rackyard.nccl.linktypes import CPU, DEV, GPU, NET, NODE_TYPES, PATH_DIS, UNDEF

ID_LOCAL_MASK = 0x00FFFFFFFFFFFFFF


@dataclass(slots=True)
class TopoNode:
    """One node. ``host`` is the index of its host in `System.host_hashes`, ``local`` its 56-bit id within the host.

    ``local`` is the bus id without separators (GPU, DEV, PCI, NIC, CXB), the numaid (CPU) or the dev (NET, GIN, RMA).
    ``line`` is the line of the element it was made from, 0 where that is unknown.
    """

    index: int
    type: int
    host: int
    local: int
    line: int

    @property
    def id(self) -> int:
        """The 64-bit id as NCCL holds it."""
        return (self.host << 56) + self.local

    @property
    def name(self) -> str:
        """TYPE/host-local, both hexadecimal, as NCCL prints it."""
        return f"{NODE_TYPES[self.type]}/{self.host:x}-{self.local:x}"


@dataclass(slots=True)
class GpuNode(TopoNode):
    """A rank. ``dev`` is the NVML number, ``sm`` ten times the compute capability, ``parent`` its DEV node or UNDEF."""

    dev: int = UNDEF
    rank: int = UNDEF
    sm: int = UNDEF
    gdr: int = 0
    mlopart: int = UNDEF
    parent: int = UNDEF


@dataclass(slots=True)
class DevNode(TopoNode):
    """The device below one or more ranks (NCCL 2.30 and later). ``device`` is as in `PciNode`."""

    device: int = 0
    dev: int = UNDEF
    sm: int = UNDEF
    n_gpus: int = 0


@dataclass(slots=True)
class PciNode(TopoNode):
    """A PCI switch or bridge; ``device`` packs vendor, device and subsystem ids into 64 bits."""

    device: int = 0


@dataclass(slots=True)
class CpuNode(TopoNode):
    """A NUMA node. arch 1 x86, 2 POWER, 3 Arm; vendor 1 Intel, 2 AMD, 3 Zhaoxin; Intel model 1 BDW to 4 ERP.

    ``affinity`` is a bit mask of CPUs.
    """

    arch: int = UNDEF
    vendor: int = UNDEF
    model: int = UNDEF
    affinity: int = 0


@dataclass(slots=True)
class NetNode(TopoNode):
    """A network device (NET, GIN or RMA). ``asic`` is the guid; ``local_gpu`` the place of its GPU in ``of_type[GPU]``.

    ``pci_key`` stands for the PCI function that carries the device: nets of one function have equal keys.
    """

    dev: int = 0
    bw: float = 0.0
    latency: float = 0.0
    port: int = 0
    asic: int = 0
    gdr: int = 0
    coll: int = 0
    max_channels: int = 0
    rail: int = UNDEF
    plane: int = UNDEF
    pci_key: str = ""
    local_gpu: int = UNDEF


@dataclass(frozen=True, slots=True)
class Path:
    """One path for display and comparison: type, bottleneck (GB/s), hops and the numbers of its links in order."""

    type: int
    bw: float
    hops: int
    links: tuple[int, ...]


@dataclass(slots=True)
class PathRow:
    """The paths from one node to all nodes of one type, in the order of ``System.of_type``."""

    type: list[int]
    bw: list[float]
    links: list[tuple[int, ...]]

    @classmethod
    def disconnected(cls, count: int) -> "PathRow":
        """A row without any path."""
        return cls([PATH_DIS] * count, [0.0] * count, [()] * count)


Rows = list[list[PathRow | None]]


@dataclass(slots=True)
class System:
    """The graph. ``nodes`` and the ``link_*`` lists keep what was removed; ``of_type`` and ``links`` say what counts.

    of_type[t]       numbers of the nodes of type t in NCCL's order; a node's place in it is what NCCL calls its index
    links[n]         numbers of the links that leave node n, in NCCL's order
    rows[t][n]       paths from node n to the nodes of type t; None where NCCL has not reached n from any of them
    inter            1 if the communicator spans more than this system
    has_dev          whether GPUs hang below DEV nodes (NCCL 2.30 and later)
    file             where it was read, for messages
    """

    has_dev: bool
    file: str = ""
    nodes: list[TopoNode] = field(default_factory=list)
    of_type: list[list[int]] = field(default_factory=lambda: [[] for _ in NODE_TYPES])
    links: list[list[int]] = field(default_factory=list)
    link_from: list[int] = field(default_factory=list)
    link_to: list[int] = field(default_factory=list)
    link_type: list[int] = field(default_factory=list)
    link_bw: list[float] = field(default_factory=list)
    host_hashes: list[int] = field(default_factory=list)
    system_id: int = 0
    rows: Rows = field(default_factory=lambda: [[] for _ in NODE_TYPES])
    inter: int = 0
    max_bw: float = 0.0
    total_bw: float = 0.0

    def count(self, node_type: int) -> int:
        """Number of nodes of a type."""
        return len(self.of_type[node_type])

    def gpus(self) -> list[GpuNode]:
        """The GPUs in NCCL's order."""
        return [node for n in self.of_type[GPU] if isinstance(node := self.nodes[n], GpuNode)]

    def cpus(self) -> list[CpuNode]:
        """The NUMA nodes in NCCL's order."""
        return [node for n in self.of_type[CPU] if isinstance(node := self.nodes[n], CpuNode)]

    def nets(self, node_type: int = NET) -> list[NetNode]:
        """The network devices of one type (NET, GIN or RMA) in NCCL's order."""
        return [node for n in self.of_type[node_type] if isinstance(node := self.nodes[n], NetNode)]

    def devs(self) -> list[int]:
        """Numbers of the nodes that carry a GPU's links: the DEV nodes, or the GPUs themselves before 2.30."""
        return self.of_type[self.dev_type]

    @property
    def dev_type(self) -> int:
        """Type of the nodes that carry a GPU's links: DEV, or GPU before 2.30."""
        return DEV if self.has_dev else GPU

    def path(self, source: int, node_type: int, place: int) -> Path | None:
        """The path from node ``source`` to the ``place``-th node of a type; None where the source has no row."""
        row = self.rows[node_type][source]
        if row is None:
            return None
        links = row.links[place]
        return Path(row.type[place], row.bw[place], len(links), links)

    def find_link(self, source: int, target: int, link_type: int) -> int | None:
        """Number of the first link of a type from ``source`` to ``target``."""
        for number in self.links[source]:
            if self.link_to[number] == target and self.link_type[number] == link_type:
                return number
        return None

    def place_of_id(self, node_type: int, node_id: int) -> int | None:
        """Place of the first node with this 64-bit id among the nodes of a type."""
        for place, number in enumerate(self.of_type[node_type]):
            if self.nodes[number].id == node_id:
                return place
        return None

    def clone(self) -> "System":
        """A copy that shares no list with this one; nodes are copied too, path rows are not carried over."""
        return System(
            has_dev=self.has_dev,
            file=self.file,
            nodes=[copy(node) for node in self.nodes],
            of_type=[list(numbers) for numbers in self.of_type],
            links=[list(numbers) for numbers in self.links],
            link_from=list(self.link_from),
            link_to=list(self.link_to),
            link_type=list(self.link_type),
            link_bw=list(self.link_bw),
            host_hashes=list(self.host_hashes),
            system_id=self.system_id,
        )


@dataclass(frozen=True, slots=True)
class Peer:
    """What a rank tells the others: its host and its NVLink fabric."""

    rank: int
    host: int
    uuid: int
    clique: int


@dataclass(frozen=True, slots=True)
class Comm:
    """The communicator: whose view it is, how many ranks it has, and who they are.

    ``peers`` is keyed by rank and holds the ranks that the file names; ``n_ranks`` counts all ranks, those of other
    systems too. ``min_sm`` and ``max_sm`` are UNDEF without GPUs.
    """

    rank: int
    n_ranks: int
    peers: dict[int, Peer]
    mnnvl: bool
    hosts_with_gpus: int
    min_sm: int
    max_sm: int
