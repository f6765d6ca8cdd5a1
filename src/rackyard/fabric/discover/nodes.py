"""One node of the site from the merged records of it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from rackyard.fabric.discover.gpus import gpu_of
from rackyard.fabric.discover.records import contradiction
from rackyard.fabric.facts import CpuFact, GpuFact, HostFact, PciFact, PciRows
from rackyard.fabric.model import Cpu, DomainKey, Gpu, Health, Nic, Node, NodeKind, PciDevice, is_zero
from rackyard.findings import Finding

Place = tuple[str, str]
"""What somebody knows of a node's place: `named` and its rack's name, or chassis, domain or leaves and their id."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What is known of one node."""

    name: str
    host: HostFact | None
    gpus: tuple[GpuFact, ...]
    nics: tuple[Nic, ...]
    cpus: tuple[CpuFact, ...]
    pci: tuple[PciFact, ...]
    tables: tuple[PciRows, ...] = ()
    shared: DomainKey | None = None
    """The NVLink domain it shares with others, by `shared_domain`."""

    @property
    def place(self) -> Place | None:
        """The rack that somebody gave it: by name, by the chassis' serial number, as a block, or by its domain."""
        if self.host and self.host.rack:
            return "named", self.host.rack
        if self.chassis:
            return "chassis", self.chassis
        if self.host and self.host.block:
            return "named", self.host.block
        if self.host and self.host.tiers and not any(nic.guid or nic.leaf_port for nic in self.nics):
            return "named", self.host.tiers[0]
        key = self.shared
        return ("domain", f"domain-{key.cluster_uuid[:8]}.{key.clique_id}") if key else None

    @property
    def chassis(self) -> str | None:
        """The serial number of the chassis, as host or GPUs tell it."""
        return (self.host and self.host.chassis) or next((gpu.chassis for gpu in self.gpus if gpu.chassis), None)

    @property
    def slot(self) -> int | None:
        """The slot in the chassis, counting every tray."""
        given = self.host.slot if self.host else None
        return given if given is not None else next((gpu.slot for gpu in self.gpus if gpu.slot is not None), None)

    @property
    def tray(self) -> int | None:
        """The index among the compute trays of the chassis."""
        given = self.host.tray if self.host else None
        return given if given is not None else next((gpu.tray for gpu in self.gpus if gpu.tray is not None), None)


def disputed_domain(parts: Parts, told: Iterable[HostFact]) -> Finding | None:
    """The contradiction when a scheduler's label (`told` are all records of the host) names another NVLink domain than
    the GPUs do.
    """
    gpu = next((gpu for gpu in parts.gpus if gpu.cluster_uuid is not None and gpu.clique_id is not None), None)
    if gpu is None:
        return None
    for host in told:
        if host.cluster_uuid is None or host.clique_id is None:
            continue
        same = ((gpu.cluster_uuid or "").lower(), gpu.clique_id) == (host.cluster_uuid.lower(), host.clique_id)
        if not same and all(
            one.cluster_uuid != host.cluster_uuid or one.clique_id != host.clique_id for one in parts.gpus
        ):
            said = f"{gpu.source.reader} says {gpu.cluster_uuid}.{gpu.clique_id}"
            label = f"{host.source.reader} says {host.cluster_uuid}.{host.clique_id}"
            what = f"NVLink domain: {said}, {label}; the GPUs' own word is used"
            return contradiction(f"node {parts.name}", what, (gpu.source, host.source))
    return None


def shared_domain(host: HostFact | None, gpus: Sequence[GpuFact]) -> DomainKey | None:
    """The NVLink domain that most of a node's GPUs are in, or that its label gives; None for a machine of its own."""
    told = [(gpu.cluster_uuid, gpu.clique_id) for gpu in gpus]
    if not told or told.count(told[0]) < len(told):
        counted = Counter(word for word in told if not is_zero(word[0]) and word[1] is not None)
        told = [min(counted, key=lambda key: (-counted[key], str(key)))] if counted else []
    uuid, clique = told[0] if told else (None, None)
    if uuid is not None and clique is not None and not is_zero(uuid):
        return DomainKey(uuid, clique)
    if any(gpu.cluster_uuid is not None for gpu in gpus):
        return None  # the GPUs say that they share nothing, whatever a label says
    if host and host.clique_id is not None and host.cluster_uuid is not None and not is_zero(host.cluster_uuid):
        return DomainKey(host.cluster_uuid, host.clique_id)
    return _of_block(host.block) if host and host.block else None


def _of_block(block: str) -> DomainKey:
    """A scheduler's block as a domain: `<cluster UUID>.<clique id>` where it is written so, else by its own name."""
    cluster, dot, clique = block.rpartition(".")
    if dot and cluster and clique.isascii() and clique.isdecimal() and len(clique) <= 18:
        return DomainKey(cluster, int(clique))
    return DomainKey(block, 0)


def domain_of(parts: Parts) -> DomainKey:
    """The domain, or the node's own where it shares none that anybody knows of."""
    return parts.shared or DomainKey(f"node:{parts.name}", 0)


def node_of(parts: Parts, rack: str, domain: DomainKey) -> Node:
    """The node as a site holds it."""
    tree = _tree_of(parts)
    numa = {device.bdf: device.numa for device in tree}
    linked = any(fact.links for fact in parts.gpus)
    gpus = tuple(
        _astray(fact, gpu_of(place, fact, numa.get(fact.pci or ""), linked), domain)
        for place, fact in enumerate(parts.gpus)
    )
    cordoned = (parts.host and parts.host.cordoned) or ""
    return Node(
        name=parts.name,
        kind=_kind(gpus, domain),
        rack=rack,
        slot=-1 if parts.slot is None else parts.slot,
        domain=domain,
        gpus=gpus,
        nics=parts.nics,
        cpus=tuple(sorted((_cpu(fact) for fact in parts.cpus), key=lambda cpu: cpu.numa)),
        health=_health(parts, gpus),
        cordoned=cordoned,
        tray=-1 if parts.tray is None else parts.tray,
        chassis=parts.chassis or "",
        pci=tree,
    )


def _astray(fact: GpuFact, gpu: Gpu, domain: DomainKey) -> Gpu:
    """The GPU, degraded at best when it says that it is in another NVLink domain than its node."""
    if domain.is_own or fact.cluster_uuid is None or fact.clique_id is None or gpu.health is Health.DOWN:
        return gpu
    own = (fact.cluster_uuid, fact.clique_id) == (domain.cluster_uuid, domain.clique_id)
    return gpu if own else replace(gpu, health=Health.DEGRADED)


def _kind(gpus: tuple[Gpu, ...], domain: DomainKey) -> NodeKind:
    if gpus and gpus[0].kind == "unknown" and len(gpus) == 4 and not domain.is_own:
        return "nvl72-tray"  # an older capture that names no product
    if not gpus:
        return "unknown"
    return "nvl72-tray" if gpus[0].kind.startswith("GB") else "hgx"


def _health(parts: Parts, gpus: tuple[Gpu, ...]) -> Health:
    """The worst of what was looked at. With nothing looked at it is unknown; a part not looked at hides no fault."""
    given = parts.host.health if parts.host else None
    told = [health for health in (given, *(gpu.health for gpu in gpus)) if health is not None]
    links = [nic.health for nic in parts.nics]
    if given is Health.DOWN:
        return Health.DOWN
    if any(health in (Health.DOWN, Health.DEGRADED) for health in (*told, *links)):
        return Health.DEGRADED
    if not told or Health.UNKNOWN in told:
        return Health.UNKNOWN
    return Health.HEALTHY


def _cpu(fact: CpuFact) -> Cpu:
    family = -1 if fact.family is None else fact.family
    model = -1 if fact.model is None else fact.model
    return Cpu(fact.numa, fact.cpus, fact.arch or "", fact.vendor or "", family, model)


def _tree_of(parts: Parts) -> tuple[PciDevice, ...]:
    """The PCI tree. A table is one that many trays share, and so is the tree made of it."""
    if len(parts.tables) == 1 and not parts.pci:
        return _tree_of_rows(parts.tables[0])
    return _tree((*parts.pci, *(fact for rows in parts.tables for fact in rows.facts)))


@lru_cache(maxsize=1024)
def _tree_of_rows(rows: PciRows) -> tuple[PciDevice, ...]:
    return _tree(rows.facts)


def _device(fact: PciFact) -> PciDevice:
    return PciDevice(
        fact.bdf,
        fact.parent,
        -1 if fact.numa is None else fact.numa,
        fact.pci_class or "",
        fact.vendor or "",
        fact.device or "",
        fact.subsystem_vendor or "",
        fact.subsystem_device or "",
        fact.speed_max or fact.speed or "",
        fact.width_max or fact.width or 0,
    )


def _tree(facts: Iterable[PciFact]) -> tuple[PciDevice, ...]:
    """The functions, parents before children. Of two records of one function the one that knows its parent counts."""
    by_bdf: dict[str, PciDevice] = {}
    for fact in facts:
        if fact.bdf not in by_bdf or (fact.parent and not by_bdf[fact.bdf].parent):
            by_bdf[fact.bdf] = _device(fact)
    found: dict[str, PciDevice] = {}

    def take(bdf: str, depth: int) -> None:
        device = by_bdf[bdf]
        if bdf not in found and depth < 64:
            if device.parent in by_bdf:
                take(device.parent, depth + 1)
            found[bdf] = device

    for bdf in sorted(by_bdf):
        take(bdf, 0)
    return tuple(found.values())
