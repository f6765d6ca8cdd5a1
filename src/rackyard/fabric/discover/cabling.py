"""The compute network as its cables tell it: which switch is a leaf, which host port ends on which leaf port.

Nothing here depends on how a site names its switches or hosts: tiers follow from the distance to hosts, groups of
leaves (a rack's, or a scalable unit's) from the hosts they share.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rackyard.fabric.discover.names import NAMELESS, HostNames, natural
from rackyard.fabric.facts import CableFact, End, NicFact, Source, SwitchFact


@dataclass(frozen=True, slots=True)
class HostPort:
    """An HCA port and the leaf port at its other end. `host` is empty when the HCA never got a node description."""

    host: str
    device: str
    guid: str
    leaf: str
    leaf_port: str
    gbps: float | None
    source: Source


@dataclass(frozen=True, slots=True)
class Uplink:
    """One cable from a switch to one that is farther from the hosts."""

    port: str
    spine: str
    source: Source


@dataclass(frozen=True, slots=True)
class Cabling:
    """`tiers` has 0 for leaves, 1 for spines, and so on; `group` numbers the groups of leaves."""

    ports: tuple[HostPort, ...] = ()
    tiers: Mapping[str, int] = field(default_factory=dict)
    uplinks: Mapping[str, tuple[Uplink, ...]] = field(default_factory=dict)
    switches: Mapping[str, SwitchFact] = field(default_factory=dict)
    group: Mapping[str, int] = field(default_factory=dict)
    one_sided: tuple[CableFact, ...] = ()
    """Cables that one end lists and the other, which was read too, does not."""

    def leaves(self) -> list[str]:
        """Every leaf, group by group, in natural order."""
        found = [name for name, tier in self.tiers.items() if tier == 0]
        return sorted(found, key=lambda name: (self.group.get(name, -1), natural(name)))


def cabling(
    cables: Iterable[CableFact], nics: Iterable[NicFact], switches: Iterable[SwitchFact], names: HostNames
) -> Cabling:
    """Put the compute network together from cables (either end's word) and from what NICs heard over LLDP."""
    ports: dict[tuple[str, str], HostPort] = {}
    links: dict[str, dict[str, tuple[str, Source]]] = defaultdict(dict)
    cables = list(cables)
    # A switch's own list is the better half: what HCAs say counts only of switches whose list was not read.
    read = {cable.a.owner for cable in cables if cable.a.kind == "switch"}
    for cable in cables:
        if cable.a.kind == "switch" or (cable.b is not None and cable.b.owner not in read):
            _take(cable, ports, links, names)
    for nic in nics:
        if nic.leaf:
            key = (nic.leaf, nic.leaf_port or f"{nic.node} {nic.name}")
            ports.setdefault(
                key, HostPort(names(nic.node), nic.name, nic.guid or "", nic.leaf, key[1], nic.gbps, nic.source)
            )
    tiers = _tiers(ports.values(), links)
    uplinks = {
        switch: tuple(
            Uplink(port, far, source)
            for port, (far, source) in sorted(ends.items(), key=lambda item: natural(item[0]))
            if tiers.get(far, 99) > tiers.get(switch, 99)
        )
        for switch, ends in links.items()
    }
    by_name = {switch.name: switch for switch in switches}
    return Cabling(tuple(ports.values()), tiers, uplinks, by_name, _groups(ports.values()), _one_sided(cables))


def _take(
    cable: CableFact,
    ports: dict[tuple[str, str], HostPort],
    links: dict[str, dict[str, tuple[str, Source]]],
    names: HostNames,
) -> None:
    a, b = cable.a, cable.b
    if b is None:
        return
    if a.kind == "switch" and b.kind == "switch":
        links[a.owner][_port(a)] = (b.owner, cable.source)
        links[b.owner].setdefault(_port(b), (a.owner, cable.source))
    elif a.kind == "switch" and b.kind == "hca":
        if (key := (a.owner, _port(a))) not in ports:
            ports[key] = _host_port(b, a, cable, names)
    elif a.kind == "hca" and b.kind == "switch" and (key := (b.owner, _port(b))) not in ports:
        ports[key] = _host_port(a, b, cable, names)


def _one_sided(cables: Sequence[CableFact]) -> tuple[CableFact, ...]:
    """Cables that one end lists and the other end, though its own list was read, does not."""
    listed: dict[str, set[int]] = defaultdict(set)
    for cable in cables:
        listed[cable.a.guid or cable.a.owner].add(cable.a.port)
    return tuple(
        cable
        for cable in cables
        if (far := cable.b) is not None
        and (own := listed.get(far.guid or far.owner)) is not None
        and far.port not in own
    )


def _host_port(hca: End, leaf: End, cable: CableFact, names: HostNames) -> HostPort:
    host = "" if hca.owner.lower() in NAMELESS else names(hca.owner)
    return HostPort(host, hca.device, hca.guid, leaf.owner, _port(leaf), cable.gbps, cable.source)


_NUMBERS = tuple(str(number) for number in range(1024))


def _port(end: End) -> str:
    if end.kind == "switch" and end.device:
        return end.device
    return _NUMBERS[end.port] if 0 <= end.port < 1024 else str(end.port)


def _tiers(ports: Iterable[HostPort], links: Mapping[str, Mapping[str, tuple[str, Source]]]) -> dict[str, int]:
    near: dict[str, set[str]] = {switch: {far for far, _ in ends.values()} for switch, ends in links.items()}
    hosts = Counter(port.leaf for port in ports)
    # A management host or two on a spine do not make it a leaf: what a spine leads to has hosts itself.
    tiers = {}
    for switch, count in hosts.items():
        ends = near.get(switch, set())
        if count >= len(ends) or 2 * sum(far in hosts for far in ends) <= len(ends):
            tiers[switch] = 0
    edge, tier = list(tiers), 0
    while edge:
        tier += 1
        edge = [far for far in dict.fromkeys(far for name in edge for far in near.get(name, ())) if far not in tiers]
        tiers.update(dict.fromkeys(edge, tier))
    return tiers


def _groups(ports: Iterable[HostPort]) -> dict[str, int]:
    """Leaves that share at least half of their hosts serve the same racks. A tray plugged into a foreign leaf is one of
    many there, so a wrong cable does not join two groups.
    """
    leaves_of: dict[str, set[str]] = defaultdict(set)
    hosts_on: Counter[str] = Counter()
    order: dict[str, None] = {}
    for port in ports:
        order.setdefault(port.leaf)
        if port.host and port.leaf not in leaves_of[port.host]:
            leaves_of[port.host].add(port.leaf)
            hosts_on[port.leaf] += 1
    shared: Counter[tuple[str, str]] = Counter()
    for leaves in leaves_of.values():
        ranked = sorted(leaves)
        shared.update((one, two) for at, one in enumerate(ranked) for two in ranked[at + 1 :])
    parent = {leaf: leaf for leaf in order}

    def root(leaf: str) -> str:
        while parent[leaf] != leaf:
            parent[leaf] = leaf = parent[parent[leaf]]
        return leaf

    for (one, two), count in shared.items():
        if 2 * count >= min(hosts_on[one], hosts_on[two]):
            parent[root(two)] = root(one)
    numbers: dict[str, int] = {}
    return {leaf: numbers.setdefault(root(leaf), len(numbers)) for leaf in order}
