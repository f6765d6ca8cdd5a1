"""What is asked of placement and what it answers. Plain frozen values, fit for storing in an event."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import msgspec

from rackyard.fabric import DomainKey, Health, Node

Spread = Literal["pack", "spread"] | int
Rails = Literal["aligned", "any"]
MOST = 10_000_000
"""Of anything that is counted: beyond any site, and within 32 bits."""
Scope = Literal["leaf", "block", "part"]
SCOPES: tuple[Scope, ...] = ("leaf", "block", "part")
"""What holds NVLink domains together, nearest first: a leaf group, a block (spine group), a part (core group)."""


@dataclass(frozen=True, slots=True)
class Group:
    """Runs of so many consecutive GPUs of the gang that share one leaf group, block or part of the site.

    A group that is not `required` is split only where it can't be kept whole.
    """

    gpus: int
    within: Scope
    required: bool = False

    def __post_init__(self) -> None:
        """ValueError for a size or a scope that means nothing."""
        if self.gpus < 1 or self.within not in SCOPES:
            raise ValueError(f"a group of {self.gpus} GPUs within a {self.within!r}: expected 1 or more, {SCOPES}")


@dataclass(frozen=True, slots=True)
class Parallel:
    """How the framework cuts the gang, ranks counted tp, cp, dp, pp from the fastest; expert groups are `ep`
    neighbouring data-parallel ranks. The weights say what one more NVLink domain under a group costs, relative to the
    others: bytes that its collective moves per step are a good measure (Arnold, arXiv 2509.15940, weighs DP against PP
    in the same way).
    """

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    dp_weight: int = 1
    pp_weight: int = 1
    tp_weight: int = 64
    """TP talks in every layer and EP in every second one: both belong inside one domain. The two are our choice."""
    ep_weight: int = 16

    def __post_init__(self) -> None:
        """ValueError for sizes below 1 and weights below 0."""
        if min(self.tp, self.pp, self.cp, self.ep) < 1:
            raise ValueError(f"tp, pp, cp, ep are {self.tp}, {self.pp}, {self.cp}, {self.ep}: expected 1 or more")
        if min(self.dp_weight, self.pp_weight, self.tp_weight, self.ep_weight) < 0:
            raise ValueError("a weight is below 0")


@dataclass(frozen=True, slots=True)
class Request:
    """The seats a gang needs. ValueError for counts that mean nothing."""

    gpus: int
    segment_gpus: int | None = None
    """GPUs that must share an NVLink domain; None: the engine chooses."""
    segment_required: bool = True
    """Whether a segment may not be split even when the gang fits in no other way."""
    groups: tuple[Group, ...] = ()
    """Larger groups of the gang than segments, each at most once a scope, ascending."""
    parallel: Parallel | None = None
    spread: Spread = "pack"
    """`pack` into the fewest domains, `spread` evenly over all racks, or over exactly so many racks."""
    copies: int = 1
    """Of a checkpoint; with two or more, no rack holds more of the gang than its peers elsewhere can stand in for."""
    exclusive: bool = False
    """Only NVLink domains that nobody uses, and all of each: what is left there is kept as spares."""
    rails: Rails = "aligned"
    """`aligned`: local rank i has GPU i and the NIC of its rail on every node; `any`: whatever healthy NIC there is."""
    rail: int | None = None
    """A rail that every node must have a healthy NIC on."""
    spares: int = 0
    """Healthy free nodes to keep beside the gang in every domain it uses."""
    exclude: frozenset[str] = frozenset()
    exclude_racks: frozenset[str] = frozenset()
    pin: frozenset[str] = frozenset()
    """Nodes that must be part of the gang."""
    apart: frozenset[str] = frozenset()
    """Jobs on whose racks the gang must not sit."""
    gpu_kind: str | None = None
    gpu_memory: float = 0.0
    """GiB at least."""
    nic_gbps: int = 0
    """Gb/s at least, of every NIC that serves the gang."""
    domain_gpus: int = 0
    """GPUs that the NVLink domain must have at least, in use or not."""
    gpus_per_node: int | None = None
    """Ranks on a node; None: all GPUs of the node."""

    def __post_init__(self) -> None:
        """Refuse what no site could ever answer."""
        wrong = [
            name
            for name, value, least in (
                ("gpus", self.gpus, 1),
                ("segment_gpus", self.segment_gpus, 1),
                ("spares", self.spares, 0),
                ("gpus_per_node", self.gpus_per_node, 1),
                ("copies", self.copies, 1),
                ("spread", self.spread if isinstance(self.spread, int) else None, 1),
            )
            if value is not None and value < least
        ]
        if wrong:
            raise ValueError(f"{wrong[0]} is {getattr(self, wrong[0])}: too small")
        large = [
            name
            for name in (
                "gpus",
                "segment_gpus",
                "spares",
                "gpus_per_node",
                "copies",
                "spread",
                "nic_gbps",
                "domain_gpus",
            )
            if isinstance(value := getattr(self, name), int) and value > MOST
        ]
        if large:
            raise ValueError(f"{large[0]} is {getattr(self, large[0])}: too large")
        if self.rail is not None and not 0 <= self.rail < 32:
            raise ValueError(f"rail is {self.rail}: expected 0 to 31")
        if isinstance(self.spread, str) and self.spread not in ("pack", "spread"):
            raise ValueError(f"spread is {self.spread!r}: expected pack, spread or a number of racks")


@dataclass(frozen=True, slots=True)
class Occupancy:
    """GPUs in use: node name to GPU indices. `owners`, where known, lets a rejection say whose end to wait for."""

    used: Mapping[str, frozenset[int]] = field(default_factory=dict)
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node name to the jobs on it."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What a job is called, where that is not how `owners` has it: many jobs may have one name."""

    def __post_init__(self) -> None:
        """Take read-only copies, without empty entries."""
        used = {node: frozenset(gpus) for node, gpus in self.used.items() if gpus}
        object.__setattr__(self, "used", MappingProxyType(used))
        object.__setattr__(self, "owners", MappingProxyType(dict(self.owners)))
        object.__setattr__(self, "names", MappingProxyType(dict(self.names)))

    def busy(self, name: str) -> frozenset[int]:
        """The GPU indices in use on the node called `name`."""
        return self.used.get(name, frozenset())

    def free(self, node: Node) -> tuple[int, ...]:
        """The node's healthy GPUs that nobody uses, ascending."""
        busy = self.busy(node.name)
        return tuple(gpu.index for gpu in node.gpus if gpu.health is Health.HEALTHY and gpu.index not in busy)

    def with_job(self, job: str, placement: "Placement") -> "Occupancy":
        """This occupancy and the seats of one more job."""
        used = {node: set(gpus) for node, gpus in self.used.items()}
        owners = dict(self.owners)
        for seat in placement.seats:
            used.setdefault(seat.node, set()).add(seat.gpu)
        for node in placement.nodes():
            owners[node] = tuple(dict.fromkeys((*owners.get(node, ()), job)))
        return Occupancy({node: frozenset(gpus) for node, gpus in used.items()}, owners, self.names)

    def joined(self, other: "Occupancy") -> "Occupancy":
        """What is in use here or there."""
        nodes = (*self.used, *(node for node in other.used if node not in self.used))
        used = {node: self.busy(node) | other.busy(node) for node in nodes}
        owners = {node: (*self.owners.get(node, ()), *other.owners.get(node, ())) for node in nodes}
        return Occupancy(used, owners, {**other.names, **self.names})

    def without(self, placement: "Placement") -> "Occupancy":
        """This occupancy less the seats of a placement."""
        gone: dict[str, set[int]] = {}
        for seat in placement.seats:
            gone.setdefault(seat.node, set()).add(seat.gpu)
        used = {node: gpus - gone.get(node, set()) for node, gpus in self.used.items()}
        return Occupancy(used, self.owners, self.names)


class Seat(msgspec.Struct, frozen=True, gc=False):
    """Where one rank sits. `gpu` is the GPU's index on the node, `nic` the name of the HCA that serves it. A gang has
    thousands of them: made in a tenth of the time that a dataclass takes.
    """

    rank: int
    node: str
    local_rank: int
    gpu: int
    nic: str
    rail: int
    segment: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Nodes with consecutive ranks in one NVLink domain, in rank order. `rack` is `r01+r02` for a domain over two."""

    index: int
    domain: DomainKey
    rack: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CostTerm:
    """One figure by which the placement was chosen, smaller being better, and what it means."""

    name: str
    value: float
    meaning: str


@dataclass(frozen=True, slots=True)
class RackVerdict:
    """What one rack had to offer. `binding` names the constraint that binds there; counts are nodes."""

    rack: str
    chosen: bool
    binding: str
    detail: str
    free_nodes: int
    needed: int


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to mend a segment that lost nodes. `ranks` counts those that would move, 0 where the way is barred."""

    segment: int
    way: str
    """`same-domain`, `other-domain` or `split`."""
    chosen: bool
    ranks: int
    detail: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Seats for every rank of the gang, in rank order."""

    seats: tuple[Seat, ...]
    segments: tuple[Segment, ...]
    spares: tuple[str, ...]
    """Free nodes kept beside the gang for its own repairs; whoever keeps the occupancy counts them as held."""
    cost: tuple[CostTerm, ...]
    racks: tuple[RackVerdict, ...]
    choices: tuple[Choice, ...] = ()
    """After a fault: what each way to mend each hurt segment would have moved."""

    def nodes(self) -> tuple[str, ...]:
        """The nodes in use, in rank order, each once."""
        return tuple(dict.fromkeys(seat.node for seat in self.seats))


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why there is no seat: the one constraint that decides, and the smallest change that would fit."""

    constraint: str
    summary: str
    racks: tuple[RackVerdict, ...]
    fix: str
