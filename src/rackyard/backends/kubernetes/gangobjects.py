"""What is read of those that make gangs besides `rackyard submit`, and of Kueue: only the fields that are used."""

import msgspec

from rackyard.backends.kubernetes.jobobjects import Condition, ObjectMeta, Owner, Pod, PodSpec, said, seconds
from rackyard.jobs.kubegang import GANG, JOBSET, JOBSET_UID, LWS, LWS_SIZE, SIZE, gang_name
from rackyard.jobs.kubejob import Maker, Said, Workload

_ENDED = {"Complete": "Completed", "Completed": "Completed", "Succeeded": "Completed", "Failed": "Failed"}
"""Conditions of Jobs, JobSets and TrainJobs by which they are over, as a Volcano Job's phase would say it."""


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Template(_Struct, frozen=True):
    """A pod template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class _JobSpec(_Struct, frozen=True):
    suspend: bool = False
    completions: int | None = None
    parallelism: int | None = None
    template: Template = Template()


class _JobTemplate(_Struct, frozen=True):
    spec: _JobSpec = _JobSpec()


class _Replicated(_Struct, frozen=True):
    template: _JobTemplate = _JobTemplate()


class _Spec(_JobSpec, frozen=True):
    replicated_jobs: tuple[_Replicated, ...] = ()


class _Status(_Struct, frozen=True):
    conditions: tuple[Condition, ...] = ()


class Made(_Struct, frozen=True):
    """A Job (batch/v1) or a JobSet."""

    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def template(self) -> Template | None:
        """The first pod template that is ours: with our gate or the size of the gang."""
        found = (self.spec.template, *(each.template.spec.template for each in self.spec.replicated_jobs))
        return next((each for each in found if each.spec.gated or SIZE in each.metadata.annotations), None)

    @property
    def gang(self) -> str:
        """The gang that its pods will be; empty for none."""
        if self.template is None or JOBSET in self.metadata.labels:  # a JobSet's Job is a part
            return ""
        meta = self.template.metadata
        return gang_name(meta.labels, meta.annotations, self.metadata.name, gated=True)

    @property
    def state(self) -> tuple[str, str]:
        """As a Volcano Job's phase, and what is said of it; empty while it goes on."""
        over = (each for each in self.status.conditions if each.type in _ENDED and each.status == "True")
        return next(((_ENDED[each.type], each.message) for each in over), ("", ""))


class _WorkloadSpec(_Struct, frozen=True):
    queue_name: str = ""
    active: bool = True


class _Check(_Struct, frozen=True):
    name: str = ""
    state: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _WorkloadStatus(_Struct, frozen=True):
    conditions: tuple[Condition, ...] = ()
    admission_checks: tuple[_Check, ...] = ()


class KueueWorkload(_Struct, frozen=True):
    """kueue.x-k8s.io Workload; v1beta1 and v1beta2 are alike in these fields."""

    metadata: ObjectMeta
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()


def workload_of(found: KueueWorkload) -> Workload:
    """A Workload as a job knows it."""
    checks = {
        each.name: Said(each.state, "", each.message, seconds(each.last_transition_time))
        for each in found.status.admission_checks
    }
    return Workload(
        found.metadata.name, found.spec.queue_name, found.spec.active, said(found.status.conditions), checks
    )


def pod_gang(pod: Pod) -> str:
    """The gang that a pod belongs to; empty for none."""
    meta = pod.metadata
    return gang_name(meta.labels, meta.annotations, meta.name, gated=pod.spec.gated)


def owner_of(pod: Pod) -> Owner:
    """What makes the pod anew: a JobSet and a LeaderWorkerSet make it by others."""
    labels, meta = pod.metadata.labels, pod.metadata
    if labels.get(JOBSET):
        return Owner("jobset.x-k8s.io/v1alpha2", "JobSet", labels[JOBSET], labels.get(JOBSET_UID, ""), True)
    if labels.get(LWS):
        return Owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", labels[LWS], "", True)
    made_by = next((each for each in meta.owner_references if each.controller), None)
    return made_by or Owner("v1", "Pod", meta.name, meta.uid, True)


def size_of(pod: Pod) -> int:
    """How many pods its gang has; 0 where it does not say."""
    told = pod.metadata.annotations.get(SIZE) or pod.metadata.annotations.get(LWS_SIZE, "")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 7 else 0


def maker_of(owner: Owner, pods: list[Pod]) -> Maker:
    """How to name it to kubectl; pods that nobody made are the gang themselves."""
    if owner.kind == "Pod":
        label = pods[0].metadata.labels.get(GANG) if pods else ""
        names = " ".join(pod.metadata.name for pod in pods) or owner.name
        return Maker("Pod", owner.name, f"pods -l {GANG}={label}" if label else f"pods {names}")
    group, slash, _ = owner.api_version.partition("/")
    kind = owner.kind.lower() + (f".{group}" if slash else "")
    return Maker(owner.kind, owner.name, f"{kind} {owner.name}")
