"""Trays with fewer GPUs than their peers, and clique labels that promise more than the tray has."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from rackyard.fabric.expect.context import Context, NodeView
from rackyard.fabric.expect.fabric_health import faults_of
from rackyard.fabric.expect.majority import by_count, pattern, split
from rackyard.fabric.expect.parts import GpuView
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.expect.words import listed
from rackyard.fabric.facts import HostFact, Source
from rackyard.fabric.model import is_zero
from rackyard.findings import Finding, Severity

CLIQUE_LABEL = "nvidia.com/gpu.clique"
"""Written by GPU feature discovery and the DRA driver from the GPUs that are on the fabric; others are skipped."""


def _gpus(rule: Rule, ctx: Context) -> list[Finding]:
    """GPU counts of nodes. NCCL's dumps hold a job's GPUs only, so they say nothing of what a node lacks."""
    counted = [(node, count) for node in ctx.nodes.values() if (count := sum(_is_listed(gpu) for gpu in node.gpus))]
    if not counted:
        return [rule.unknown("site", "no capture lists the GPUs of a node", "capture `nvidia-smi -q` on the nodes")]
    found = split(((node.family, count, node) for node, count in counted), lambda node: _designed_count(ctx, node))
    findings = []
    for odd in found.odd:
        if odd.value >= odd.expected:
            continue
        node = odd.part
        have = {gpu.fact.index for gpu in node.gpus}
        seen = {gpu.fact.index for gpu in odd.peer.gpus} if odd.peer else set(range(odd.expected))
        lack = sorted(index for index in seen - have if index is not None) if None not in have else []
        which = ", ".join(f"GPU {index}" for index in lack) if len(lack) == odd.expected - odd.value else ""
        proof = [gpu.fact.source for gpu in node.gpus] + ([odd.peer.gpus[-1].fact.source] if odd.peer else [])
        findings.append(
            rule.fail(
                ctx.at(node.name, which),
                f"{odd.value} GPUs; {odd.others(f'{node.family} nodes')} {odd.expected}",
                proof,
                "look for Xid 79 (GPU has fallen off the bus) in the kernel log; power-cycle the tray, else replace it",
            )
        )
    if found.tied:
        counts = by_count(Counter(count for count, _ in found.tied))
        summary = f"nodes of one kind differ and no number prevails: {counts} GPUs"
        findings.append(rule.unknown(listed(n.name for _, n in found.tied), summary, "give a design file"))
    if not findings and not found.judged:
        summary = "a single node of each kind: nothing to compare their GPU counts with"
        return [rule.unknown("site", summary, "give a design file, or captures of more nodes")]
    gpus = sum(count for _, count in counted)
    return rule.close(findings, f"{gpus} GPUs on {len(counted)} nodes: none has fewer than its kind")


def _is_listed(gpu: GpuView) -> bool:
    return not all(fact.source.reader.startswith("nccl") for fact in gpu.facts)


def _designed_count(ctx: Context, node: NodeView) -> int | None:
    designed = ctx.designed_node(node.name)
    return len(designed.gpus) if designed else None


def _labels(rule: Rule, ctx: Context) -> list[Finding]:
    """Labels are written from the GPUs that are on the fabric, so a tray with a dead GPU keeps its label."""
    labelled = [(node, host) for node in ctx.nodes.values() if (host := _labelled(node))]
    if not labelled:
        return [rule.not_applicable("no node carries a clique label")]
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for node in ctx.nodes.values():
        if node.gpus:
            counts[node.family][len(node.gpus)] += 1
    findings, bare = [], []
    for node, host in labelled:
        if not node.gpus:
            bare.append(node.name)
            continue
        wrong = list(_hidden(node, host, pattern(counts[node.family]) or 0))
        if wrong:
            label = dict(host.labels).get(CLIQUE_LABEL) or f"{host.cluster_uuid}.{host.clique_id}"
            says = "; ".join(what for what, _ in wrong)
            findings.append(
                rule.fail(
                    ctx.at(node.name),
                    f"label {CLIQUE_LABEL} = {label} makes the node look whole, but {says}",
                    [host.source, *(source for _, source in wrong)],
                    "cordon the node: a scheduler that goes by the label places full gangs on it",
                )
            )
    if bare:
        summary = f"{len(bare)} of {len(labelled)} labelled nodes have no GPU capture to prove it: {listed(bare)}"
        findings.append(rule.unknown("site", summary, "run `rackyard topo collect` there"))
    return rule.close(findings, f"{len(labelled)} nodes with a clique label: their GPUs bear it out")


def _labelled(node: NodeView) -> HostFact | None:
    for host in node.hosts:
        if any(key == CLIQUE_LABEL and value for key, value in host.labels):
            return host
    return None


def _hidden(node: NodeView, host: HostFact, usual: int) -> Iterator[tuple[str, Source | None]]:
    """What the label does not say, with the line that does."""
    listed_here = [gpu for gpu in node.gpus if _is_listed(gpu)]
    if 0 < len(listed_here) < usual:
        yield f"it has {len(listed_here)} of {usual} GPUs", listed_here[0].fact.source
    for gpu in node.gpus:
        fact = gpu.fact
        if fact.links == 0:
            yield f"{gpu.label} has no NVLinks", gpu.source("links")
        elif fact.fabric_state not in (None, "completed"):
            yield f"{gpu.label}'s fabric state is {fact.fabric_state}", gpu.source("fabric_state")
        elif fact.health_mask and (faults := faults_of(fact.health_mask)):
            yield f"{gpu.label} reports {', '.join(faults)}", gpu.source("health_mask")
        elif is_zero(fact.cluster_uuid) and fact.cluster_uuid is not None:
            yield f"{gpu.label} is in no NVLink domain", gpu.source("cluster_uuid")
    own = node.domain
    if own and host.cluster_uuid and not is_zero(host.cluster_uuid) and host.clique_id is not None:
        said = (host.cluster_uuid.lower(), host.clique_id)
        if said != (own.cluster_uuid, own.clique_id) and any(gpu.fact.cluster_uuid for gpu in node.gpus):
            yield (
                f"its GPUs are in {own}",
                next((g.source("cluster_uuid") for g in node.gpus if g.fact.cluster_uuid), None),
            )


RULES = (
    Rule("fabric/gpu-count", Severity.ERROR, "every node has as many GPUs as its peers", _gpus),
    Rule("fabric/clique-label", Severity.ERROR, "a node with a clique label has all its GPUs in that clique", _labels),
)
