"""Is every HCA where it is on the peers: NUMA node and PCI domain. `nvidia-smi topo -m` cannot tell on
Grace-Blackwell, where every NIC is SYS from every GPU (facts §0.3); sysfs can.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial

from rackyard.fabric.expect.context import Context
from rackyard.fabric.expect.majority import Odd, by_count, split, varied
from rackyard.fabric.expect.parts import NicView
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.expect.words import listed
from rackyard.fabric.facts import Source
from rackyard.findings import Finding, Severity


def _numa(nic: NicView) -> str | None:
    # sysfs writes -1 where firmware does not say.
    return str(nic.fact.numa) if nic.fact.numa is not None and nic.fact.numa >= 0 else None


def _pci_domain(nic: NicView) -> str | None:
    return nic.fact.pci.split(":")[0] if nic.fact.pci and nic.fact.pci.count(":") == 2 else None


_LOOKS: tuple[tuple[str, str, Callable[[NicView], str | None]], ...] = (
    ("NUMA node", "numa", _numa),
    ("PCI domain", "pci", _pci_domain),
)


def _check(rule: Rule, ctx: Context) -> list[Finding]:
    wrong: dict[str, list[tuple[str, str, Odd[str, NicView]]]] = defaultdict(list)
    tied: Counter[str] = Counter()
    unsure: set[str] = set()
    looked = 0
    shared = 0
    for what, name, look in _LOOKS:
        # A node that lacks an HCA counts the others differently, so their names say nothing of the place.
        claims = [
            ((id(node.kind), nic.fact.name, nic.fact.port), value, nic)
            for node in ctx.nodes.values()
            if node.whole
            for nic in node.nics
            if (value := look(nic)) is not None
        ]
        looked = max(looked, len(claims))
        shared += len(claims) - len({group for group, _, _ in claims})
        found = split(claims, partial(_designed, ctx, what)) if ctx.design else split(varied(claims))
        for odd in found.odd:
            wrong[odd.part.node].append((what, name, odd))
        for value, nic in found.tied:
            tied[f"{nic.fact.name} on {what} {value}"] += 1
            unsure.add(nic.node)
    if not looked:
        return [rule.unknown("site", "no capture tells where HCAs are attached", "run `rackyard topo collect` (sysfs)")]
    findings = [_finding(rule, ctx, node, odds) for node, odds in sorted(wrong.items())]
    if tied:
        summary = f"HCAs of one name are attached differently and no place prevails: {by_count(tied)}"
        findings.append(rule.unknown(listed(unsure), summary, "give a design file, or captures of more nodes"))
    if not findings and not shared and ctx.design is None:
        return [rule.unknown("site", f"{looked} HCAs, and none has a peer to be compared with", "capture more nodes")]
    return rule.close(findings, f"NUMA node and PCI domain of {looked} HCA ports: the same as on their peers")


def _designed(ctx: Context, what: str, nic: NicView) -> str | None:
    one = ctx.designed_nic(nic)
    if one is None:
        return None
    if what == "NUMA node":
        return str(one.numa) if one.numa >= 0 else None
    return one.pci.split(":")[0] if one.pci.count(":") == 2 else None


def _finding(rule: Rule, ctx: Context, node: str, odds: list[tuple[str, str, Odd[str, NicView]]]) -> Finding:
    """One finding for a node: HCAs that changed places are one fault."""
    parts, proof = [], []
    for what, name, odd in odds:
        peers = odd.others(f"{odd.part.fact.name} HCAs")
        parts.append(f"{odd.part.fact.name} is on {what} {odd.value}; {peers} {odd.expected}")
        proof += _lines(odd, name)
    names = sorted({odd.part.fact.name for _, _, odd in odds})
    return rule.fail(
        ctx.at(node, ", ".join(names)),
        "; ".join(parts),
        proof,
        "the card sits in another slot, or the HCAs were counted in another order: compare with"
        " `ls -l /sys/class/infiniband`; until then name HCAs by address, not by number (udev rules, NCCL_IB_HCA)",
    )


def _lines(odd: Odd[str, NicView], name: str) -> list[Source]:
    return [odd.part.source(name)] + ([odd.peer.source(name)] if odd.peer else [])


RULES = (
    Rule("fabric/nic-place", Severity.ERROR, "an HCA is on the NUMA node and in the PCI domain of its peers", _check),
)
