"""What rules look at: the facts indexed once by node, where each node stands and what it is compared with."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rackyard.fabric.expect.devices import Devices
from rackyard.fabric.expect.kinds import Kind, families, kinds_of
from rackyard.fabric.expect.parts import GpuView, NicView, gpu_views, nic_groups, order
from rackyard.fabric.facts import Facts, GpuFact, HostFact, NicFact
from rackyard.fabric.model import UNPLACED, DomainKey, Gpu, Nic, Node, Site, is_zero


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node. GPUs of nodes of one `family` (GPU product) are compared, HCAs of nodes of one `kind` (the same HCAs,
    too).

    `domain` is the NVLink domain most of its GPUs are in, by the host's label where no GPU says; None when nobody
    said or it is a domain of its own (zero cluster UUID).
    """

    name: str
    family: str
    kind: Kind
    rack: str
    chassis: str
    slot: int | None
    tray: int | None
    hosts: tuple[HostFact, ...]
    gpus: tuple[GpuView, ...]
    nics: tuple[NicView, ...]
    domain: DomainKey | None

    @property
    def key(self) -> tuple[str, str]:
        """Name and order."""
        return self.name, ""

    @property
    def has_product(self) -> bool:
        """Whether anybody says what its GPUs are; without that, GPUs of other products may be among its family."""
        return any(gpu.fact.product for gpu in self.gpus) or any(host.product for host in self.hosts)

    @property
    def whole(self) -> bool:
        """Whether it has as many HCA ports as its kind, so that HCAs may be compared by name."""
        return len(self.nics) >= len(self.kind.ports)


@dataclass(frozen=True, slots=True)
class Context:
    """All that a rule may look at."""

    facts: Facts
    site: Site
    design: Site | None
    nodes: Mapping[str, NodeView]
    pci: Devices

    def gpus(self) -> Iterator[tuple[NodeView, GpuView]]:
        """Every GPU with its node."""
        return ((node, gpu) for node in self.nodes.values() for gpu in node.gpus)

    def nics(self) -> Iterator[tuple[NodeView, NicView]]:
        """Every HCA port with its node."""
        return ((node, nic) for node in self.nodes.values() for nic in node.nics)

    def at(self, node: str, part: str = "") -> str:
        """Where something is: `rack r01, tray 4, node r01-t05, GPU 2`, without what nobody knows."""
        view = self.nodes.get(node)
        places = [f"rack {view.rack}"] if view and view.rack else []
        places += [f"tray {view.tray}"] if view and view.tray is not None else []
        return ", ".join([*places, f"node {node}", *([part] if part else [])])

    def designed_node(self, name: str) -> Node | None:
        """The node as designed; None without a design or where the design does not have it."""
        return self.design.node(name) if self.design and self.design.has_node(name) else None

    def designed_gpu(self, gpu: GpuView) -> Gpu | None:
        """The GPU as designed, by index or else by PCI address."""
        node = self.designed_node(gpu.node)
        return next((one for one in node.gpus if _is(gpu.fact, one)), None) if node else None

    def designed_nic(self, nic: NicView) -> Nic | None:
        """The HCA as designed, by name."""
        node = self.designed_node(nic.node)
        return next((one for one in node.nics if one.name == nic.fact.name), None) if node else None


def _is(fact: GpuFact, gpu: Gpu) -> bool:
    return fact.index == gpu.index if fact.index is not None else fact.pci is not None and fact.pci == gpu.pci


def build(facts: Facts, site: Site, design: Site | None) -> Context:
    """Index the facts. A node is whatever a host, GPU or HCA fact names."""
    hosts, gpu_facts, nic_facts = by_node(facts.hosts), by_node(facts.gpus), by_node(facts.nics)
    names = sorted({*hosts, *gpu_facts, *nic_facts})
    arch = {fact.node: fact.arch for fact in facts.cpus if fact.arch}
    gpus = {name: gpu_views(name, own) for name, own in gpu_facts.items()}
    nics = {name: nic_groups(own) for name, own in nic_facts.items()}
    told = {name: own if len(own) == 1 else sorted(own, key=order) for name, own in hosts.items()}
    products = {name: _product(gpus.get(name, ()), told.get(name, ())) for name in names}
    family = families(names, products, arch, {name: len(own) for name, own in gpus.items()})
    rack = {name: _rack(name, told.get(name, ()), site) for name in names}
    kinds = kinds_of(family, rack, {name: [fact for fact, _ in own] for name, own in nics.items()})
    nodes = {}
    for name in names:
        own = told.get(name, ())
        mine = gpus.get(name, ())
        nodes[name] = NodeView(
            name,
            family[name],
            kinds[name],
            rack[name],
            *_place(own, mine),
            tuple(own),
            mine,
            tuple(_nic_view(name, nic, kinds[name]) for nic in nics.get(name, ())),
            _domain(own, mine),
        )
    return Context(facts, site, design, nodes, Devices(facts))


class _OfNode(Protocol):
    @property
    def node(self) -> str: ...


F = TypeVar("F", bound=_OfNode)


def by_node(facts: Iterable[F]) -> dict[str, list[F]]:
    """The facts of each node."""
    found: dict[str, list[F]] = defaultdict(list)
    for fact in facts:
        found[fact.node].append(fact)
    return found


def most(values: Iterable[object]) -> object | None:
    """The value that is given most often, the smallest of several; None when none is given."""
    told = [value for value in values if value is not None]
    if not told or told.count(told[0]) == len(told):
        return told[0] if told else None
    counts = Counter(told)
    return min(counts, key=lambda value: (-counts[value], str(value)))


def _product(gpus: Sequence[GpuView], hosts: Sequence[HostFact]) -> str | None:
    product = most(gpu.fact.product for gpu in gpus) or most(host.product for host in hosts)
    return str(product) if product else None


def _rack(name: str, hosts: Sequence[HostFact], site: Site) -> str:
    if site.has_node(name) and (rack := site.node(name).rack) not in ("", UNPLACED):
        return rack
    return next((host.rack for host in hosts if host.rack), "")


def _place(hosts: Sequence[HostFact], gpus: Sequence[GpuView]) -> tuple[str, int | None, int | None]:
    """Chassis, slot and compute tray, by the host's own facts first."""
    values = []
    for name in ("chassis", "slot", "tray"):
        value = most([getattr(host, name) for host in hosts])
        values.append(value if value is not None else most([getattr(gpu.fact, name) for gpu in gpus]))
    chassis, slot, tray = values
    return str(chassis or ""), slot if isinstance(slot, int) else None, tray if isinstance(tray, int) else None


def _nic_view(node: str, nic: tuple[NicFact, tuple[NicFact, ...]], kind: Kind) -> NicView:
    fact, facts = nic
    return NicView(node, fact, facts, kind.places.get(fact.pci or "", fact.name))


def _domain(hosts: Sequence[HostFact], gpus: Sequence[GpuView]) -> DomainKey | None:
    for facts in ([gpu.fact for gpu in gpus], hosts):
        key = most(
            [
                (fact.cluster_uuid, fact.clique_id)
                for fact in facts
                if fact.cluster_uuid and fact.clique_id is not None and not is_zero(fact.cluster_uuid)
            ]
        )
        if isinstance(key, tuple):
            return DomainKey(str(key[0]).lower(), key[1])
    return None
