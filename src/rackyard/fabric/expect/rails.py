"""Rules about cables: is every NIC on its rail's leaf, has every rack a leaf on every rail, has every leaf its uplinks.

Without a design the commonest pattern of the site is the expectation, and what is found says so.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rackyard.fabric.discover import Discovered
from rackyard.fabric.discover.cabling import HostPort, Uplink
from rackyard.fabric.discover.names import natural
from rackyard.fabric.discover.rails import UNNAMED
from rackyard.findings import Evidence, Finding, Severity, Verdict

PATTERN = "expected by the site's own pattern"


def crossed_rails(found: Discovered) -> Iterator[Finding]:
    """HCAs that end on the leaf of another rail. Two of one tray that changed places are one finding."""
    right: dict[str, HostPort] | None = None
    for host, ports in found.rails.hosts.items():
        if host.startswith(UNNAMED):
            continue
        wrong = [port for port in ports if _is_crossed(host, port, found)]
        if not wrong:
            continue
        right = _right(found) if right is None else right
        says = ", ".join(
            f"{port.device} (rail {found.rails.meant[host, port.device]}) is on {_place(port)}"
            f" (rail {found.rails.leaf[port.leaf]})"
            for port in wrong
        )
        yield _fail(
            "fabric/rail-crossed",
            Severity.ERROR,
            _subject(host, found),
            f"rails crossed: {says}; {PATTERN}",
            [port.source.evidence() for port in wrong]
            + [right[port.leaf].source.evidence() for port in wrong if port.leaf in right],
            f"swap the cables of {' and '.join(port.device for port in wrong)} at {host}, or at the leaves",
        )


def _is_crossed(host: str, port: HostPort, found: Discovered) -> bool:
    meant, real = found.rails.meant.get((host, port.device), -1), found.rails.leaf.get(port.leaf, -1)
    return meant >= 0 and real >= 0 and meant != real


def _right(found: Discovered) -> dict[str, HostPort]:
    """One cable on each leaf that is not crossed, which shows what the leaf is for."""
    right: dict[str, HostPort] = {}
    for host, ports in found.rails.hosts.items():
        if not host.startswith(UNNAMED):
            for port in ports:
                if port.leaf not in right and not _is_crossed(host, port, found):
                    right[port.leaf] = port
    return right


def foreign_leaves(found: Discovered) -> Iterator[Finding]:
    """HCAs on a leaf that belongs to another group of racks."""
    for host, ports in found.rails.hosts.items():
        home = found.rails.home[host]
        if 2 * sum(found.cabling.group[port.leaf] == home for port in ports) <= len(ports):
            continue
        for port in ports:
            if found.cabling.group[port.leaf] != home:
                mine = sorted({p.leaf for p in ports if found.cabling.group[p.leaf] == home}, key=natural)
                yield _fail(
                    "fabric/leaf-foreign",
                    Severity.ERROR,
                    f"{_subject(host, found)}, NIC {port.device}",
                    f"{port.device} is on {_place(port)}, a leaf of other racks;"
                    f" the others of the tray are on {', '.join(mine)}",
                    [port.source.evidence(), *(p.source.evidence() for p in ports if p.leaf in mine)],
                    "move the cable to the leaf of its rail in its own rack",
                )


def missing_leaves(found: Discovered) -> Iterator[Finding]:
    """Groups of racks without a leaf on a rail that their trays have an HCA for, by the pattern of their kind."""
    groups = _rails_of_groups(found)
    hosts_of: dict[int, list[str]] = defaultdict(list)
    for host in found.rails.hosts:
        hosts_of[found.rails.home[host]].append(host)
    mixed = {found.cabling.group[leaf] for leaf, rail in found.rails.leaf.items() if rail < 0}
    for group, hosts in hosts_of.items():
        named = [found.rails.names[host] for host in hosts if not host.startswith(UNNAMED)]
        if group in mixed or not named:
            continue
        leaves = groups.get(group, {})
        wanted = Counter(len(names) for names in named).most_common(1)[0][0]
        for rail in range(wanted):
            if rail not in leaves:
                names = sorted({names[rail] for names in named if len(names) > rail})
                yield _missing_leaf(found, rail, (hosts, names), leaves, groups)


def _missing_leaf(
    found: Discovered,
    rail: int,
    trays: tuple[Sequence[str], Sequence[str]],
    leaves: Mapping[int, str],
    groups: Mapping[int, Mapping[int, str]],
) -> Finding:
    hosts, names = trays
    peers = [other[rail] for other in groups.values() if rail in other]
    others = f"{len(peers)} of {len(groups)} groups of leaves have one" + (f" ({peers[0]}, …)" if peers else "")
    switches = [found.cabling.switches[leaf] for leaf in leaves.values() if leaf in found.cabling.switches]
    return _fail(
        "fabric/leaf-missing",
        Severity.ERROR,
        f"rack {_racks_of(hosts, found)}, rail {rail}",
        f"no leaf on rail {rail}: {_names(names, '/')} is missing on all {len(hosts)} trays; {others}; {PATTERN}",
        [switch.source.evidence() for switch in switches]
        + [port.source.evidence() for port in _ports_of(hosts[:2], found)],
        "find the leaf: powered off, in another subnet, or not installed; its ranks share the other rails",
    )


def missing_rails(found: Discovered) -> Iterator[Finding]:
    """Trays without a cable on a rail whose leaf their group has."""
    groups = _rails_of_groups(found)
    for host, ports in found.rails.hosts.items():
        group = found.rails.home[host]
        leaves = groups.get(group, {})
        on = {found.rails.leaf.get(port.leaf, -1) for port in ports if found.cabling.group[port.leaf] == group}
        missing = sorted(leaves.keys() - on)
        if not missing or len(ports) >= len(leaves) or -1 in on:
            continue
        names = found.rails.names.get(host, ())
        what = ", ".join(f"rail {rail}" + (f" ({names[rail]})" if rail < len(names) else "") for rail in missing)
        yield _fail(
            "fabric/rail-missing",
            Severity.ERROR,
            _subject(host, found),
            f"no cable on {what}; {_names([leaves[rail] for rail in missing], ', ')} serves its neighbours; {PATTERN}",
            [port.source.evidence() for port in ports],
            "HCA absent, port down or cable out: look at the tray with `rackyard topo collect`, then at the leaf port",
        )


def uplinks(found: Discovered) -> Iterator[Finding]:
    """Leaves with fewer uplinks than the usual number, with the spines that they miss."""
    # A leaf whose own list was read and shows no uplink has none; of others (LLDP) nothing is known.
    read = [leaf for leaf in found.cabling.leaves() if leaf in found.cabling.switches or leaf in found.cabling.uplinks]
    leaves = read if any(found.cabling.uplinks.get(leaf) for leaf in read) else []
    counts = Counter(len(found.cabling.uplinks.get(leaf, ())) for leaf in leaves)
    if not counts:
        return
    usual, times = counts.most_common(1)[0]
    if 2 * times <= len(leaves):
        told = ", ".join(f"{count} on {leaves_with} leaves" for count, leaves_with in sorted(counts.items()))
        yield Finding(
            "fabric/uplink-missing",
            Verdict.UNKNOWN,
            Severity.WARNING,
            "fabric",
            f"no number of uplinks prevails: {told}",
            advice="give the design of the site (--design)",
        )
        return
    each = _usual_each(found, leaves, usual)
    for leaf in leaves:
        own = found.cabling.uplinks.get(leaf, ())
        if len(own) >= usual:
            continue
        to = Counter(uplink.spine for uplink in own)
        missing = ", ".join(f"{each[spine] - to[spine]} to {spine}" for spine in each if to[spine] < each[spine])
        yield _fail(
            "fabric/uplink-missing",
            Severity.ERROR if len(own) < 0.8 * usual else Severity.WARNING,
            f"leaf {leaf}",
            f"{len(own)} of {usual} uplinks, missing {missing}; {times} of {len(leaves)} leaves have {usual}",
            _uplink_evidence(leaf, own, to, each, found),
            "look at the missing ports on leaf and spine; until then traffic that leaves the rack on this rail has"
            f" {len(own) / usual:.0%} of its bandwidth",
        )


def _usual_each(found: Discovered, leaves: Sequence[str], usual: int) -> dict[str, int]:
    """How many cables a whole leaf has to each spine, by the leaves that have the usual number."""
    each: dict[str, Counter[int]] = defaultdict(Counter)
    for leaf in leaves:
        own = found.cabling.uplinks.get(leaf, ())
        if len(own) >= usual:
            for spine, count in Counter(uplink.spine for uplink in own).items():
                each[spine][count] += 1
    return {spine: each[spine].most_common(1)[0][0] for spine in sorted(each, key=natural)}


def _uplink_evidence(
    leaf: str, own: Sequence[Uplink], to: Counter[str], each: Mapping[str, int], found: Discovered
) -> list[Evidence]:
    switch = found.cabling.switches.get(leaf)
    head = [switch.source.evidence()] if switch else []
    partly = {spine for spine in each if 0 < to[spine] < each[spine]}
    shown = [uplink for uplink in own if uplink.spine in partly] or list(own)
    return head + [uplink.source.evidence() for uplink in shown]


def port_order(found: Discovered) -> Iterator[Finding]:
    """Trays with a cable on another leaf port than on their other rails, where trays keep one number on all rails: the
    network works, but maps that go by the port number name the wrong tray.
    """
    whole = [ports for ports in found.rails.hosts.values() if len(ports) > 1]
    same = sum(len({port.leaf_port for port in ports}) == 1 for ports in whole)
    if not whole or same < 0.8 * len(whole):
        return
    for host, ports in found.rails.hosts.items():
        places = Counter(port.leaf_port for port in ports)
        home, count = places.most_common(1)[0]
        if len(places) == 1 or 2 * count <= len(ports):
            continue
        odd = [port for port in ports if port.leaf_port != home]
        says = ", ".join(f"{port.device} on {_place(port)}" for port in odd)
        yield _fail(
            "fabric/port-order",
            Severity.INFO,
            _subject(host, found),
            f"port {home} on {count} leaves, but {says}; {same} of {len(whole)} trays have one port on all leaves",
            [port.source.evidence() for port in ports],
            "correct the cable plan, or swap the cables back",
        )


def nameless(found: Discovered) -> Iterator[Finding]:
    """HCAs without a node description: nobody can tell from the network whose they are."""
    ports = [port for port in found.cabling.ports if not port.host]
    if ports:
        hosts = {host for host in found.rails.hosts if host.startswith(UNNAMED)}
        yield _fail(
            "fabric/hca-nameless",
            Severity.INFO,
            "fabric",
            f"{len(ports)} HCAs carry no node description; by their leaf ports they belong to {len(hosts)} trays",
            [port.source.evidence() for port in ports[:4]],
            "set the node description on those hosts (rdma-ndd, or the mlx5 node_desc file in sysfs)",
        )


def one_sided(found: Discovered) -> Iterator[Finding]:
    """Cables that one end lists and the other does not."""
    for cable in found.cabling.one_sided:
        far = cable.b
        assert far is not None
        yield _fail(
            "fabric/cable-one-sided",
            Severity.WARNING,
            f"{cable.a.owner or cable.a.guid} port {cable.a.port}",
            f"leads to {far.owner or far.guid} port {far.port}, whose own list does not have it",
            [cable.source.evidence()],
            "the capture is cut or the fabric changed while it was taken: capture again",
        )


def _rails_of_groups(found: Discovered) -> dict[int, dict[int, str]]:
    """Leaf by rail in each group; leaves without a rail of their own are left out."""
    groups: dict[int, dict[int, str]] = defaultdict(dict)
    for leaf in found.cabling.leaves():
        rail = found.rails.leaf.get(leaf, -1)
        if rail >= 0:
            groups[found.cabling.group[leaf]].setdefault(rail, leaf)
    return dict(groups)


def _ports_of(hosts: Sequence[str], found: Discovered) -> list[HostPort]:
    return [port for host in hosts for port in found.rails.hosts[host]]


def _racks_of(hosts: Sequence[str], found: Discovered) -> str:
    return _names(list(dict.fromkeys(found.site.node(host).rack for host in hosts if found.site.has_node(host))), "+")


def _place(port: HostPort) -> str:
    """The leaf and the port on it, where the port is known by itself and not only by what is plugged in."""
    return port.leaf if " " in port.leaf_port else f"{port.leaf} port {port.leaf_port}"


def _subject(host: str, found: Discovered) -> str:
    return f"rack {found.site.node(host).rack}, tray {host}" if found.site.has_node(host) else f"host {host}"


def _names(names: Sequence[str], by: str) -> str:
    return by.join(names[:4]) + (by + "…" if len(names) > 4 else "")


def _fail(
    rule: str, severity: Severity, subject: str, summary: str, evidence: Sequence[Evidence], advice: str
) -> Finding:
    return Finding(rule, Verdict.FAIL, severity, subject, summary, tuple(evidence), advice)


@dataclass(frozen=True, slots=True)
class CableRule:
    """A rule over the cabling: its id, how much a failure matters at most, and one line on what it holds."""

    id: str
    severity: Severity
    what: str
    look: Callable[[Discovered], Iterable[Finding]]

    def check(self, found: Discovered) -> list[Finding]:
        """What is wrong."""
        return list(self.look(found))

    def well(self, found: Discovered) -> Finding:
        """The finding when nothing is wrong, or nothing was there to look at."""
        leaves, ports = len(found.rails.leaf), sum(len(own) for own in found.rails.hosts.values())
        if not leaves:
            return Finding(self.id, Verdict.NOT_APPLICABLE, Severity.INFO, "site", "no cable of the network was read")
        return Finding(self.id, Verdict.PASS, Severity.INFO, "site", f"{ports} HCA cables on {leaves} leaves")


RULES: tuple[CableRule, ...] = (
    CableRule("fabric/rail-crossed", Severity.ERROR, "every HCA is on the leaf of its rail", crossed_rails),
    CableRule("fabric/leaf-foreign", Severity.ERROR, "no HCA is on a leaf of other racks", foreign_leaves),
    CableRule("fabric/leaf-missing", Severity.ERROR, "every rack has a leaf on every rail", missing_leaves),
    CableRule("fabric/rail-missing", Severity.ERROR, "every tray has a cable on every rail of its rack", missing_rails),
    CableRule("fabric/uplink-missing", Severity.ERROR, "every leaf has all of its uplinks", uplinks),
    CableRule("fabric/cable-one-sided", Severity.WARNING, "both ends list a cable", one_sided),
    CableRule("fabric/port-order", Severity.INFO, "a tray has one port number on all of its leaves", port_order),
    CableRule("fabric/hca-nameless", Severity.INFO, "every HCA carries a node description", nameless),
)
