"""Facts of any number of captures become one Site; what they contradict one another in is reported."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from rackyard.fabric.discover import cabling as cables
from rackyard.fabric.discover import gpus, nics
from rackyard.fabric.discover.cabling import Cabling
from rackyard.fabric.discover.names import HostNames, natural
from rackyard.fabric.discover.nodes import Parts, disputed_domain, domain_of, node_of, shared_domain
from rackyard.fabric.discover.nvswitch import NvMap, nvlink_map
from rackyard.fabric.discover.racks import racks_of
from rackyard.fabric.discover.rails import Rails, rails
from rackyard.fabric.discover.records import merge as merge_records
from rackyard.fabric.discover.tiers import link_to, switches_of
from rackyard.fabric.facts import CpuFact, Facts, GpuFact, HostFact, NicFact, PciFact, PciTable
from rackyard.fabric.model import DomainKey, Health, Leaf, Node, Provenance, Rack, Site, Spine, SwitchTray
from rackyard.findings import Finding

F = TypeVar("F", HostFact, CpuFact, GpuFact, NicFact, PciFact, PciTable)


@dataclass(frozen=True, slots=True)
class Discovered:
    """A site as it was found. `facts` are all that was read, under the site's names; `findings` are contradictions and
    what readers complained of.
    """

    site: Site
    facts: Facts
    cabling: Cabling
    rails: Rails
    findings: tuple[Finding, ...]


def merge(facts: Facts, name: str = "site", *, simulated: bool = False) -> Discovered:
    """One site from everything that was read. The order of captures does not matter, but for which spelling of a host's
    name is kept and which of two equally trusted contradicting sources is used.
    """
    findings = list(facts.findings)
    names = HostNames()
    names.learn(
        fact.node
        for part in (facts.hosts, facts.gpus, facts.nics, facts.cpus, facts.pci, facts.pci_tables)
        for fact in part
    )
    names.learn(
        end.owner for cable in facts.cables for end in (cable.a, cable.b) if end is not None and end.kind == "hca"
    )
    wires = cables.cabling(facts.cables, facts.nics, facts.switches, names)
    told = _by_node(facts.hosts, names)
    hosts = {
        node: _named(merge_records(records, partial("node {}".format, node), findings), names)
        for node, records in told.items()
    }
    gpu_facts = {node: gpus.merged_gpus(node, own, findings) for node, own in _by_node(facts.gpus, names).items()}
    nic_facts = {node: nics.merged_nics(node, own, findings) for node, own in _by_node(facts.nics, names).items()}
    lanes = rails(wires, nics.owners(nic_facts))
    types = nics.compute_types(nic for own in nic_facts.values() for nic in own)
    cpu_facts, pci_facts = _by_node(facts.cpus, names), _by_node(facts.pci, names)
    tables = _by_node(facts.pci_tables, names)
    everybody = dict.fromkeys([*hosts, *gpu_facts, *nic_facts, *cpu_facts, *pci_facts, *tables, *lanes.hosts])
    parts = {
        node: Parts(
            node,
            hosts.get(node),
            tuple(gpu_facts.get(node, ())),
            link_to(
                hosts.get(node),
                nics.nics_of(node, nic_facts.get(node, ()), lanes.hosts.get(node, ()), lanes, types),
            ),
            tuple(cpu_facts.get(node, ())),
            tuple(pci_facts.get(node, ())),
            tuple(table.rows for table in tables.get(node, ())),
            shared_domain(hosts.get(node), gpu_facts.get(node, ())),
        )
        for node in everybody
        if node not in lanes.others or node in gpu_facts
    }
    findings += [
        found for part in parts.values() if (found := disputed_domain(part, told.get(part.name, ()))) is not None
    ]
    site = _site(name, parts, facts, _Network(wires, lanes), simulated)
    return Discovered(site, _renamed(facts, names), wires, lanes, tuple(findings))


def _renamed(facts: Facts, names: HostNames) -> Facts:
    """The facts, with every host under the one name that the site has for it."""
    if not names.differ:
        return facts
    return Facts(
        [_named(fact, names) for fact in facts.hosts],
        [_named(fact, names) for fact in facts.cpus],
        [_named(fact, names) for fact in facts.gpus],
        [_named(fact, names) for fact in facts.nics],
        [_named(fact, names) for fact in facts.pci],
        [_named(table, names) for table in facts.pci_tables],
        facts.switches,
        facts.cables,
        facts.nvports,
        facts.findings,
    )


def _named(fact: F, names: HostNames) -> F:
    name = names(fact.node)
    return fact if name == fact.node else replace(fact, node=name)


@dataclass(frozen=True, slots=True)
class _Network:
    wires: Cabling
    rails: Rails


def _site(name: str, parts: Mapping[str, Parts], facts: Facts, network: _Network, simulated: bool) -> Site:
    nodes = tuple(
        node_of(parts[node], rack, domain_of(parts[node]))
        for node, rack in racks_of(parts, network.wires, network.rails).items()
    )
    in_rack: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        in_rack[node.rack].append(node)
    chassis = {node.chassis: node.rack for node in nodes if node.chassis}
    trays = {(node.chassis, node.tray): node.name for node in nodes if node.chassis and node.tray >= 0}
    nvmap = nvlink_map(facts.nvports, chassis, trays)
    for rack in nvmap.trays:
        in_rack.setdefault(rack, [])
    rack_of = {node.name: node.rack for node in nodes}
    hosts = [part.host for part in parts.values() if part.host is not None]
    leaves, spines = switches_of(hosts, rack_of, set(network.wires.tiers))
    return Site(
        name=name,
        simulated=simulated,
        racks=tuple(_rack(rack, in_rack[rack], nvmap) for rack in sorted(in_rack, key=natural)),
        nodes=nodes,
        leaves=(*_leaves(nodes, network), *leaves),
        spines=(*_spines(network.wires), *spines),
        provenance=Provenance("discover", simulated=simulated),
    )


def _rack(name: str, nodes: Sequence[Node], nvmap: NvMap) -> Rack:
    shared = Counter(node.domain for node in nodes if not node.domain.is_own)
    domain: DomainKey | None = min(shared, key=lambda key: (-shared[key], key), default=None)
    trays = nvmap.trays.get(name, ())
    health = _nvlink(Counter(gpu.health for node in nodes for gpu in node.gpus), trays, shared=domain is not None)
    return Rack(name, domain, trays, health, nvmap.cables.get(name, ()))


def _nvlink(gpus: Counter[Health], trays: Sequence[SwitchTray], *, shared: bool) -> Health:
    """The health of a rack's NVLink. A GPU that is down is that GPU's fault: the rack's NVLink is in doubt when a
    switch tray is, or half of the GPUs are; it is known to be well when most GPUs are.
    """
    if not shared:
        # Servers that are domains of their own have no NVLink of the rack that could be unwell.
        return Health.HEALTHY if gpus else Health.UNKNOWN
    if any(tray.health in (Health.DOWN, Health.DEGRADED) for tray in trays):
        return Health.DEGRADED
    if 2 * (gpus[Health.DOWN] + gpus[Health.DEGRADED]) >= gpus.total() > 0:
        return Health.DEGRADED
    return Health.HEALTHY if 2 * gpus[Health.HEALTHY] > gpus.total() else Health.UNKNOWN


def _leaves(nodes: Sequence[Node], network: _Network) -> tuple[Leaf, ...]:
    on_leaf: dict[str, Counter[str]] = defaultdict(Counter)
    for node in nodes:
        for nic in node.nics:
            if nic.leaf:
                on_leaf[nic.leaf][node.rack] += 1
    wires = network.wires
    found = []
    for leaf in wires.leaves():
        switch = wires.switches.get(leaf)
        uplinks = wires.uplinks.get(leaf, ())
        spines = tuple(sorted({uplink.spine for uplink in uplinks}, key=natural))
        rack = on_leaf[leaf].most_common(1)[0][0] if on_leaf[leaf] else ""
        guid = (switch.guid if switch else None) or ""
        found.append(Leaf(leaf, network.rails.leaf.get(leaf, -1), rack, len(uplinks), spines, guid))
    rack_order = {node.rack: place for place, node in enumerate(nodes)}
    return tuple(sorted(found, key=lambda leaf: (rack_order.get(leaf.rack, -1), leaf.rail, natural(leaf.name))))


def _spines(wires: Cabling) -> tuple[Spine, ...]:
    above = sorted((tier, natural(name), name) for name, tier in wires.tiers.items() if tier > 0)
    found = []
    for _, _, name in above:
        switch = wires.switches.get(name)
        uplinks = {uplink.spine for uplink in wires.uplinks.get(name, ())}
        guid = (switch.guid if switch else None) or ""
        found.append(Spine(name, guid, tuple(sorted(uplinks, key=natural))))
    return tuple(found)


def _by_node(facts: Iterable[F], names: HostNames) -> dict[str, list[F]]:
    found: dict[str, list[F]] = {}
    for fact in facts:
        node = names(fact.node)
        if node in found:
            found[node].append(fact)
        else:
            found[node] = [fact]
    return found
