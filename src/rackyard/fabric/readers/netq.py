"""NetQ's topology graph: the switches of an Ethernet fabric by tier, its hosts, and the cables between interfaces.

Read off the answer of `api/netq/telemetry/v1/object/topologygraph/fetch-topology` as topograph asks for it (NVIDIA
topograph, pkg/providers/netq and its test data): `links` with `compounded_links`, `nodes` with `compounded_nodes`.
NetQ counts tiers from 1 at the leaves and puts what it has not classified, hosts above all, into tier -1; here a leaf
is tier 0.

Inferred: what has a tier, or `switch` as its `device_type`, is a switch; everything else is a host.
"""

from collections.abc import Iterator, Mapping

import msgspec

from rackyard.errors import UsageError, Where
from rackyard.fabric.facts import CableFact, End, Facts, HostFact, Source, SwitchFact
from rackyard.fabric.readers.jsontext import Lines, decode, json_bytes
from rackyard.fabric.readers.reader import Capture, Reader
from rackyard.findings import Finding, Severity, Verdict

NAME = "netq"


class _Node(msgspec.Struct):
    id: str
    name: str = ""
    tier: int = -1
    device_type: str = ""

    @property
    def is_switch(self) -> bool:
        return self.tier > 0 or self.device_type == "switch"


class _Group(msgspec.Struct):
    compounded_nodes: list[msgspec.Raw] = []


class _Interface(msgspec.Struct):
    node: str = ""
    interface: str = ""


class _Cable(msgspec.Struct):
    id: str = ""
    interfaces: list[_Interface] = []


class _Link(msgspec.Struct):
    id: str = ""
    compounded_links: list[msgspec.Raw] = []


class _Graph(msgspec.Struct):
    links: list[msgspec.Raw]
    nodes: list[msgspec.Raw]


_Nodes = Mapping[str, tuple[_Node, Source]]


def read(capture: Capture) -> Facts:
    """Switches with their tier (0 is a leaf), hosts with the switches above them, and every cable, told from below.

    A host's `tiers` are said only where there is one way up: with a leaf for each rail no single one is above it.

    Raises:
        UsageError: malformed JSON, not a topology graph, or a graph without nodes.
    """
    data = json_bytes(capture)
    graphs = decode(capture, data, list[_Graph]) if data.lstrip()[:1] == b"[" else [decode(capture, data, _Graph)]
    facts = Facts()
    for graph in graphs:
        nodes = dict(_nodes(capture, data, graph))
        unclear: list[Source] = []
        cables = list(_cables(capture, data, graph, nodes, unclear))
        up = _ways_up(cables)
        for node, source in nodes.values():
            if node.is_switch:
                tier = node.tier - 1 if node.tier > 0 else None
                facts.switches.append(SwitchFact(name=_name(node), source=source, tier=tier))
            else:
                facts.hosts.append(HostFact(node=_name(node), source=source, tiers=_tiers(_name(node), up)))
        facts.cables += cables
        facts.findings += _unclear(capture, unclear)
    if not facts.switches and not facts.hosts:
        raise UsageError("no node in this topology graph", where=Where(capture.file, 1), fix="ask NetQ without filters")
    return facts


def _name(node: _Node) -> str:
    return node.name or node.id


def _nodes(capture: Capture, data: bytes, graph: _Graph) -> Iterator[tuple[str, tuple[_Node, Source]]]:
    lines = Lines(data)
    for group in graph.nodes:
        line = lines.of(group)
        for raw in decode(capture, group, _Group, line=line).compounded_nodes:
            line = lines.of(raw)
            node = decode(capture, raw, _Node, line=line)
            yield node.id, (node, Source(NAME, capture.file, line, f"{node.id} {node.name} tier {node.tier}"))


def _cables(capture: Capture, data: bytes, graph: _Graph, nodes: _Nodes, unclear: list[Source]) -> Iterator[CableFact]:
    """Every cable whose two interfaces are named and whose nodes are known; the others' sources go to `unclear`."""
    lines = Lines(data)
    for bundle in graph.links:
        line = lines.of(bundle)
        link = decode(capture, bundle, _Link, line=line)
        if not link.compounded_links:
            unclear.append(Source(NAME, capture.file, line, link.id))
        for raw in link.compounded_links:
            line = lines.of(raw)
            cable = decode(capture, raw, _Cable, line=line)
            source = Source(NAME, capture.file, line, cable.id)
            ends = [(nodes[i.node][0], i.interface) for i in cable.interfaces if i.node in nodes and i.interface]
            if len(ends) != 2 or len(cable.interfaces) != 2:
                unclear.append(source)
                continue
            below, above = sorted(ends, key=lambda end: (end[0].is_switch, end[0].tier))
            yield CableFact(a=_end(*below), b=_end(*above), source=source)


def _end(node: _Node, interface: str) -> End:
    kind = "switch" if node.is_switch else "hca"
    return End(kind, _name(node), interface, 0 if node.is_switch else 1)


def _ways_up(cables: list[CableFact]) -> Mapping[str, set[str]]:
    up: dict[str, set[str]] = {}
    for cable in cables:
        if cable.b is not None and cable.b.kind == "switch":
            up.setdefault(cable.a.owner, set()).add(cable.b.owner)
    return up


def _tiers(name: str, up: Mapping[str, set[str]]) -> tuple[str, ...]:
    tiers: list[str] = []
    while len(above := up.get(name, set())) == 1:
        (name,) = above
        if name in tiers:
            break
        tiers.append(name)
    return tuple(tiers)


def _unclear(capture: Capture, unclear: list[Source]) -> Iterator[Finding]:
    if unclear:
        yield Finding(
            rule="fabric/cable-unclear",
            verdict=Verdict.UNKNOWN,
            severity=Severity.WARNING,
            subject=capture.file,
            summary=f"{len(unclear)} links name no two interfaces of nodes in this graph: they are not used",
            evidence=tuple(source.evidence() for source in unclear[:3]),
            advice="Ask NetQ for the whole graph, without filters, with a subgroup nesting depth of 2.",
        )


def _knows(head: str, file: str) -> bool:
    return '"compounded_links"' in head or '"compounded_nodes"' in head


READER = Reader(NAME, _knows, read)
