"""The figures of a replay: plain numbers, each with its unit and its meaning."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from rackyard.placement.replay.ledger import Account
from rackyard.placement.replay.outcome import Replay
from rackyard.placement.replay.spans import Span


def _of(label: str, unit: str, meaning: str) -> Any:
    return field(metadata={"label": label, "unit": unit, "meaning": meaning})


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of one replay. None where there is nothing to measure. Waits and completions are of jobs that ended."""

    policy: str = _of("policy", "", "the rule that placed the gangs")
    jobs: int = _of("jobs ended", "", "jobs that ran to their end")
    never: int = _of("never placeable", "", "jobs that the policy can't seat even on the empty site")
    stuck: int = _of("left waiting", "", "waiting for nodes that never came back, or hit a thousand times")
    wait_mean: float | None = _of("wait, mean", "s", "from submission to the first start")
    wait_p50: float | None = _of("wait, p50", "s", "half of the jobs waited no longer")
    wait_p90: float | None = _of("wait, p90", "s", "nine of ten jobs waited no longer")
    wait_p99: float | None = _of("wait, p99", "s", "all but one in a hundred waited no longer")
    gang_wait_mean: float | None = _of("wait of gangs, mean", "s", "the same for jobs of more than one node")
    completion_mean: float | None = _of("completion, mean", "s", "from submission to the end (JCT)")
    completion_p50: float | None = _of("completion, p50", "s", "half of the jobs ended no later after submission")
    completion_p99: float | None = _of("completion, p99", "s", "all but one in a hundred ended no later")
    drain: float | None = _of("drain", "s", "from the last submission to the last end")
    occupancy: float | None = _of(
        "occupancy", "share", "GPU-seconds on seats over those of nodes in service, first to last submission"
    )
    free_nodes: float | None = _of("free nodes, mean", "nodes", "while any whole node was free, same window")
    largest_in_domain: float | None = _of(
        "placeable in one domain", "nodes", "largest gang that one NVLink domain would have held, mean over time"
    )
    domain_share: float | None = _of(
        "… of the ideal", "share", "that gang over the smaller of all free nodes and the largest domain"
    )
    largest_in_segments: float | None = _of(
        "placeable in 16-node segments", "nodes", "largest gang in whole 16-node segments, mean over time"
    )
    segment_share: float | None = _of("… of free nodes", "share", "that gang over all free nodes, mean over time")
    domains: float | None = _of("domains a gang, mean", "", "NVLink domains under a placement of more than one node")
    domains_least: float | None = _of(
        "… the least", "", "the fewest that such gangs, segments whole, span on the empty site"
    )
    domains_over_least: float | None = _of(
        "… over the least", "ratio", "sum of domains over the sum of what the sizes make necessary"
    )
    blocks: float | None = _of("blocks a gang, mean", "", "blocks (spine groups) under such a placement")
    blocks_least: float | None = _of("… the least", "", "the same for blocks")
    blocks_over_least: float | None = _of("… over the least", "ratio", "the same for blocks")
    segments: int = _of("segments placed", "", "segments of more than one node, counted at each placement")
    split: int = _of("segments split", "", "of these, those that lie in more than one NVLink domain")
    preemptions: int = _of("preemptions", "", "gangs stopped for others; the plain queue has none")
    cut: float = _of("work cut off", "GPU-h", "done since the last checkpoint when a gang was preempted")
    failures: int = _of("node failures", "", "before the last job ended")
    faults: int = _of("gangs hit", "", "times that a failure stopped a running gang")
    moved: int = _of("… mended in place", "", "of these, those that went on at once on seats of which most were kept")
    goodput: float | None = _of("goodput", "share", "GPU-seconds of saved work over GPU-seconds on seats")
    lost: float = _of("work lost", "GPU-h", "done since the last checkpoint when a node failed")
    decisions: int = _of("decisions", "", "calls of the policy, failed ones and those for reservations included")
    decision_p50: float | None = _of("decision, p50", "ms", "CPU time of one, on this machine")
    decision_p99: float | None = _of("decision, p99", "ms", "all but one in a hundred took no longer")


def labels() -> tuple[tuple[str, str, str, str], ...]:
    """Of every figure: its name in the data, label, unit and meaning."""
    return tuple(
        (each.name, each.metadata["label"], each.metadata["unit"], each.metadata["meaning"]) for each in fields(Metrics)
    )


def measure(replay: Replay) -> Metrics:
    """The figures of a replay."""
    ended = [account for account in replay.accounts if account.ended is not None]
    waits = np.array([_wait(account) for account in ended])
    gang_waits = np.array([_wait(account) for account in ended if account.spans[0].nodes > 1])
    done = np.array([(account.ended or 0.0) - account.submit for account in ended])
    spans = [span for account in replay.accounts for span in account.spans if span.nodes > 1]
    line = replay.timeline
    used = sum(account.used for account in replay.accounts)
    last = max((account.ended for account in ended if account.ended is not None), default=None)
    return Metrics(
        policy=replay.policy,
        jobs=len(ended),
        never=len(replay.never),
        stuck=len(replay.stuck),
        wait_mean=_mean(waits),
        wait_p50=_at(waits, 50),
        wait_p90=_at(waits, 90),
        wait_p99=_at(waits, 99),
        gang_wait_mean=_mean(gang_waits),
        completion_mean=_mean(done),
        completion_p50=_at(done, 50),
        completion_p99=_at(done, 99),
        drain=None if last is None else max(0.0, last - line.end),
        occupancy=_ratio(line.busy, line.available),
        free_nodes=_ratio(line.free_nodes, line.free),
        largest_in_domain=_ratio(line.in_domain, line.free),
        domain_share=_ratio(line.domain_share, line.free),
        largest_in_segments=_ratio(line.in_segments, line.free),
        segment_share=_ratio(line.segment_share, line.free),
        **_spread(spans),
        preemptions=sum(account.preempted for account in replay.accounts),
        cut=sum(account.cut for account in replay.accounts) / 3600,
        failures=replay.failures,
        faults=sum(account.faults for account in replay.accounts),
        moved=sum(account.moved for account in replay.accounts),
        goodput=_ratio(sum(account.useful for account in replay.accounts), used),
        lost=sum(account.lost for account in replay.accounts) / 3600,
        decisions=len(replay.decisions),
        decision_p50=_at(replay.decisions * 1e3, 50),
        decision_p99=_at(replay.decisions * 1e3, 99),
    )


def _spread(spans: Sequence[Span]) -> dict[str, Any]:
    domains, blocks = sum(span.domains for span in spans), sum(span.blocks for span in spans)
    least_domains, least_blocks = sum(span.least_domains for span in spans), sum(span.least_blocks for span in spans)
    return {
        "domains": _ratio(domains, len(spans)),
        "domains_least": _ratio(least_domains, len(spans)),
        "domains_over_least": _ratio(domains, least_domains),
        "blocks": _ratio(blocks, len(spans)),
        "blocks_least": _ratio(least_blocks, len(spans)),
        "blocks_over_least": _ratio(blocks, least_blocks),
        "segments": sum(span.segments for span in spans),
        "split": sum(span.split for span in spans),
    }


def _wait(account: Account) -> float:
    return 0.0 if account.started is None else account.started - account.submit


def _mean(values: Iterable[float]) -> float | None:
    found = np.asarray(list(values), np.float64)
    return float(found.mean()) if len(found) else None


def _at(values: "np.ndarray[Any, np.dtype[np.float64]]", percent: float) -> float | None:
    return float(np.percentile(values, percent)) if len(values) else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
