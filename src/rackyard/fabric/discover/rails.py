"""Which rail a leaf and a NIC are on, and which hosts on the compute network are compute trays at all.

HCA names differ by cloud and image (`mlx5_0,1,4,5`, `HCA-1,2,5,6`), so a name says nothing by itself. The set of names
of a whole tray, in natural order, gives the rails 0, 1, 2, …; a leaf is on the rail that most of its cables come from.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rackyard.fabric.discover.cabling import Cabling, HostPort
from rackyard.fabric.discover.names import natural

UNNAMED = "unnamed"
"""How the made-up names of hosts without a node description start."""


@dataclass(frozen=True, slots=True)
class Rails:
    """`hosts` are compute hosts with their ports, `others` are not (fabric managers, storage). `meant` is the rail that
    an HCA is for by its place among its host's HCAs; `leaf` the rail of a leaf, -1 when it serves several.
    """

    hosts: Mapping[str, tuple[HostPort, ...]] = field(default_factory=dict)
    others: Mapping[str, tuple[HostPort, ...]] = field(default_factory=dict)
    meant: Mapping[tuple[str, str], int] = field(default_factory=dict)
    leaf: Mapping[str, int] = field(default_factory=dict)
    home: Mapping[str, int] = field(default_factory=dict)
    """The group of leaves that most of a host's cables end in."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The HCAs that a host should have, by the pattern of its kind."""


def rails(cabling: Cabling, owners: Mapping[str, tuple[str, str]]) -> Rails:
    """`owners` knows host and device of an HCA by GUID, where host captures told them."""
    ports = [_owned(port, owners) for port in cabling.ports if cabling.tiers.get(port.leaf) == 0]
    by_host: dict[str, list[HostPort]] = defaultdict(list)
    for port in ports + _nameless(ports, cabling):
        if port.host:
            by_host[port.host].append(port)
    sets = {host: tuple(sorted({port.device for port in own}, key=natural)) for host, own in by_host.items()}
    common = Counter(names for host, names in sets.items() if not host.startswith(UNNAMED))
    whole = {names: _whole(names, common) for names in common}
    compute = _compute(by_host, sets, cabling)
    meant = {
        (host, device): place
        for host, names in sets.items()
        if names in whole
        for place, device in enumerate(whole[names])
    }
    leaf = _leaf_rails(by_host, compute, meant)
    for host, own in by_host.items():
        if host.startswith(UNNAMED):
            meant.update({(host, port.device): leaf.get(port.leaf, -1) for port in own})
    return Rails(
        hosts={host: tuple(own) for host, own in by_host.items() if host in compute},
        others={host: tuple(own) for host, own in by_host.items() if host not in compute},
        meant=meant,
        leaf=leaf,
        home={host: _home(own, cabling) for host, own in by_host.items()},
        names={host: whole.get(names, names) for host, names in sets.items()},
    )


def _home(ports: Sequence[HostPort], cabling: Cabling) -> int:
    groups = [cabling.group[port.leaf] for port in ports]
    if len(set(groups)) == 1:
        return groups[0]
    counted = Counter(groups)
    return min(counted, key=lambda group: (-counted[group], group))


def _owned(port: HostPort, owners: Mapping[str, tuple[str, str]]) -> HostPort:
    owner = owners.get(port.guid)
    if owner is None or owner == (port.host, port.device):
        return port
    return replace(port, host=owner[0], device=owner[1])


def _whole(names: tuple[str, ...], common: Counter[tuple[str, ...]]) -> tuple[str, ...]:
    """The HCAs of a whole host of the same kind: the commonest set that holds these, if it is at least as common."""
    inside = set(names)
    larger = [other for other in common if inside < set(other) and common[other] >= common[names]]
    return max(larger, key=lambda other: (common[other], len(other)), default=names)


def _nameless(ports: Sequence[HostPort], cabling: Cabling) -> list[HostPort]:
    """HCAs without a node description, put together into hosts by their leaf port where a tray has the same port number
    on all of its leaves, as the named trays of the group show. Elsewhere they stay unknown.
    """
    by_host: dict[str, list[HostPort]] = defaultdict(list)
    loose: dict[int, dict[str, list[HostPort]]] = defaultdict(lambda: defaultdict(list))
    for port in ports:
        if port.host:
            by_host[port.host].append(port)
        else:
            loose[cabling.group[port.leaf]][port.leaf_port].append(port)
    places: dict[int, list[Counter[str]]] = defaultdict(list)
    for own in by_host.values():
        if len(own) > 1:
            places[cabling.group[own[0].leaf]].append(Counter(port.leaf_port for port in own))
    title: dict[int, str] = {}
    for leaf in cabling.leaves():
        title.setdefault(cabling.group[leaf], leaf)
    found = []
    for group, by_place in loose.items():
        told = places[group]
        if told and sum(len(place) == 1 for place in told) >= 0.8 * len(told):
            named = {own.most_common(1)[0][0] for own in told}
            for place, own in _whole_hosts(by_place, named):
                name = f"{UNNAMED}-{title[group]}-port-{place}"
                found += [replace(port, host=name, device=port.guid or port.leaf) for port in own]
    return found


def _whole_hosts(by_place: Mapping[str, list[HostPort]], named: set[str]) -> Iterable[tuple[str, list[HostPort]]]:
    """A host for each leaf port. What is left over at ports with too few leaves is one host when no two of the pieces
    are on one leaf: a tray whose cables are crossed with those of named ones.
    """
    most = max(len(own) for own in by_place.values())
    pieces = {place: own for place, own in by_place.items() if len(own) < most}
    together = [port for own in pieces.values() for port in own]
    if len(pieces) > 1 and len({port.leaf for port in together}) == len(together) <= most:
        home = min(pieces, key=lambda place: (place in named, natural(place)))
        yield home, together
    else:
        yield from pieces.items()
    yield from ((place, own) for place, own in by_place.items() if place not in pieces)


def _compute(
    by_host: Mapping[str, Sequence[HostPort]], sets: Mapping[str, tuple[str, ...]], cabling: Cabling
) -> frozenset[str]:
    """A host with half of the usual number of HCAs or fewer, on leaf ports that few leaves use for hosts, is something
    else: a fabric manager or a storage server. A tray that lost HCAs still stands where trays stand.
    """
    usual = Counter(len(names) for names in sets.values()).most_common(1)
    if not usual:
        return frozenset()
    places: dict[str, set[str]] = defaultdict(set)
    for own in by_host.values():
        for port in own:
            places[port.leaf_port].add(port.leaf)
    leaves = sum(1 for tier in cabling.tiers.values() if tier == 0)

    def at_trays_place(own: Sequence[HostPort]) -> bool:
        return any(2 * len(places[port.leaf_port]) >= leaves for port in own)

    return frozenset(host for host, own in by_host.items() if 2 * len(sets[host]) > usual[0][0] or at_trays_place(own))


def _leaf_rails(
    by_host: Mapping[str, Sequence[HostPort]], compute: frozenset[str], meant: Mapping[tuple[str, str], int]
) -> dict[str, int]:
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    for host, own in by_host.items():
        if host in compute and not host.startswith(UNNAMED):
            for port in own:
                votes[port.leaf][meant[host, port.device]] += 1
    found = {}
    for leaf, counted in votes.items():
        rail, count = min(counted.items(), key=lambda item: (-item[1], item[0]))
        found[leaf] = rail if 2 * count > counted.total() else -1
    return found
