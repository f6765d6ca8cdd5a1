"""Racks against NVLink domains. A rack is furniture and a domain is a network: a domain over two racks (NVL36x2) or
several in one rack are layouts as long as they are regular; a single tray that stands out, or a rack that is split
where its peers are whole, is a fault. Clique ids collide across racks, so a domain is the pair of cluster UUID and
clique.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rackyard.fabric.expect.context import Context, NodeView
from rackyard.fabric.expect.majority import by_count, pattern
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.expect.words import listed
from rackyard.fabric.facts import Source
from rackyard.fabric.model import DomainKey
from rackyard.findings import Finding, Severity

_JOBS = "a job on this rack falls apart into several NVLink domains and goes over the network between them. "

Domains = Mapping[DomainKey, Sequence[NodeView]]


@dataclass(frozen=True, slots=True)
class _Rack:
    name: str
    domains: Domains
    """The nodes of each domain, most nodes first."""

    @property
    def size(self) -> int:
        return sum(map(len, self.domains.values()))

    @property
    def main(self) -> DomainKey | None:
        """The domain of more than half of its nodes."""
        return pattern({key: len(nodes) for key, nodes in self.domains.items()})


def _check(rule: Rule, ctx: Context) -> list[Finding]:
    racks = _racks(ctx)
    if not racks:
        known = sum(node.domain is not None for node in ctx.nodes.values())
        if known:
            return [rule.unknown("site", f"{known} nodes are in NVLink domains, and their racks are not known", _PLACE)]
        if any(node.gpus for node in ctx.nodes.values()):
            return [rule.not_applicable("no node is in an NVLink domain beyond itself, as far as captures tell")]
        return [rule.unknown("site", "no capture tells NVLink domains", _PLACE)]
    usual = pattern(Counter(len(rack.domains) for rack in racks)) if len(racks) > 1 else None
    home = _homes(racks)
    planned = _planned(ctx)
    findings: list[Finding] = list(_alone(rule, ctx))
    for rack in racks:
        designed = planned.get(rack.name)
        if len(rack.domains) == 1 or len(rack.domains) == (designed or usual):
            continue
        others = "the design has one" if designed else f"{_count(racks, 1)} of {len(racks)} racks are one domain"
        findings += _split(rule, ctx, rack, home, others if (designed or usual) == 1 else "")
    return rule.close(findings, _layout(racks))


_PLACE = "give captures with platform information (`nvidia-smi -q`), Kubernetes labels, or a file that names racks"


def _racks(ctx: Context) -> list[_Rack]:
    found: dict[str, dict[DomainKey, list[NodeView]]] = defaultdict(lambda: defaultdict(list))
    for node in ctx.nodes.values():
        place = node.rack or node.chassis
        if node.domain and place:
            found[place][node.domain].append(node)
    return [
        _Rack(name, dict(sorted(found[name].items(), key=lambda item: (-len(item[1]), item[0]))))
        for name in sorted(found)
    ]


def _planned(ctx: Context) -> dict[str, int]:
    """How many domains each rack has by design."""
    keys: dict[str, set[DomainKey]] = defaultdict(set)
    for node in ctx.design.nodes if ctx.design else ():
        keys[node.rack].add(node.domain)
    return {rack: len(own) for rack, own in keys.items()}


def _homes(racks: Sequence[_Rack]) -> dict[DomainKey, list[str]]:
    """The racks whose main domain each one is."""
    found: dict[DomainKey, list[str]] = defaultdict(list)
    for rack in racks:
        if rack.main:
            found[rack.main].append(rack.name)
    return found


def _count(racks: Sequence[_Rack], domains: int) -> int:
    return sum(len(rack.domains) == domains for rack in racks)


def _split(
    rule: Rule, ctx: Context, rack: _Rack, home: Mapping[DomainKey, Sequence[str]], others: str
) -> Iterator[Finding]:
    """What is wrong with a rack of several domains; `others` says that its peers have one, empty where they do not."""
    main = rack.main
    if main is None or (len(rack.domains[main]) * 4 < rack.size * 3 and not _strays(rack, home)):
        shown = by_count({str(key): len(nodes) for key, nodes in rack.domains.items()})
        summary = f"the rack is split over {len(rack.domains)} NVLink domains ({shown})"
        sources = [_source(nodes[0]) for nodes in rack.domains.values()]
        if others:
            advice = _JOBS + "Look at the partitions in NMX"
            yield rule.fail(f"rack {rack.name}", f"{summary}; {others}", sources, advice)
        else:
            advice = "give a design file, or captures of other racks, to tell a layout from a fault"
            yield rule.unknown(f"rack {rack.name}", f"{summary}, and no peers show what it should be", advice, sources)
        return
    peer = min(rack.domains[main], key=lambda node: node.key)
    for key, nodes in rack.domains.items():
        if key == main:
            continue
        of = f", the domain of rack {listed(home[key])}" if key in home else ""
        trays = f"{len(nodes)} nodes are" if len(nodes) > 1 else "is"
        subject = ctx.at(nodes[0].name) if len(nodes) == 1 else f"rack {rack.name}, {listed(n.name for n in nodes)}"
        yield rule.fail(
            subject,
            f"{trays} in {_difference(key, main)}{of};"
            f" {len(rack.domains[main])} of {rack.size} nodes of the rack are in {main}",
            [*(_source(node) for node in nodes[:3]), _source(peer)],
            "the tray stands in another rack than recorded, or its GPUs were put into another partition: compare the"
            " chassis serial number with the record, then look at the partition in NMX; place no gang on it",
        )


def strays(ctx: Context) -> dict[str, str]:
    """Nodes that stand alone in a rack though their NVLink domain is another rack's, each with that rack. Where the
    domain's rack has a tray of this number already, or domains span racks as a rule, it is a layout.
    """
    places: dict[str, list[NodeView]] = defaultdict(list)
    spread: dict[DomainKey, Counter[str]] = defaultdict(Counter)
    for node in ctx.nodes.values():
        if place := node.rack or node.chassis:
            places[place].append(node)
            if node.domain:
                spread[node.domain][place] += 1
    found = {}
    for place, nodes in places.items():
        node = nodes[0]
        designed = ctx.designed_node(node.name)
        if len(nodes) > 1 or node.domain is None or (designed and designed.rack == place):
            continue
        home, count = min(spread[node.domain].items(), key=lambda item: (-item[1], item[0]))
        taken = {other.tray for other in places[home]} - {None}
        if count >= _ENOUGH and home != place and node.tray not in taken:
            found[node.name] = home
    return found


_ENOUGH = 3
"""Nodes of a domain that must stand together before one elsewhere stands out."""


def _alone(rule: Rule, ctx: Context) -> Iterator[Finding]:
    for name, home in strays(ctx).items():
        node = ctx.nodes[name]
        peers = [one for one in ctx.nodes.values() if one.domain == node.domain and (one.rack or one.chassis) == home]
        by = f" by its chassis serial number {node.chassis}" if node.chassis else ""
        yield rule.fail(
            ctx.at(name),
            f"stands alone in another rack{by}, and its NVLink domain {node.domain} is that of {len(peers)} nodes of"
            f" rack {home}",
            [_source(node), _source(min(peers, key=lambda peer: peer.key))],
            "one tray stands out: its chassis serial number or its record is wrong (correct it in the BMC), or it was"
            f" moved and its partition in NMX was not; look whether it stands in rack {home}",
        )


def _strays(rack: _Rack, home: Mapping[DomainKey, Sequence[str]]) -> bool:
    """Whether every other domain in the rack is a single node, or belongs to another rack."""
    return all(key == rack.main or len(nodes) == 1 or key in home for key, nodes in rack.domains.items())


def _difference(key: DomainKey, main: DomainKey) -> str:
    return (
        f"clique {key.clique_id} of the same cluster UUID ({key})"
        if key.cluster_uuid == main.cluster_uuid
        else str(key)
    )


def _source(node: NodeView) -> Source | None:
    for gpu in node.gpus:
        if gpu.fact.cluster_uuid:
            return gpu.source("clique_id") if gpu.fact.clique_id is not None else gpu.source("cluster_uuid")
    return next((host.source for host in node.hosts if host.cluster_uuid), None)


def _layout(racks: Sequence[_Rack]) -> str:
    """What racks and domains look like where all is well; domains over several racks and the reverse are told."""
    places: dict[DomainKey, list[str]] = defaultdict(list)
    for rack in racks:
        for key in rack.domains:
            places[key].append(rack.name)
    nodes = sum(rack.size for rack in racks)
    text = f"{nodes} nodes in {len(racks)} racks and {len(places)} NVLink domains"
    wide = [names for names in places.values() if len(names) > 1]
    if wide:
        text += (
            f"; {len(wide)} domains span several racks ({listed('+'.join(names) for names in wide)}), as NVL36x2 does"
        )
    if several := sum(len(rack.domains) > 1 for rack in racks):
        text += f"; {several} racks hold several domains each"
    return text


RULES = (
    Rule("fabric/rack-domain", Severity.ERROR, "racks and NVLink domains agree, or differ in a regular way", _check),
)
