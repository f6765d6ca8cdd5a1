"""What NCCL's graph search finds: channels, and the bandwidth each of them was given.

Patterns and graph ids carry NCCL's numbers (2.30.7, `src/include/graph.h`). Bandwidths are GB/s of one channel.
"""

from dataclasses import dataclass
from typing import Final

from rackyard.nccl.linktypes import PATH_TYPES

PATTERN_BALANCED_TREE: Final = 1
PATTERN_SPLIT_TREE: Final = 2
PATTERN_TREE: Final = 3
PATTERN_RING: Final = 4
PATTERN_NVLS: Final = 5
PATTERN_COLLNET_DIRECT: Final = 6

RING: Final = 0
TREE: Final = 1
COLLNET_CHAIN: Final = 2
NVLS: Final = 3
COLLNET_DIRECT: Final = 4
GRAPH_NAMES: Final = ("ring", "tree", "collnet", "nvls", "collnetDirect")

FALLBACK_BW: Final = 0.10000000149011612
"""GB/s that NCCL writes into the simple order it falls back to (0.1 as a 32-bit float)."""

_LOCAL_MASK = (1 << 56) - 1


def net_name(net: int) -> str:
    """A network device as NCCL prints it, from its 64-bit id; `-` for none."""
    return "-" if net == -1 else f"NET/{net >> 56:x}-{net & _LOCAL_MASK:x}"


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel: ranks in order (nvls: the head only), and the 64-bit ids of the nets it comes in and leaves by.

    ``nets`` is None where the communicator does not leave the system; -1 stands for no net.
    """

    ranks: tuple[int, ...]
    nets: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph, as NCCL has it before ranks compare theirs and channels are doubled.

    ``cross_nic`` 0 or 2; ``type_intra`` and ``type_inter`` are path types; ``same_channels`` is 1 when all channels
    were to have one order; ``n_hops`` counts links over all channels.
    """

    id: int
    pattern: int
    coll_net: int
    min_channels: int
    max_channels: int
    cross_nic: int
    same_channels: int
    bw_intra: float
    bw_inter: float
    latency_inter: float
    type_intra: int
    type_inter: int
    n_hops: int
    channels: tuple[Channel, ...]

    @property
    def n_channels(self) -> int:
        """Number of channels."""
        return len(self.channels)

    @property
    def name(self) -> str:
        """ring, tree, collnet, nvls or collnetDirect."""
        return GRAPH_NAMES[self.id]

    @property
    def fell_back(self) -> bool:
        """Whether the search found nothing and NCCL took the ranks as they come, at 0.1 GB/s."""
        return self.n_channels > 0 and self.bw_intra == FALLBACK_BW

    @property
    def total_intra(self) -> float:
        """GB/s of all channels together within the system."""
        return self.n_channels * self.bw_intra

    @property
    def total_inter(self) -> float:
        """GB/s of all channels together over the network."""
        return self.n_channels * self.bw_inter

    def brief(self) -> str:
        """`16@45/45 NVL/PIX`: channels, bandwidth within and over the network, path types."""
        if not self.n_channels:
            return "0"
        types = f"{PATH_TYPES[self.type_intra]}/{PATH_TYPES[self.type_inter]}"
        return f"{self.n_channels}@{self.bw_intra:g}/{self.bw_inter:g} {types}"
