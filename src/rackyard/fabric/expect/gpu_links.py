"""Has every GPU its NVLinks? The one check that finds the fault which nothing else shows.

The reference case is public (datacrunch-research/nccl-eBPF, 2026-08-14): fabric state Completed, health mask 0x1aa,
the right clique, and one GPU of a GB300 rack without NVLinks in NCCL's fused topology.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rackyard.fabric.expect.context import Context, NodeView
from rackyard.fabric.expect.majority import Odd, by_count, pattern, split
from rackyard.fabric.expect.parts import GpuView
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.expect.words import listed
from rackyard.findings import Finding, Severity

NVL72_LINKS = 18
"""NVLink 5 links of a GPU of GB200 and GB300 (facts §3): what holds where the site's own pattern is lower, or is
none.
"""

_CONSEQUENCE = (
    "NCCL goes on without a warning: one GPU without NVLinks took an 8-GPU all-reduce on GB300 from 684.9 to 51.6 GB/s"
    " (datacrunch-research/nccl-eBPF). "
)
_DEAD = (
    _CONSEQUENCE + "Drain the node, reset the GPU or power-cycle the tray; reseat it if that does not bring them back"
)
_FEWER = (
    "collectives run at the speed of the GPU with the fewest links, in the whole job. Drain the node, look at"
    " `nvidia-smi nvlink -s` and `-e` on it and at the switch ports, reset the GPU or reseat the tray"
)
_SHARED = "every GPU of the domain lost the same: look at the NVSwitch tray or ASIC, not at the compute trays"
_COLLECT = "run `rackyard topo collect` on the nodes, or give the topology that NCCL dumps"

_LOOK = (
    "look at `nvidia-smi nvlink -s` of this GPU on the node: a GPU that lists no link may have none. Until then place"
    " no gang on it"
)

_MORE = "give a design file, or captures of more nodes that tell the GPU's product"

Lost = Odd[int, GpuView]


def _check(rule: Rule, ctx: Context) -> list[Finding]:
    told = [(node, gpu, gpu.fact.links) for node, gpu in ctx.gpus() if gpu.fact.links is not None]
    silent = [gpu for _, gpu in ctx.gpus() if gpu.fact.links is None]
    if not told:
        return [rule.unknown("site", f"{len(silent)} GPUs, and no capture tells their NVLinks", _COLLECT)]
    low = _below_figure(told)
    found = split(((node.family, links, gpu) for node, gpu, links in told), lambda gpu: _expected(ctx, gpu, low))
    lost = [odd for odd in found.odd if odd.value < odd.expected]
    other = [odd for odd in lost if _is_other_model(ctx, odd)]
    unclear = {odd.part.key for odd in other}
    findings = list(_grouped(rule, ctx, [odd for odd in lost if odd.part.key not in unclear]))
    if unsure := [*found.tied, *((odd.value, odd.part) for odd in other)]:
        findings.append(_tied(rule, unsure))
    findings += _silent(rule, ctx, silent, len(silent) + len(told))
    if not findings and not found.judged:
        return [rule.unknown("site", f"{len(told)} GPUs, and none has a peer to be compared with", _MORE)]
    counts = Counter(links for _, _, links in told)
    if not findings and not any(counts):
        return [rule.not_applicable(f"{len(told)} GPUs, none with NVLinks")]
    return rule.close(
        findings, f"{len(told)} GPUs looked at, none has fewer NVLinks than its kind ({by_count(counts)})"
    )


def _silent(rule: Rule, ctx: Context, silent: Sequence[GpuView], total: int) -> Iterator[Finding]:
    """GPUs whose links nobody told. Where others of the same node are known they stand out, and are named each."""
    nodes: dict[str, list[GpuView]] = defaultdict(list)
    for gpu in silent:
        nodes[gpu.node].append(gpu)
    bare = [name for name, gpus in nodes.items() if len(gpus) == len(ctx.nodes[name].gpus)]
    if bare:
        count = sum(len(nodes[name]) for name in bare)
        summary = f"NVLinks of {count} of {total} GPUs are not known: {listed(bare)}"
        yield rule.unknown("site", summary, _COLLECT)
    for name in sorted(nodes.keys() - bare):
        own = ctx.nodes[name].gpus
        which = ", ".join(gpu.label for gpu in nodes[name])
        peer = next(gpu for gpu in own if gpu.fact.links is not None)
        known = f"those of {len(own) - len(nodes[name])} other GPUs of the node are"
        proof = [*(gpu.facts[0].source for gpu in nodes[name]), peer.source("links")]
        yield rule.unknown(ctx.at(name, which), f"its NVLinks are not known, {known}", _LOOK, proof)


def _below_figure(told: Sequence[tuple[NodeView, GpuView, int]]) -> frozenset[str]:
    """The NVL72 products most of whose GPUs here have fewer links than the product has."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for node, _, links in told:
        counts[node.family][links] += 1
    return frozenset(
        family
        for family, seen in counts.items()
        if family.startswith(("GB200", "GB300")) and (pattern(seen) or 0) < NVL72_LINKS
    )


def _expected(ctx: Context, gpu: GpuView, low: frozenset[str]) -> int | None:
    designed = ctx.designed_gpu(gpu) if ctx.design else None
    if designed and designed.nvlinks >= 0:
        return designed.nvlinks
    return NVL72_LINKS if low and ctx.nodes[gpu.node].family in low else None


def _is_other_model(ctx: Context, odd: Lost) -> bool:
    """Whether it may be another GPU altogether: nobody names a product, and all of the node have the same links."""
    node = ctx.nodes[odd.part.node]
    same = {gpu.fact.links for gpu in node.gpus} == {odd.value} and odd.value > 0 and len(node.gpus) > 1
    return same and odd.total > 0 and not node.has_product


def _grouped(rule: Rule, ctx: Context, lost: Sequence[Lost]) -> Iterator[Finding]:
    """One finding for a domain all of whose GPUs lost the same, one for such a node, one for each other GPU."""
    homes: dict[str, list[Lost]] = defaultdict(list)
    for odd in lost:
        homes[_home(ctx.nodes[odd.part.node])].append(odd)
    size = Counter(_home(node) for node, _ in ctx.gpus()) if lost else Counter()
    for home, odds in sorted(homes.items()):
        nodes = sorted({odd.part.node for odd in odds})
        if len(nodes) > 1 and len(odds) == size[home] and len({odd.value for odd in odds}) == 1:
            yield _finding(rule, ctx, odds, home)
            continue
        for node in nodes:
            own = [odd for odd in odds if odd.part.node == node]
            if len(own) == len(ctx.nodes[node].gpus) > 1 and len({odd.value for odd in own}) == 1:
                yield _finding(rule, ctx, own, ctx.at(node, f"all {len(own)} GPUs"))
            else:
                yield from (_finding(rule, ctx, [odd], ctx.at(node, odd.part.label)) for odd in own)


def _home(node: NodeView) -> str:
    if node.domain:
        return f"NVLink domain {node.domain}"
    return f"rack {node.rack}" if node.rack else f"node {node.name}"


def _finding(rule: Rule, ctx: Context, odds: Sequence[Lost], subject: str) -> Finding:
    first = odds[0]
    family = ctx.nodes[first.part.node].family
    have = f"{len(odds)} GPUs have" if len(odds) > 1 else "has"
    gpus = f"{family} GPUs" if ctx.nodes[first.part.node].has_product else f"GPUs of {family} nodes"
    peers = f"{first.others(gpus)} {first.expected}"
    if not first.total and not ctx.designed_gpu(first.part):
        peers = f"a {family} has {first.expected} (published figure: most GPUs here have fewer, or no number prevails)"
    proof = [odd.part.source("links") for odd in odds[:4]] + ([first.peer.source("links")] if first.peer else [])
    shared = len({odd.part.node for odd in odds}) > 1
    advice = _DEAD if first.value == 0 else _SHARED if shared else _FEWER
    return rule.fail(subject, f"{have} {first.value or 'no'} NVLinks; {peers}", proof, advice)


def _tied(rule: Rule, tied: Sequence[tuple[int, GpuView]]) -> Finding:
    counts = Counter(count for count, _ in tied)
    return rule.unknown(
        listed(gpu.node for _, gpu in tied),
        f"GPUs of one kind differ and no number prevails: {by_count(counts)} NVLinks",
        _MORE,
        [gpu.source("links") for _, gpu in tied],
    )


RULES = (Rule("fabric/gpu-links", Severity.ERROR, "every GPU has as many NVLinks as its peers", _check),)
