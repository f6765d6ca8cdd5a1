"""A graph while it is searched for: the limits of one attempt, and what it has found."""

from dataclasses import dataclass, field, replace

from rackyard.nccl.graphs import GRAPH_NAMES, NVLS, PATTERN_NVLS, Channel, Graph
from rackyard.nccl.linktypes import PATH_LOC, PATH_PIX
from rackyard.nccl.numbers import as_float
from rackyard.nccl.topology import System


@dataclass(frozen=True, slots=True)
class Lane:
    """A complete channel: places of the GPUs in order (nvls: the head), places of the nets in and out (-1: none)."""

    gpus: tuple[int, ...]
    net_in: int
    net_out: int


@dataclass(slots=True)
class Draft:
    """Limits of a search (GB/s per channel, worst path types, order of channels) and the lanes it found."""

    id: int
    pattern: int
    coll_net: int
    min_channels: int
    max_channels: int
    cross_nic: int = 0
    same_channels: int = 1
    bw_intra: float = 0.0
    bw_inter: float = 0.0
    latency_inter: float = 0.0
    type_intra: int = PATH_LOC
    type_inter: int = PATH_PIX
    hops: int = 0
    lanes: list[Lane] = field(default_factory=list)

    @property
    def name(self) -> str:
        """ring, tree, collnet, nvls or collnetDirect."""
        return GRAPH_NAMES[self.id]

    def copy(self) -> "Draft":
        """A draft that shares no list with this one."""
        return replace(self, lanes=list(self.lanes))

    @property
    def total_intra(self) -> float:
        """Channels times bandwidth, as a 32-bit float."""
        return as_float(len(self.lanes) * self.bw_intra)

    @property
    def total_inter(self) -> float:
        """Channels times bandwidth over the network, as a 32-bit float."""
        return as_float(len(self.lanes) * self.bw_inter)

    def beats(self, other: "Draft", n_gpus: int) -> bool:
        """Whether this is to replace ``other``: more bandwidth, or the same with fewer hops; nvls: more heads."""
        if len(self.lanes) < self.min_channels:
            return False
        if self.pattern == PATTERN_NVLS:
            more_heads = len(other.lanes) < len(self.lanes) <= n_gpus
            return more_heads or self.total_inter > other.total_inter
        if self.total_intra != other.total_intra:
            return self.total_intra > other.total_intra
        return self.pattern == other.pattern and self.cross_nic == other.cross_nic and self.hops < other.hops

    def graph(self, system: System) -> Graph:
        """The graph as the world sees it: ranks and ids in place of places."""
        ranks = [gpu.rank for gpu in system.gpus()]
        nets = [net.id for net in system.nets()] + [-1]
        channels = tuple(
            Channel(
                tuple(ranks[place] for place in (lane.gpus[:1] if self.id == NVLS else lane.gpus)),
                (nets[lane.net_in], nets[lane.net_out]) if system.inter else None,
            )
            for lane in self.lanes
        )
        return Graph(
            self.id, self.pattern, self.coll_net, self.min_channels, self.max_channels, self.cross_nic,
            self.same_channels, self.bw_intra, self.bw_inter, self.latency_inter, self.type_intra, self.type_inter,
            self.hops, channels,
        )  # fmt: skip
