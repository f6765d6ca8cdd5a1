"""Findings on a predicted topology: what the graphs are worth, and which GPUs are the reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rackyard.findings import Evidence, Finding, Severity, Verdict
from rackyard.nccl.graphs import NVLS, Graph
from rackyard.nccl.linktypes import GPU, NVS, PATH_TYPES
from rackyard.nccl.paths_compute import Computed
from rackyard.nccl.search_graphs import Graphs
from rackyard.nccl.search_peers import Lesser
from rackyard.nccl.topology import GpuNode, System
from rackyard.nccl.version import Version

PREFIX = "nccl-topo/"
CHECKED = (Version(2, 29, 7), Version(2, 30, 7))
"""The versions whose own results the rules were compared with."""

_BAD_RATIO = 0.5
_NVLS_SM = 90


@dataclass(frozen=True, slots=True)
class Scale:
    """One size of communicator: its name, its system and graphs, and the ring with all NVLinks restored, if known."""

    name: str
    system: System
    graphs: Graphs
    whole_ring: Graph | None

    def left(self) -> float | None:
        """Part of the restored ring's bandwidth that is left: channels times GB/s, over the network if it is used."""
        ring = self.graphs.get("ring")
        if ring is None or self.whole_ring is None:
            return None
        whole = self.whole_ring.total_inter if self.system.inter else self.whole_ring.total_intra
        here = ring.total_inter if self.system.inter else ring.total_intra
        return here / whole if whole else None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the findings are drawn from."""

    file: str
    version: Version
    computed: Computed
    lesser: Sequence[Lesser]
    scales: tuple[Scale, ...]

    def with_rings(self, rings: Sequence[Graph | None]) -> "Facts":
        """The same with the rings that all NVLinks would give, one for each scale."""
        pairs = zip(self.scales, rings, strict=True)
        return replace(self, scales=tuple(replace(scale, whole_ring=ring) for scale, ring in pairs))


def verdict(facts: Facts) -> tuple[Finding, ...]:
    """The findings, gravest first; one PASS where nothing is wrong."""
    found = [*_lesser(facts), *_graphs(facts), *_removed(facts), *_unknown(facts), *_version(facts)]
    order = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    found.sort(key=lambda finding: order.index(finding.severity))
    if any(finding.verdict in (Verdict.FAIL, Verdict.UNKNOWN) for finding in found):
        return tuple(found)
    system = facts.computed.system
    if not system.count(GPU):
        return (*found, Finding(PREFIX + "no-gpu", Verdict.UNKNOWN, Severity.WARNING, facts.file, "no GPU with a rank"))
    worth = "; ".join(f"{scale.name}: {_brief(scale.graphs)}" for scale in facts.scales)
    summary = f"{_number(system.count(GPU), 'GPU')} with equal links: {worth}"
    return (*found, Finding(PREFIX + "graphs", Verdict.PASS, Severity.INFO, facts.file or "topology", summary))


def _brief(graphs: Graphs) -> str:
    return ", ".join(f"{name} {graph.brief()}" for name, graph in graphs.found.items()) or "no graphs"


def gpu_name(gpu: GpuNode) -> str:
    """`GPU/0-906000 (rank 1)`."""
    return f"{gpu.name} (rank {gpu.rank})"


def _lesser(facts: Facts) -> Iterator[Finding]:
    """GPUs with less than their peers, and what that does to the graphs; one finding for each kind of link and loss."""
    groups: dict[tuple[str, float, float], list[Lesser]] = {}
    for each in facts.lesser:
        groups.setdefault((each.kind, each.bw, each.usual_bw), []).append(each)
    for (kind, bw, _), group in groups.items():
        subject = ", ".join(gpu_name(each.gpu) for each in group[:8]) + (" ..." if len(group) > 8 else "")
        effects = list(_effects(facts)) if kind == "NVLink" else []
        grave = kind == "NVLink" and (bw == 0 or any(_left_of(scale) <= _BAD_RATIO for scale in facts.scales))
        yield Finding(
            f"{PREFIX}fewer-{kind.lower()}",
            Verdict.FAIL,
            Severity.ERROR if grave else Severity.WARNING,
            subject,
            f"{subject} {group[0].text(len(group))}{': ' if effects else ''}{'; '.join(effects)}",
            tuple(Evidence(facts.file, f"gpu of rank {each.gpu.rank}", each.gpu.line or None) for each in group),
            _ADVICE[kind],
        )


_ADVICE = {
    "NVLink": "look at nvidia-smi nvlink --status on that GPU and at its switch ports; until then leave the GPU, or "
    "the node, out of the job: every rank of the clique pays",
    "C2C": "compare the c2c element with the other GPUs': its bw and count are per link",
    "PCI": "compare link_speed and link_width with the other GPUs'; an idle GPU may show a lower generation",
}


def _left_of(scale: Scale) -> float:
    left = scale.left()
    return 1.0 if left is None else left


def _effects(facts: Facts) -> Iterator[str]:
    for scale in facts.scales:
        ring = scale.graphs.get("ring")
        if ring is None:
            continue
        text = f"{scale.name} ring {_channels(ring)}"
        left = scale.left()
        if left is not None and scale.whole_ring is not None:
            text += f", {100 * left:.3g} % of {_channels(scale.whole_ring)} with its links restored"
        nvls = scale.graphs.get("nvls")
        if nvls is not None and _may_have_nvls(scale.system):
            text += f", nvls {_channels(nvls)}"
        yield text


def _channels(graph: Graph) -> str:
    if not graph.n_channels:
        return "0 channels"
    bw = graph.bw_inter if graph.channels[0].nets else graph.bw_intra
    worst = PATH_TYPES[max(graph.type_intra, graph.type_inter) if graph.channels[0].nets else graph.type_intra]
    return f"{_number(graph.n_channels, 'channel')} @ {bw:g} GB/s {worst}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def _may_have_nvls(system: System) -> bool:
    return system.count(NVS) > 0 and all(gpu.sm >= _NVLS_SM for gpu in system.gpus())


def _graphs(facts: Facts) -> Iterator[Finding]:
    """Graphs that NCCL falls back for, ends at, or does without."""
    for scale in facts.scales:
        graphs = scale.graphs
        for graph in graphs.found.values():
            subject = f"{scale.name} {graph.name}"
            if graph.fell_back:
                summary = f"no path for {graph.name}: NCCL takes the GPUs as they come, 1 channel @ 0.1 GB/s SYS"
                yield _finding(
                    "fallback", Severity.ERROR, subject, summary, "NCCL says so only at NCCL_DEBUG=INFO and goes on"
                )
            elif graph.id == NVLS and not graph.n_channels and _may_have_nvls(scale.system):
                summary = "no nvls channel although there are NVSwitches: NVLS stays off"
                yield _finding("no-nvls", Severity.WARNING, subject, summary)
        if graphs.refused is not None:
            why = f": {graphs.refused.nccl_message.rstrip('.')}" if graphs.refused.nccl_message else ""
            summary = f"communicator init ends with {graphs.refused.nccl_result} at {graphs.ended_at}{why}"
            subject = f"{scale.name} {graphs.ended_at}"
            if scale.system.nets():
                yield _finding("graph-refused", Severity.ERROR, subject, summary)
            else:
                summary += "; the file names no network device"
                yield Finding(PREFIX + "no-net", Verdict.NOT_APPLICABLE, Severity.INFO, subject, summary)


def _removed(facts: Facts) -> Iterator[Finding]:
    removed = facts.computed.removed
    if removed:
        names = ", ".join(gpu_name(gpu) for gpu in removed)
        summary = f"reached over the network only; NCCL takes {_number(len(removed), 'GPU')} out of this system"
        yield _finding("removed", Severity.WARNING, names, summary)


def _unknown(facts: Facts) -> Iterator[Finding]:
    for scale in facts.scales:
        if scale.graphs.out_of_steps:
            subject = f"{scale.name} {scale.graphs.ended_at}"
            summary = f"{scale.graphs.ended_at} not predicted within {scale.graphs.steps} steps"
            rule, advice = PREFIX + "not-predicted", "raise the bound on steps, or ask NCCL itself"
            yield Finding(rule, Verdict.UNKNOWN, Severity.WARNING, subject, summary, advice=advice)


def _version(facts: Facts) -> Iterator[Finding]:
    if facts.version not in CHECKED:
        nearest = CHECKED[1] if facts.version.has_dev_nodes else CHECKED[0]
        summary = f"the search follows the rules of {nearest}, which may differ from those of {facts.version}"
        subject = f"NCCL {facts.version}"
        yield Finding(PREFIX + "version", Verdict.NOT_APPLICABLE, Severity.INFO, subject, summary)


def _finding(rule: str, severity: Severity, subject: str, summary: str, advice: str = "") -> Finding:
    return Finding(PREFIX + rule, Verdict.FAIL, severity, subject, summary, advice=advice)
