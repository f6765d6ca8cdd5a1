"""What is read of a job's objects on the cluster: typed, and only the fields that are used."""

import contextlib
from datetime import datetime
from typing import Any

import msgspec

from rackyard.backends.kubernetes.watch import Meta
from rackyard.jobs.kubejob import KubeNode, KubePlan, KubePod, Said

RANK, SEATS, ATTEMPT = "rackyard.io/rank", "rackyard.io/seats", "rackyard.io/attempt"
GATE, FAULT, RACK = "rackyard.io/placement", "rackyard.io/fault", "rackyard.io/rack"
_GPU = "nvidia.com/gpu"
_INDEXES = (
    "volcano.sh/task-index",
    "jobset.sigs.k8s.io/job-global-index",
    "batch.kubernetes.io/job-completion-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
)
"""Labels that put a gang's pods in order before it has a plan, near enough."""


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Owner(_Struct, frozen=True):
    """Who made an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Meta, frozen=True, rename="camel"):
    """Metadata of any of them."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    owner_references: tuple[Owner, ...] = ()


class Condition(_Struct, frozen=True):
    """A condition of any of them."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class _State(_Struct, frozen=True):
    phase: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _JobSpec(_Struct, frozen=True):
    queue: str = "default"


class _JobStatus(_Struct, frozen=True):
    state: _State = _State()
    retry_count: int = 0


class VolcanoJob(_Struct, frozen=True):
    """batch.volcano.sh/v1alpha1 Job."""

    metadata: ObjectMeta
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


class _GroupStatus(_Struct, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class PodGroup(_Struct, frozen=True):
    """scheduling.volcano.sh/v1beta1 PodGroup."""

    metadata: ObjectMeta
    status: _GroupStatus = _GroupStatus()


class _Waiting(_Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Terminated(_Struct, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class _ContainerState(_Struct, frozen=True):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(_Struct, frozen=True):
    state: _ContainerState = _ContainerState()


class _Gate(_Struct, frozen=True):
    name: str = ""


class _Resources(_Struct, frozen=True):
    limits: dict[str, str | int] = {}


class _Container(_Struct, frozen=True):
    name: str = ""
    resources: _Resources = _Resources()


class PodSpec(_Struct, frozen=True):
    """What a pod, or a template of one, asks for."""

    node_name: str = ""
    scheduling_gates: tuple[_Gate, ...] = ()
    containers: tuple[_Container, ...] = ()

    @property
    def gated(self) -> bool:
        """Whether our gate holds it."""
        return any(gate.name == GATE for gate in self.scheduling_gates)

    @property
    def gpus(self) -> int:
        """GPUs of all containers; what is no number counts as none."""
        told = (str(each.resources.limits.get(_GPU, "0")) for each in self.containers)
        return sum(_number(each) for each in told)


class _PodStatus(_Struct, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()


class Pod(_Struct, frozen=True):
    """A pod of a job."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: _PodStatus = _PodStatus()


class _Member(_Struct, frozen=True):
    node: str = ""
    segment: int = 0


class _PlanSpec(_Struct, frozen=True):
    gang: str = ""
    attempt: int = 1
    members: tuple[_Member, ...] = ()
    why: str = ""


class _PlanStatus(_Struct, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    released_at: str = ""
    bound_at: str = ""
    ended_at: str = ""


class GangPlan(_Struct, frozen=True):
    """Our own custom resource, as the user's side reads it."""

    metadata: ObjectMeta
    spec: _PlanSpec = _PlanSpec()
    status: _PlanStatus = _PlanStatus()

    def of(self, uid: str) -> bool:
        """Whether it belongs to the job with this uid, and not to an earlier one of the same name."""
        return all(owner.uid == uid for owner in self.metadata.owner_references)


class _About(_Struct, frozen=True):
    name: str = ""


class Event(_Struct, frozen=True):
    """core/v1 Event; times and counts may be null."""

    involved_object: _About = _About()
    count: int | None = None
    reason: str = ""
    message: str = ""
    type: str = "Normal"
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None


class _Mark(_Struct, frozen=True):
    """The annotation of a node that Rackyard has taken out of use (`controller.kube.objects.Mark`)."""

    cause: str = ""
    summary: str = ""
    at: str = ""


class Named(_Struct, frozen=True):
    """Any object, of which only the metadata is read."""

    metadata: ObjectMeta


def seconds(text: str | None) -> float:
    """RFC 3339 as seconds since 1970; 0 for none, or for what is no time."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except ValueError:
        return 0.0


def said(conditions: tuple[Condition, ...]) -> dict[str, Said]:
    """Conditions by type."""
    return {
        one.type: Said(one.status, one.reason, one.message, seconds(one.last_transition_time)) for one in conditions
    }


def pod_of(pod: Pod) -> KubePod:
    """A pod as a job knows it."""
    meta, state = pod.metadata, _ContainerState()
    if pod.status.container_statuses:
        state = pod.status.container_statuses[0].state
    ended = None
    if (last := state.terminated) is not None:
        ended = Said(str(last.exit_code), last.reason, last.message, seconds(last.finished_at))
    elif pod.status.phase == "Failed":  # refused or evicted: it never had a container
        ended = Said("", pod.status.reason, pod.status.message)
    return KubePod(
        name=meta.name,
        rank=_number(meta.annotations.get(RANK) or next(filter(None, map(meta.labels.get, _INDEXES)), None)),
        node=pod.spec.node_name,
        phase=pod.status.phase,
        gated=pod.spec.gated,
        ending=bool(meta.deletion_timestamp),
        attempt=_number(meta.annotations.get(ATTEMPT)),
        waiting=None if state.waiting is None else Said("", state.waiting.reason, state.waiting.message),
        ended=ended,
        conditions=said(pod.status.conditions),
        seats=meta.annotations.get(SEATS, ""),
        container=pod.spec.containers[0].name if len(pod.spec.containers) > 1 else "",
    )


def plan_of(plan: GangPlan) -> KubePlan:
    """A plan as a job knows it."""
    spec, status = plan.spec, plan.status
    return KubePlan(
        attempt=spec.attempt,
        nodes=tuple((member.segment, member.node) for member in spec.members),
        phase=status.phase,
        reason=status.reason,
        message=status.message,
        why=spec.why,
        created=seconds(plan.metadata.creation_timestamp),
        released=seconds(status.released_at) or None,
        bound=seconds(status.bound_at) or None,
        ended=seconds(status.ended_at) or None,
    )


def node_of(node: Named) -> KubeNode:
    """A node as a job knows it."""
    meta, mark = node.metadata, None
    with contextlib.suppress(msgspec.MsgspecError):  # somebody else may have written there
        mark = msgspec.json.decode(meta.annotations.get(FAULT, "null"), type=_Mark | None)
    faults = () if mark is None else (Said("", mark.cause, mark.summary, seconds(mark.at)),)
    return KubeNode(meta.labels.get(RACK, ""), faults)


def event_of(event: Event) -> Said:
    """An event, its type as the status."""
    at = seconds(event.last_timestamp or event.event_time or event.first_timestamp)
    return Said(event.type, event.reason, event.message, at, max(1, event.count or 1))


def spec_of(text: str) -> dict[str, Any]:
    """The job file that a Job carries; empty where it can't be read."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 9 else 0
