"""What a site is made of. Plain frozen values; readers, the simulator and the YAML form all make these.

A rack is furniture and an NVLink domain is a network: a domain may span racks, and a rack may hold several domains or
none. Placement asks about domains; faults and people ask about racks.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Literal, TypeVar

import msgspec

NodeKind = Literal["nvl72-tray", "hgx", "unknown"]
"""`unknown` is a machine whose GPUs nobody has looked at yet."""


UNPLACED = "unplaced"
"""The rack of nodes that nobody can place anywhere."""


class Health(StrEnum):
    """How a part is doing. UNKNOWN is never treated as healthy."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Who said so: the reader, the file and the line (from 1), and whether it was made up by the simulator."""

    reader: str
    file: str = ""
    line: int | None = None
    simulated: bool = False


@dataclass(frozen=True, slots=True, order=True)
class DomainKey:
    """An NVLink domain. Clique ids collide across racks, so it takes the pair (facts: dra-driver-nvidia-gpu#377).

    An HGX server reports a zero cluster UUID; its key is `node:<name>` instead, so that no two servers share one.
    """

    cluster_uuid: str
    clique_id: int

    def __str__(self) -> str:
        return f"{self.cluster_uuid}.{self.clique_id}"  # as in the label nvidia.com/gpu.clique

    @property
    def is_own(self) -> bool:
        """Whether it is one server's own, shared with no other."""
        return self.cluster_uuid.startswith("node:")


def is_zero(cluster_uuid: str | None) -> bool:
    """Whether a cluster UUID says that the GPU is of no NVLink domain beyond its node: all zeros, or nothing."""
    return not (cluster_uuid or "").strip("0-")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `nvlinks` counts the links that are up, -1 when nobody said; `memory_gib` in GiB is 0 when not known."""

    index: int
    kind: str
    uuid: str
    pci: str
    numa: int
    nvlinks: int
    memory_gib: float
    health: Health = Health.HEALTHY


@dataclass(frozen=True, slots=True)
class Nic:
    """One NIC of the compute network. `name` is the HCA's; `gbps` its rate in Gb/s; `leaf` the switch it ends on and
    `leaf_port` the port there. Rail -1, rate 0 and empty texts are what nobody said.
    """

    index: int
    name: str
    rail: int
    gbps: int
    numa: int
    pci: str
    leaf: str
    health: Health = Health.HEALTHY
    guid: str = ""
    leaf_port: str = ""


@dataclass(frozen=True, slots=True)
class Cpu:
    """The CPUs of one NUMA node, as Linux lists them (`0-71`). `arch` is x86_64 or arm64; `vendor`, `family`, `model`
    as /proc/cpuinfo gives them on x86; empty and -1 are what nobody said.
    """

    numa: int
    cpus: str
    arch: str = ""
    vendor: str = ""
    family: int = -1
    model: int = -1


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function, root ports and both sides of switches included, as sysfs shows it. `parent` is the bridge
    above, empty for a root port of NUMA node `numa`. Speed and width are what the link can do.
    """

    bdf: str
    parent: str
    numa: int
    pci_class: str
    vendor: str = ""
    device: str = ""
    subsystem_vendor: str = ""
    subsystem_device: str = ""
    link_speed: str = ""
    link_width: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """What a scheduler sees: a compute tray of an NVL72 rack, or an HGX server. Slot -1 is what nobody said."""

    name: str
    kind: NodeKind
    rack: str
    slot: int
    domain: DomainKey
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    cpus: tuple[Cpu, ...] = ()
    health: Health = Health.HEALTHY
    cordoned: str = ""
    """Why no new work may come here; empty when it may."""
    tray: int = -1
    """Index among the compute trays of the chassis, -1 when nobody said. `slot` counts every tray."""
    chassis: str = ""
    """Serial number of the rack's chassis."""
    pci: tuple[PciDevice, ...] = ()
    """The PCI tree, parents before children; empty when nobody said."""


@dataclass(frozen=True, slots=True)
class SwitchTray:
    """An NVSwitch tray; each of its ASICs carries one link of every GPU of the domain."""

    name: str
    rack: str
    slot: int
    asics: int
    health: Health = Health.HEALTHY


@dataclass(frozen=True, slots=True)
class NvCable:
    """One NVLink from a GPU of a compute tray to a port of an NVSwitch ASIC. `plane` is the ASIC's number in the
    domain, -1 when nobody said; `up` is whether both ends see the link.
    """

    node: str
    gpu: int
    port: int
    switch_tray: str
    asic: int
    switch_port: int
    plane: int
    up: bool


@dataclass(frozen=True, slots=True)
class Rack:
    """A rack. `domain` is the NVLink domain its switch trays form; None where it has none. `nvlinks` is the map from
    compute tray to switch tray, empty where no fabric manager was asked.
    """

    name: str
    domain: DomainKey | None = None
    switch_trays: tuple[SwitchTray, ...] = ()
    nvlink: Health = Health.HEALTHY
    nvlinks: tuple[NvCable, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf switch of the compute network: one rail of one rack; `uplinks` counts its links to spines, and `spines`
    names those it reaches, each once. Rail -1 is a leaf that serves several rails.
    """

    name: str
    rail: int
    rack: str
    uplinks: int
    spines: tuple[str, ...] = ()
    guid: str = ""


@dataclass(frozen=True, slots=True)
class Spine:
    """A spine switch of the compute network, or a switch above the spines. `above` are the switches it links up to."""

    name: str
    guid: str = ""
    above: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """Everything there is. Order is kept: racks and nodes stand in the order in which jobs fill them."""

    name: str
    simulated: bool
    racks: tuple[Rack, ...]
    nodes: tuple[Node, ...]
    leaves: tuple[Leaf, ...]
    spines: tuple[Spine, ...]
    provenance: Provenance
    _nodes: dict[str, Node] = field(init=False, repr=False, compare=False)
    _racks: dict[str, Rack] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index by name. ValueError for a name used twice or a node in a rack that is not there."""
        object.__setattr__(self, "_nodes", _by_name("node", self.nodes))
        object.__setattr__(self, "_racks", _by_name("rack", self.racks))
        _by_name("leaf", self.leaves)
        for node in self.nodes:
            if node.rack not in self._racks:
                raise ValueError(f"node {node.name} stands in rack {node.rack}, which is not in the site")

    def node(self, name: str) -> Node:
        """The node called `name`. KeyError when there is none."""
        return self._nodes[name]

    def rack(self, name: str) -> Rack:
        """The rack called `name`. KeyError when there is none."""
        return self._racks[name]

    def has_node(self, name: str) -> bool:
        """Whether there is a node of that name."""
        return name in self._nodes

    def nodes_in_domain(self, key: DomainKey) -> tuple[Node, ...]:
        """The nodes of one NVLink domain, in site order; empty when nothing has that key."""
        return tuple(node for node in self.nodes if node.domain == key)

    def nodes_in_rack(self, name: str) -> tuple[Node, ...]:
        """The nodes standing in one rack, in site order."""
        return tuple(node for node in self.nodes if node.rack == name)

    def rails(self) -> tuple[int, ...]:
        """The rails that any NIC of the site is on, ascending."""
        return tuple(sorted({nic.rail for node in self.nodes for nic in node.nics}))

    def gpus(self) -> int:
        """How many GPUs the site has, in whatever health."""
        return sum(len(node.gpus) for node in self.nodes)

    def with_health(
        self, *, nodes: Mapping[str, Health] | None = None, nvlink: Mapping[str, Health] | None = None
    ) -> "Site":
        """The same site with the health of some nodes, and the NVLink health of some racks, set. KeyError as above."""
        for name in nodes or {}:
            self.node(name)
        for name in nvlink or {}:
            self.rack(name)
        changed = tuple(replace(n, health=nodes[n.name]) if nodes and n.name in nodes else n for n in self.nodes)
        racks = tuple(replace(r, nvlink=nvlink[r.name]) if nvlink and r.name in nvlink else r for r in self.racks)
        return replace(self, nodes=changed, racks=racks)

    def with_cordon(self, reasons: Mapping[str, str]) -> "Site":
        """The same site with nodes cordoned for the given reasons; an empty reason lifts the cordon."""
        for name in reasons:
            self.node(name)
        changed = tuple(replace(n, cordoned=reasons[n.name]) if n.name in reasons else n for n in self.nodes)
        return replace(self, nodes=changed)

    def digest(self) -> str:
        """SHA-256 of the content in hex: the same for the same hardware in the same state, wherever it was read."""
        content = {f.name: msgspec.to_builtins(getattr(self, f.name)) for f in fields(self) if f.name[0] != "_"}
        del content["provenance"]
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


_Named = TypeVar("_Named", Node, Rack, Leaf)


def _by_name(what: str, parts: Iterable[_Named]) -> dict[str, _Named]:
    index: dict[str, _Named] = {}
    for part in parts:
        if part.name in index:
            raise ValueError(f"two {what}s are called {part.name}")
        index[part.name] = part
    return index
