"""What is free on a yard, as counts: whether a gang can fit at all, and how broken up the free nodes are."""

from dataclasses import dataclass

import numpy as np

from rackyard.placement.columns import Columns, Flags, Masks
from rackyard.placement.model import Request
from rackyard.placement.yard import Yard

SEGMENT = 16
"""Nodes of the segments that fragmentation is measured in: what NVL72 racks are planned with (16 of 18 trays)."""


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """Weighs yards of one site."""

    usable: Masks
    """GPUs of each node that can be given to jobs while it is in service."""
    whole: Flags
    """Nodes all of whose GPUs are usable."""
    size: int
    """GPUs of the largest node."""
    nodes: slice
    """Where the class with most GPUs stands; its free nodes are what fragmentation looks at."""
    starts: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    """First node of each of its pools, from the first of the class."""
    loose: Flags
    largest: int
    """Nodes of its largest NVLink domain."""

    @classmethod
    def of(cls, columns: Columns) -> "Scales":
        """Scales for a site with at least one node."""
        usable = np.where(columns.bad | columns.cordoned, np.uint32(0), columns.healthy)
        nodes, pools = columns.span(0), columns.pools(0)
        loose = columns.loose[pools]
        largest = int(np.where(loose, 1, columns.total[pools]).max())
        whole = usable == columns.all
        size = int(columns.size.max())
        return cls(usable, whole, size, nodes, columns.starts[pools] - nodes.start, loose, largest)

    def gpus(self, yard: Yard) -> int:
        """GPUs in service, in use or not."""
        return int(np.bitwise_count(self.usable[~yard.out]).sum())

    def hopeless(self, request: Request, yard: Yard, out: Flags) -> bool:
        """Whether fewer GPUs are free than the gang has, counted on whole nodes where it needs these."""
        idle = ~out
        if request.gpus_per_node is None and request.gpus >= self.size:
            idle &= self.whole & (yard.busy == 0)
        free = self.usable & ~yard.busy
        return int(np.bitwise_count(free[idle]).sum()) < request.gpus

    def shards(self, yard: Yard) -> "Shards":
        """The free whole nodes, by how they lie."""
        free = self.whole[self.nodes] & (yard.busy[self.nodes] == 0) & ~yard.out[self.nodes]
        counts = np.add.reduceat(free, self.starts, dtype=np.int64)
        domains = np.where(self.loose, np.minimum(counts, 1), counts)
        return Shards(int(counts.sum()), int(domains.max()), SEGMENT * int((domains // SEGMENT).sum()), self.largest)


@dataclass(frozen=True, slots=True)
class Shards:
    """Free whole nodes of the class with most GPUs."""

    nodes: int
    in_domain: int
    """The largest gang that one NVLink domain would hold now."""
    in_segments: int
    """The largest gang in segments of 16 nodes."""
    largest: int
    """Nodes of the largest domain."""

    @property
    def domain_share(self) -> float:
        """`in_domain` over the most that so many free nodes could be: 1 when a whole domain, or all that is free, lies
        in one domain.
        """
        return self.in_domain / min(self.nodes, self.largest) if self.nodes else 0.0

    @property
    def segment_share(self) -> float:
        """`in_segments` over the free nodes."""
        return self.in_segments / self.nodes if self.nodes else 0.0
