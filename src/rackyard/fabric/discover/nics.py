"""The compute NICs of a node: what the host says of its HCAs, joined with the leaf port that each one ends on."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rackyard.fabric.discover.cabling import HostPort
from rackyard.fabric.discover.names import natural
from rackyard.fabric.discover.rails import Rails
from rackyard.fabric.discover.records import merge
from rackyard.fabric.facts import NicFact
from rackyard.fabric.model import Health, Nic
from rackyard.findings import Finding


def merged_nics(node: str, records: Sequence[NicFact], findings: list[Finding]) -> list[NicFact]:
    """One record for each HCA port of a node. LLDP knows interfaces only, so an interface's record joins its HCA's."""
    device_of = {record.netdev: record.name for record in records if record.netdev and record.netdev != record.name}
    groups: dict[tuple[str, int], list[NicFact]] = defaultdict(list)
    for record in records:
        groups[device_of.get(record.name, record.name), record.port].append(record)
    return [
        merge(group, partial("node {}, NIC {}".format, node, name), findings, also=("name", "netdev"))
        for (name, _), group in groups.items()
    ]


def owners(nics: Mapping[str, Sequence[NicFact]]) -> dict[str, tuple[str, str]]:
    """Host and device by GUID. A GUID that two HCAs claim tells neither."""
    found: dict[str, tuple[str, str]] = {}
    twice: set[str] = set()
    for node, own in nics.items():
        for nic in own:
            if nic.guid and found.setdefault(nic.guid, (node, nic.name)) != (node, nic.name):
                twice.add(nic.guid)
    return {guid: owner for guid, owner in found.items() if guid not in twice}


def compute_types(nics: Iterable[NicFact]) -> frozenset[str]:
    """The HCA types of the compute network: of each set of machines with the same HCA types, the fastest type."""
    best: dict[str, float] = defaultdict(float)
    by_node: dict[str, set[str]] = defaultdict(set)
    for nic in nics:
        if nic.hca_type:
            best[nic.hca_type] = max(best[nic.hca_type], nic.gbps or 0)
            by_node[nic.node].add(nic.hca_type)
    kinds = Counter(frozenset(types) for types in by_node.values())
    return frozenset(max(types, key=lambda name: (best[name], name)) for types in kinds)


def nics_of(
    node: str, facts: Sequence[NicFact], ports: Sequence[HostPort], rails: Rails, types: frozenset[str]
) -> tuple[Nic, ...]:
    """The NICs of the compute network: HCAs of the compute types, and whatever ends on a leaf."""
    claimed = [fact.guid for fact in facts]
    by_guid = {port.guid: port for port in ports if port.guid and claimed.count(port.guid) < 2}
    by_name = {port.device: port for port in ports}
    found: dict[str, tuple[NicFact | None, HostPort | None]] = {}
    used: set[int] = set()
    for fact in facts:
        port = by_guid.get(fact.guid or "-") or by_name.get(fact.name) or by_name.get(fact.netdev or "-")
        if port is not None:
            used.add(id(port))
        elif (fact.hca_type and types and fact.hca_type not in types) or fact.leaf:
            continue
        found[fact.name] = (fact, port)
    for port in ports:
        if id(port) not in used:
            found.setdefault(port.device, (None, port))
    ordered = sorted(found, key=lambda name: (_meant(node, name, found[name][1], rails), natural(name)))
    made = (_nic(node, place, *found[name], rails) for place, name in enumerate(ordered))
    # A host that was looked at and has no such HCA contradicts the cable that leads to it.
    return tuple(replace(nic, health=Health.UNKNOWN) if facts and found[nic.name][0] is None else nic for nic in made)


def _nic(node: str, place: int, fact: NicFact | None, port: HostPort | None, rails: Rails) -> Nic:
    rail, leaf = -1, ""
    if port is not None:
        leaf = port.leaf
        rail = rails.leaf.get(leaf, -1)
        rail = rails.meant.get((node, port.device), -1) if rail < 0 else rail
    rate = (fact.gbps if fact else None) or (port.gbps if port else None) or 0
    return Nic(
        index=place,
        name=fact.name if fact else port.device if port else "",
        rail=rail,
        gbps=int(rate),
        numa=-1 if fact is None or fact.numa is None else fact.numa,
        pci=(fact.pci if fact else None) or "",
        leaf=leaf,
        health=_health(fact, port),
        guid=(fact.guid if fact else None) or (port.guid if port else ""),
        leaf_port=port.leaf_port if port else "",
    )


def _meant(node: str, name: str, port: HostPort | None, rails: Rails) -> int:
    return rails.meant.get((node, port.device if port else name), 999)


def _health(fact: NicFact | None, port: HostPort | None) -> Health:
    """As the host says; where only the network was read, a link that it lists is one that works."""
    if fact is not None and fact.state is not None:
        up = fact.state.upper() == "ACTIVE" and fact.phys_state in (None, "LinkUp")
        return Health.HEALTHY if up else Health.DOWN
    return Health.HEALTHY if port is not None else Health.UNKNOWN
