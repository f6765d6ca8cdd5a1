"""A job on a Kubernetes cluster as its objects tell of it: plain values, its phase, and its attempts. Pure.

The cluster keeps the state: the Volcano Job, its pods and PodGroup, and one GangPlan for each attempt. A gang that
others made (a Job, a JobSet, ...) is a job, too; it has a `maker`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rackyard.jobs.state import Phase


@dataclass(frozen=True, slots=True)
class Said:
    """A condition or an event: what an object says, why, and when (seconds since 1970, 0 where it is not told)."""

    status: str = ""
    reason: str = ""
    message: str = ""
    at: float = 0.0
    times: int = 1
    """How often an event was seen."""


@dataclass(frozen=True, slots=True)
class KubePod:
    """A pod of the job."""

    name: str
    rank: int = 0
    """Its place in the gang."""
    node: str = ""
    phase: str = "Pending"
    gated: bool = False
    ending: bool = False
    attempt: int = 0
    """Of the plan that let it go; 0 before that."""
    waiting: Said | None = None
    """Why its container does not run yet: ImagePullBackOff and the like."""
    ended: Said | None = None
    """How its container ended; the status is the exit code."""
    conditions: Mapping[str, Said] = field(default_factory=dict)
    seats: str = ""
    container: str = ""
    """Whose log is its log, where it has several."""


@dataclass(frozen=True, slots=True)
class Maker:
    """What made a gang that is none of `rackyard submit`'s, and makes its pods anew."""

    kind: str
    name: str
    resource: str
    """As kubectl takes it: `job.batch train`."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A job as Kueue has it."""

    name: str
    queue: str = ""
    """The LocalQueue."""
    active: bool = True
    conditions: Mapping[str, Said] = field(default_factory=dict)
    checks: Mapping[str, Said] = field(default_factory=dict)
    """Admission checks by name; the status is their state."""


@dataclass(frozen=True, slots=True)
class KubePlan:
    """One attempt: a GangPlan. Times in seconds since 1970."""

    attempt: int
    nodes: tuple[tuple[int, str], ...]
    """Segment and node of each pod, in rank order."""
    phase: str = ""
    reason: str = ""
    message: str = ""
    why: str = ""
    """What ended the attempt before."""
    created: float = 0.0
    released: float | None = None
    bound: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class KubeNode:
    """What is said of a node; the faults are why Rackyard has taken it out of use, now and before."""

    rack: str = ""
    faults: tuple[Said, ...] = ()


@dataclass(frozen=True, slots=True)
class KubeJob:
    """Everything that the cluster says of a job."""

    name: str
    namespace: str
    spec: Mapping[str, Any]
    """The job file as data, without `env`."""
    submitted: float
    updated: float = 0.0
    """When its phase changed last."""
    state: str = ""
    """Phase of the Volcano Job; of others' what comes to the same, as far as they say so."""
    state_message: str = ""
    uid: str = ""
    queue: str = "default"
    queue_there: bool = True
    retries: int = 0
    group: str = ""
    """Phase of its PodGroup; empty where there is none."""
    pods: tuple[KubePod, ...] = ()
    plans: tuple[KubePlan, ...] = ()
    """By attempt."""
    group_conditions: Mapping[str, Said] = field(default_factory=dict)
    maker: Maker | None = None
    """None for what `rackyard submit` made."""
    owner: tuple[str, str, str] | None = None
    """API version, kind and name of the object that makes its pods; the maker may be further up."""
    suspended: bool = False
    """Whether its maker is told to have no pods."""
    workload: Workload | None = None
    """Kueue's, where it has one."""
    nodes: Mapping[str, KubeNode] = field(default_factory=dict)
    """Nodes of its attempts, where they were asked for."""
    events: tuple[Said, ...] = ()
    """Of the Job, the PodGroup and the first pod; the status is Normal or Warning. Oldest first."""
    step: int = 0
    resumed: int | None = None
    checkpoint: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """GPUs in all; 0 where the Job does not say."""
        return int(self.spec.get("gpus", 0))

    @property
    def attempt(self) -> int:
        """The newest attempt; 0 before the first plan."""
        return max((plan.attempt for plan in self.plans), default=0)

    @property
    def live(self) -> tuple[KubePod, ...]:
        """The pods that are not on their way out."""
        return tuple(pod for pod in self.pods if not pod.ending)


_OVER = {
    "Completed": Phase.SUCCEEDED,
    "Completing": Phase.SUCCEEDED,
    "Failed": Phase.FAILED,
    "Aborted": Phase.CANCELLED,
    "Aborting": Phase.CANCELLED,
    "Terminated": Phase.CANCELLED,
    "Terminating": Phase.CANCELLED,
}


def phase_of(job: KubeJob) -> Phase:
    """Where the job stands, in the words of every backend."""
    if job.state in _OVER:
        return _OVER[job.state]
    runs = bool(job.live) and all(pod.phase in ("Running", "Succeeded") for pod in job.live)
    if runs and (job.step or job.maker is not None):  # others' ranks tell no steps
        return Phase.RUNNING
    if job.retries or job.attempt > 1 or job.state == "Restarting":
        return Phase.RECOVERING
    return Phase.STARTING if runs or any(not pod.gated for pod in job.live) else Phase.PENDING


@dataclass(frozen=True, slots=True)
class Row:
    """An attempt as `rackyard attempts` shows it; None and empty text: not known."""

    number: int
    launched: float | None
    resumed: int | None
    step: int | None
    fault: str
    action: str
    seats: str


def attempts(job: KubeJob) -> tuple[Row, ...]:
    """What ended each attempt, and what was done about it.

    How far an attempt came stands in the log of its pods, which goes with them: only the newest one's is known.
    """
    rows = []
    for at, plan in enumerate(job.plans):
        after = job.plans[at + 1] if at + 1 < len(job.plans) else None
        last = after is None
        fault = cause(plan, after, job.nodes)
        phase = phase_of(job)
        if last and phase.over:
            fault = phase.value if phase is not Phase.FAILED else failure(job)
        rows.append(
            Row(
                plan.attempt,
                plan.released or plan.bound,
                job.resumed if last else None,
                job.step if last and job.step else None,
                fault,
                "" if after is None else _action(plan, after),
                seats(plan, job.nodes),
            )
        )
    return tuple(rows)


ECHOES = ("Ended", "Restarted")
"""Reasons of plans that say no more than that the pods went: Volcano may have been faster to restart the Job."""
_LATE = 5.0
"""Seconds: times of objects are cut to the second, and those of two writers."""


def cause(plan: KubePlan, after: KubePlan | None, nodes: Mapping[str, KubeNode]) -> str:
    """What ended an attempt; empty while it goes on. A fault of one of its nodes goes before its echoes."""
    if plan.phase != "Ended":
        return ""
    until = after.created if after is not None else plan.ended or 0.0
    if plan.reason in ECHOES:
        for _, name in plan.nodes:
            for fault in nodes.get(name, KubeNode()).faults:
                if plan.created <= fault.at <= until + _LATE:
                    return fault.message
    return plan.message or plan.reason


def _action(before: KubePlan, after: KubePlan) -> str:
    """What was done, from where the gang was and went; in the words of `faults.policy`."""
    old, new = _by_segment(before), _by_segment(after)
    if old == new:
        return "restart-processes"
    moved = any(not set(nodes) & set(new.get(segment, ())) for segment, nodes in old.items())
    return "move-segment" if moved else "replace-nodes"


def _by_segment(plan: KubePlan) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for segment, node in plan.nodes:
        found.setdefault(segment, []).append(node)
    return found


def seats(plan: KubePlan, nodes: Mapping[str, KubeNode]) -> str:
    """`r01[r01-t01,r01-t02]; ...`, one for each segment."""
    parts = []
    for segment, names in _by_segment(plan).items():
        racks = dict.fromkeys(nodes.get(name, KubeNode()).rack for name in names)
        rack = "+".join(name for name in racks if name) or f"segment {segment} "
        parts.append(f"{rack}[{','.join(names)}]")
    return "; ".join(parts)


def failure(job: KubeJob) -> str:
    """How the job's last attempt went wrong, as far as its pods still say."""
    failed = [pod for pod in job.pods if pod.phase == "Failed"]
    if not failed:
        return job.state_message or "a pod failed, and is gone"
    first = min(failed, key=lambda pod: (pod.ended.at if pod.ended else 0.0, pod.rank))
    how = "failed"
    if first.ended is not None:
        word = f" ({first.ended.reason})" if first.ended.reason not in ("", "Error") else ""
        how = f"ended with exit code {first.ended.status}{word}"
    return f"pod {first.name} on {first.node or 'no node'} {how}"
