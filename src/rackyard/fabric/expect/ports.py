"""HCA ports: down, of another link layer, slow. An HCA is compared with the one at its place on other nodes
of its kind, and where those are too few, with the HCAs of the same board.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from rackyard.fabric.expect.context import Context, NodeView
from rackyard.fabric.expect.majority import Odd, Split, by_count, split
from rackyard.fabric.expect.parts import NicView
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.expect.words import listed
from rackyard.fabric.model import Health
from rackyard.findings import Finding, Severity

_COLLECT = "run `rackyard topo collect` on the nodes"
_PEERS = "give a design file, or captures of more nodes"

V = TypeVar("V", bound=Hashable)


def compare(
    ctx: Context,
    claims: Sequence[tuple[NodeView, NicView, V]],
    designed: Callable[[NicView], V | None],
) -> Split[V, NicView]:
    """Compare with the HCAs at the same place; those without a pattern there with the HCAs of the same board."""
    first = split(
        (((id(node.kind), nic.slot, nic.fact.port), value, nic) for node, nic, value in claims),
        designed if ctx.design else None,
    )
    rest = [*first.tied, *first.alone]
    if not rest:
        return first
    # A part without a pattern of its own is judged by all of its board, those that have been judged already included.
    boards = {key for _, nic in rest if (key := _board(ctx, nic)) is not None}
    open_keys = {nic.key for _, nic in rest}
    second = split(
        (key, value, nic) for _, nic, value in claims if (key := _board(ctx, nic)) in boards and key is not None
    )
    judged = {nic.key for key, nic in ((_board(ctx, nic), nic) for _, nic in rest) if key is not None}
    unsettled = {nic.key for _, nic in (*second.tied, *second.alone)}
    first.odd += [odd for odd in second.odd if odd.part.key in open_keys]
    first.odd.sort(key=lambda odd: odd.part.key)
    settled = judged - unsettled
    first.judged += len(settled)
    first.tied = [pair for pair in first.tied if pair[1].key not in settled]
    first.alone = [pair for pair in first.alone if pair[1].key not in settled]
    return first


def _board(ctx: Context, nic: NicView) -> tuple[str, str] | None:
    """Boards are told apart by PSID: HCAs of one type are sold for compute and for storage."""
    return (ctx.nodes[nic.node].family, nic.fact.board_id) if nic.fact.board_id else None


def _state(rule: Rule, ctx: Context) -> list[Finding]:
    claims = [(node, nic, up) for node, nic in ctx.nics() if (up := nic.up) is not None]
    if not claims:
        return [rule.unknown("site", "no capture tells the state of HCA ports", _COLLECT)]
    found = compare(ctx, claims, lambda nic: _designed_up(ctx, nic))
    waiting = [nic for _, nic, _ in claims if _waits(nic)]
    findings = list(_waiting(rule, ctx, waiting))
    for odd in found.odd:
        if odd.expected and not _waits(odd.part):
            findings.append(_down(rule, ctx, odd))
    unsure = [nic for up, nic in (*found.tied, *found.alone) if not up and not _waits(nic)]
    for nic in unsure:
        summary = f"{_says(nic)}, and no peer shows whether it should be up"
        findings.append(rule.unknown(ctx.at(nic.node, nic.label), summary, _PEERS, [nic.source("state")]))
    unused = sum(not up for _, _, up in claims)
    return rule.close(
        findings,
        f"{len(claims)} HCA ports: {len(claims) - unused} up" + (f", {unused} unused everywhere" if unused else ""),
    )


def _designed_up(ctx: Context, nic: NicView) -> bool | None:
    designed = ctx.designed_nic(nic)
    return True if designed and designed.health is Health.HEALTHY else None


def _waits(nic: NicView) -> bool:
    """A port whose link is up and that no subnet manager has configured. That is a fault, whatever its peers are."""
    return (nic.fact.state or "").upper() in ("INIT", "ARMED", "INITIALIZING")


def _waiting(rule: Rule, ctx: Context, waiting: Sequence[NicView]) -> Iterator[Finding]:
    if len(waiting) > 4:
        nodes = {nic.node for nic in waiting}
        yield rule.fail(
            listed(nodes),
            f"{len(waiting)} ports on {len(nodes)} nodes are in INIT: no subnet manager configures them",
            [nic.source("state") for nic in waiting],
            "look at the subnet manager (`sminfo`, opensm or UFM)",
        )
        return
    for nic in waiting:
        yield rule.fail(
            ctx.at(nic.node, nic.label),
            f"the link is up but the port is in {nic.fact.state}: no subnet manager has configured it",
            [nic.source("state")],
            "look at the subnet manager (`sminfo`), and whether it knows the port",
        )


def _peers_of(ctx: Context, nic: NicView) -> str:
    return f"{nic.slot} ports of {ctx.nodes[nic.node].kind.name} nodes"


def _says(nic: NicView) -> str:
    return f"port is {'/'.join(part for part in (nic.fact.state, nic.fact.phys_state) if part)}"


def _down(rule: Rule, ctx: Context, odd: Odd[bool, NicView]) -> Finding:
    nic = odd.part
    what = _peers_of(ctx, nic)
    peers = f"{odd.count} of {odd.total} {what} are up" if odd.total else "the design has it up"
    disabled = (nic.fact.phys_state or "").lower() == "disabled"
    return rule.fail(
        ctx.at(nic.node, nic.label),
        f"{_says(nic)}; {peers}",
        [nic.source("state"), nic.source("phys_state"), *([odd.peer.source("state")] if odd.peer else [])],
        "the port is switched off: enable it (`ibportstate`, or the interface)"
        if disabled
        else "look at cable and transceiver on both ends, and whether the switch port is enabled",
    )


def _layer(rule: Rule, ctx: Context) -> list[Finding]:
    claims = [(node, nic, nic.fact.link_layer) for node, nic in ctx.nics() if nic.fact.link_layer]
    if not claims:
        return [rule.unknown("site", "no capture tells the link layer of HCA ports", _COLLECT)]
    found = split(((id(node.kind), nic.slot, nic.fact.port), layer, nic) for node, nic, layer in claims)
    findings = [
        rule.fail(
            ctx.at(odd.part.node, odd.part.label),
            f"link layer is {odd.value}; {odd.others(_peers_of(ctx, odd.part))} {odd.expected}",
            [odd.part.source("link_layer"), *([odd.peer.source("link_layer")] if odd.peer else [])],
            "set LINK_TYPE_P1/P2 with `mlxconfig` and reset the HCA",
        )
        for odd in found.odd
    ]
    findings += _tied(rule, found.tied, "link layers")
    if not findings and not found.judged:
        return [_lonely(rule, len(claims))]
    layers = by_count(Counter(layer for _, _, layer in claims))
    return rule.close(findings, f"link layer of {len(claims)} HCA ports: the same at each place ({layers})")


def _rate(rule: Rule, ctx: Context) -> list[Finding]:
    # A port that is down reports the lowest rate of its kind, which says nothing.
    claims = [(node, nic, nic.fact.gbps) for node, nic in ctx.nics() if nic.fact.gbps and nic.up is not False]
    if not claims:
        return [rule.unknown("site", "no capture tells the rate of HCA ports that are up", _COLLECT)]
    found = compare(ctx, claims, lambda nic: _designed_rate(ctx, nic))
    findings = []
    for odd in found.odd:
        if odd.value < odd.expected:
            findings.append(
                rule.fail(
                    ctx.at(odd.part.node, odd.part.label),
                    f"{odd.value:g} Gb/s; {odd.others(_peers_of(ctx, odd.part))} {odd.expected:g}",
                    [odd.part.source("gbps"), *([odd.peer.source("gbps")] if odd.peer else [])],
                    "the link trained narrow or slow: reseat or replace cable and transceiver; the slowest rail counts",
                )
            )
    findings += _tied(rule, found.tied, "Gb/s")
    if not findings and not found.judged:
        return [_lonely(rule, len(claims))]
    rates = by_count(Counter(f"{rate:g} Gb/s" for _, _, rate in claims))
    return rule.close(findings, f"{len(claims)} HCA ports, none slower than its peers ({rates})")


def _designed_rate(ctx: Context, nic: NicView) -> float | None:
    designed = ctx.designed_nic(nic)
    return float(designed.gbps) if designed and designed.gbps else None


def _tied(rule: Rule, tied: Sequence[tuple[V, NicView]], what: str) -> Iterator[Finding]:
    if tied:
        values = by_count(Counter(value for value, _ in tied))
        summary = f"HCA ports of one kind differ and no value prevails: {values} {what}"
        yield rule.unknown(listed(f"{nic.node} {nic.fact.name}" for _, nic in tied), summary, _PEERS)


def _lonely(rule: Rule, count: int) -> Finding:
    return rule.unknown("site", f"{count} HCA ports, and none has a peer to be compared with", _PEERS)


RULES = (
    Rule("fabric/port-state", Severity.ERROR, "HCA ports are up where those of their peers are", _state),
    Rule("fabric/link-layer", Severity.ERROR, "an HCA port has the link layer of its peers", _layer),
    Rule("fabric/port-rate", Severity.ERROR, "an HCA port is as fast as its peers", _rate),
)
