"""HCAs that a node lacks and its peers have, and those that it has and they lack."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rackyard.fabric.expect.context import Context, NodeView
from rackyard.fabric.expect.kinds import Kind
from rackyard.fabric.expect.majority import by_count
from rackyard.fabric.expect.parts import NicView
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.expect.words import listed
from rackyard.findings import Finding, Severity

_COLLECT = "run `rackyard topo collect` on the nodes"
_PEERS = "give a design file, or captures of more nodes"


def _count(rule: Rule, ctx: Context) -> list[Finding]:
    with_gpus = [node for node in ctx.nodes.values() if node.gpus or node.nics]
    nodes = [node for node in with_gpus if node.nics]
    if not nodes:
        return [rule.unknown("site", "no capture lists HCAs", _COLLECT)]
    full: dict[int, list[NodeView]] = defaultdict(list)
    for node in nodes:
        if len(node.nics) == len(node.kind.ports):
            full[id(node.kind)].append(node)
    findings = [finding for node in nodes for finding in _absent(rule, ctx, node, full[id(node.kind)])]
    loose = [node for node in nodes if not node.kind.ports and ctx.designed_node(node.name) is None]
    if len(loose) > 1:
        counts = by_count(Counter(len(node.nics) for node in loose))
        summary = f"HCAs of {len(loose)} nodes of one kind differ and no set prevails: {counts} ports"
        findings.append(rule.unknown(listed(node.name for node in loose), summary, _PEERS))
    findings += _whole_racks(rule, nodes)
    families = {node.family for node in nodes}
    if bare := [node.name for node in with_gpus if not node.nics and node.family in families]:
        summary = f"{len(bare)} of {len(with_gpus)} nodes have no HCA in any capture: {listed(bare)}"
        findings.append(rule.unknown("site", summary, _COLLECT))
    if not findings and ctx.design is None and all(node.kind.nodes == 1 for node in nodes):
        return [rule.unknown("site", "a single node of each kind: nothing to compare their HCAs with", _PEERS)]
    ports = sum(len(node.nics) for node in nodes)
    return rule.close(findings, f"{ports} HCA ports on {len(nodes)} nodes: none is absent")


def _absent(rule: Rule, ctx: Context, node: NodeView, peers: Sequence[NodeView]) -> Iterator[Finding]:
    designed = ctx.designed_node(node.name)
    names = {nic.fact.name for nic in node.nics}
    # A design that calls no HCA by its name here goes by other names, and says nothing of which is absent.
    if designed is not None and any(nic.name in names for nic in designed.nics):
        lack = sorted({nic.name for nic in designed.nics} - names)
        if lack:
            yield _lacks(rule, ctx, node, lack, f"the design has {len(designed.nics)}", peers)
    elif len(node.nics) < len(node.kind.ports):
        others = f"{len(peers)} of {node.kind.nodes} {node.kind.name} nodes have {len(node.kind.ports)}"
        yield _lacks(rule, ctx, node, _which(node), others, peers)


def _which(node: NodeView) -> list[str]:
    """The absent HCAs. Names follow the order of discovery, so an absent one shifts the rest: the address is surer."""
    at = {nic.fact.pci for nic in node.nics}
    absent = [f"{name} at {pci}" for pci, name in node.kind.places.items() if pci not in at]
    if None not in at and len(absent) == len({name for name, _ in node.kind.ports}) - len(
        {n.fact.name for n in node.nics}
    ):
        return sorted(absent)
    have = {(nic.fact.name, nic.fact.port) for nic in node.nics}
    ports = Counter(name for name, _ in node.kind.ports)
    lack = sorted(node.kind.ports - have)
    return [name if ports[name] == 1 else f"{name} port {port}" for name, port in lack]


def _lacks(
    rule: Rule, ctx: Context, node: NodeView, lack: Sequence[str], others: str, peers: Sequence[NodeView]
) -> Finding:
    what = f"HCA {', '.join(lack)}"
    names = {name.split()[0] for name in lack}
    there = [nic.fact.source for nic in peers[0].nics if nic.fact.name in names] if peers else []
    proof = [*there, *(nic.fact.source for nic in node.nics)]
    return rule.fail(
        ctx.at(node.name, what),
        f"{what} is absent: {len(node.nics)} HCA ports; {others}",
        proof,
        "look for it with `lspci -d 15b3:` and in the kernel log; reseat or replace it. Until then ranks of this node"
        " share the other rails",
    )


def _whole_racks(rule: Rule, nodes: Sequence[NodeView]) -> Iterator[Finding]:
    """Kinds that lack HCAs which nodes with the same GPUs and the same HCA type have: another build, or a fault
    everywhere.
    """
    kinds = {id(node.kind): node.kind for node in nodes if node.kind.ports}
    racks: dict[int, set[str]] = defaultdict(set)
    for node in nodes:
        racks[id(node.kind)].add(node.rack or node.name)
    for kind in sorted(kinds.values(), key=lambda kind: (kind.family, kind.nic, sorted(kind.ports))):
        fuller = [
            other
            for other in kinds.values()
            if (other.family, other.nic) == (kind.family, kind.nic) and kind.ports < other.ports
        ]
        if fuller:
            best = max(fuller, key=lambda other: (other.nodes, sorted(other.ports)))
            lack = listed(name for name, _ in best.ports - kind.ports)
            where = listed(racks[id(kind)])
            summary = f"all {kind.nodes} nodes lack HCA {lack}, which {best.nodes} others with the same GPUs have"
            yield rule.unknown(
                f"rack {where}", summary, "another build, or a rail that is missing: a design file would tell"
            )


_MANY = 4
"""Peers for each node that has an HCA more, at least: where more nodes have it, it is another build."""


def _extra(rule: Rule, ctx: Context) -> list[Finding]:
    """HCAs of a compute type that a node has beyond its kind; designed nodes are for the comparison with the design."""
    nodes = [node for node in ctx.nodes.values() if node.nics and node.kind.ports and not ctx.designed_node(node.name)]
    peers = [node for node in nodes if node.kind.nodes > _MANY]
    if not peers:
        return [rule.not_applicable("no node has peers enough, or a design has them all")]
    more: dict[tuple[int, str], list[tuple[NodeView, NicView]]] = defaultdict(list)
    for node in peers:
        for nic in _beyond(node):
            more[id(node.kind), nic.fact.pci or nic.label].append((node, nic))
    findings = []
    for pairs in more.values():
        kind = pairs[0][0].kind
        if len(pairs) * _MANY > kind.nodes:
            where = listed(node.name for node, _ in pairs)
            summary = f"{len(pairs)} of {kind.nodes} {kind.name} nodes have an HCA more: {_at(pairs[0][1])}"
            findings.append(rule.unknown(where, summary, _PEERS, [nic.source("name") for _, nic in pairs]))
            continue
        for node, nic in pairs:
            peer = next((one.nics[0].fact.source for one in peers if one.kind is kind and one is not node), None)
            have = f"{len(node.nics)} HCA ports, most of {kind.nodes} {kind.name} nodes have {len(kind.ports)}"
            findings.append(
                rule.fail(
                    ctx.at(node.name, f"HCA {nic.fact.name}"),
                    f"HCA {_at(nic)} is one more than its peers have: {have}",
                    [nic.source("name"), peer],
                    "a card that does not belong here, or a rail that its peers lack: NCCL uses it like the others, and"
                    " rails of this node no longer match. Take it out, or leave it out with NCCL_IB_HCA",
                )
            )
    return rule.close(findings, f"HCAs of {len(peers)} nodes looked at: none has one more than its kind")


def _at(nic: NicView) -> str:
    return f"{nic.fact.name} at {nic.fact.pci}" if nic.fact.pci else nic.label


def _beyond(node: NodeView) -> list[NicView]:
    """The HCA ports that the kind does not have. Names follow the order of discovery, so the address is surer."""
    kind = node.kind
    excess = len(node.nics) - len(kind.ports)
    if excess <= 0:
        return []
    found = [nic for nic in node.nics if nic.fact.pci and nic.fact.pci not in kind.places]
    if len(found) != excess:
        found = [nic for nic in node.nics if (nic.fact.name, nic.fact.port) not in kind.ports]
    return [nic for nic in found if _is_compute(nic, kind)]


def _is_compute(nic: NicView, kind: Kind) -> bool:
    """Whether it is of a type that the HCAs of the kind are of, or where none is told, of their rate."""
    usual = kind.nic.split("+")
    return nic.fact.hca_type in usual or (nic.fact.gbps is not None and f"{nic.fact.gbps:g} Gb/s" in usual)


RULES = (
    Rule("fabric/hca-absent", Severity.ERROR, "every node has the HCAs that its peers have", _count),
    Rule("fabric/hca-extra", Severity.WARNING, "no node has a compute HCA that its peers lack", _extra),
)
