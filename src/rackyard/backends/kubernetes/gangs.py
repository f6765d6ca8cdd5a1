"""Gangs that `rackyard submit` did not make: found by their pods, their plans, and Jobs and JobSets that are held."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from rackyard.backends.kubernetes import gangobjects as made
from rackyard.backends.kubernetes import jobobjects as objects
from rackyard.backends.kubernetes.client import METADATA
from rackyard.backends.kubernetes.reader import Reader
from rackyard.jobs.kubegang import GROUP
from rackyard.jobs.kubejob import KubeJob, Workload

_MAKERS = (
    ("/apis/batch/v1", "jobs", "batch/v1", "Job"),
    ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets", "jobset.x-k8s.io/v1alpha2", "JobSet"),
)
"""Whose templates are looked at: Kueue holds these before they have pods."""
_KUEUE = ("/apis/kueue.x-k8s.io/v1beta2", "/apis/kueue.x-k8s.io/v1beta1")
_GROUPS = "/apis/scheduling.volcano.sh/v1beta1"
_POD_GROUP = "kueue.x-k8s.io/pod-group-name"
"""Label: the Kueue Workload of pods that are queued themselves."""
_CLIMB = 3
"""Owners of owners that are looked at: a JobSet may be a TrainJob's, a StatefulSet an operator's."""


@dataclass
class _Gang:
    """What was found of one."""

    pods: list[objects.Pod] = field(default_factory=list)
    plans: list[objects.GangPlan] = field(default_factory=list)
    owner: objects.Owner | None = None
    maker: made.Made | None = None


@dataclass(frozen=True, slots=True)
class Gangs(Reader):
    """The gangs of one namespace."""

    def all(self, pods: Iterable[objects.Pod], plans: Iterable[objects.GangPlan]) -> list[KubeJob]:
        """All of them, also those that have no pods yet."""
        found: dict[str, _Gang] = {}
        for pod in pods:
            if name := made.pod_gang(pod):
                found.setdefault(name, _Gang()).pods.append(pod)
        for plan in plans:
            found.setdefault(plan.spec.gang, _Gang()).plans.append(plan)
        self._made(found)
        groups = {group.metadata.name: group for group in self._groups(found)}
        workloads = self._workloads()
        jobs = [_job(name, self.namespace, gang, groups) for name, gang in found.items()]
        return [replace(job, workload=_workload(found[job.name], workloads)) for job in jobs]

    def at_the_top(self, job: KubeJob) -> KubeJob:
        """With the owner that nobody else makes anew as its maker."""
        if job.maker is None or job.owner is None:
            return job
        owner: objects.Owner | None = objects.Owner(*job.owner)
        for _ in range(_CLIMB):
            assert owner is not None
            group = f"/apis/{owner.api_version}" if "/" in owner.api_version else f"/api/{owner.api_version}"
            path = self.path(group, f"{owner.kind.lower()}s", owner.name)
            there = self.one(path, objects.Named, METADATA.format("PartialObjectMetadata"), shy=True)
            above = () if there is None else there.metadata.owner_references
            owner = next((each for each in above if each.controller), None)
            if owner is None:
                return job
            job = replace(job, maker=made.maker_of(owner, []))
        return job

    def _made(self, found: dict[str, _Gang]) -> None:
        """Add who makes their pods, and gangs that are held before they have any."""
        by_uid: dict[str, tuple[objects.Owner, made.Made]] = {}
        for path, plural, version, kind in _MAKERS:
            for each in self.maybe(self.path(path, plural), made.Made, shy=True) or ():
                meta = each.metadata
                by_uid[meta.uid] = (objects.Owner(version, kind, meta.name, meta.uid, True), each)
                if (name := each.gang) and name not in found:
                    found[name] = _Gang(owner=by_uid[meta.uid][0], maker=each)
        for gang in found.values():
            if gang.owner is None:
                gang.owner = _owner(gang)
                uid = gang.owner.uid if gang.owner is not None else ""
                gang.maker = by_uid[uid][1] if uid in by_uid else None

    def _groups(self, found: Mapping[str, _Gang]) -> list[objects.PodGroup]:
        if not any(GROUP in pod.metadata.annotations for gang in found.values() for pod in gang.pods[:1]):
            return []
        return self.maybe(self.path(_GROUPS, "podgroups"), objects.PodGroup, shy=True) or []

    def _workloads(self) -> list[made.KueueWorkload]:
        for version in _KUEUE:
            there = self.maybe(self.path(version, "workloads"), made.KueueWorkload, shy=True)
            if there is not None:
                return sorted(there, key=lambda each: each.metadata.creation_timestamp)
        return []


def _owner(gang: _Gang) -> objects.Owner | None:
    if gang.pods:
        return made.owner_of(min(gang.pods, key=lambda pod: pod.metadata.name))
    return next((owner for plan in gang.plans for owner in plan.metadata.owner_references), None)


def _workload(gang: _Gang, workloads: Iterable[made.KueueWorkload]) -> Workload | None:
    """The newest that belongs to the gang, or to whoever made it."""
    mine = {pod.metadata.uid for pod in gang.pods}
    mine |= {owner.uid for pod in gang.pods for owner in pod.metadata.owner_references}
    if gang.owner is not None:
        mine.add(gang.owner.uid)
    if gang.maker is not None:
        mine |= {owner.uid for owner in gang.maker.metadata.owner_references}
    named = {pod.metadata.labels.get(_POD_GROUP) for pod in gang.pods}
    found = [
        each
        for each in workloads
        if each.metadata.name in named or any(owner.uid in mine for owner in each.metadata.owner_references)
    ]
    return made.workload_of(found[-1]) if found else None


def _job(name: str, namespace: str, gang: _Gang, groups: Mapping[str, objects.PodGroup]) -> KubeJob:
    pods = sorted(map(objects.pod_of, gang.pods), key=lambda pod: (pod.rank, pod.name))
    metas = [each.metadata for each in (*gang.pods, *gang.plans, *((gang.maker,) if gang.maker else ()))]
    group = next((groups.get(pod.metadata.annotations.get(GROUP, "")) for pod in gang.pods[:1]), None)
    state, message = gang.maker.state if gang.maker is not None else _state(gang)
    owner = gang.owner
    return KubeJob(
        name=name,
        namespace=namespace,
        spec={"gpus": _gpus(gang)},
        submitted=min((objects.seconds(meta.creation_timestamp) for meta in metas), default=0.0),
        state=state,
        state_message=message,
        group="" if group is None else group.status.phase or "Pending",
        group_conditions={} if group is None else objects.said(group.status.conditions),
        pods=tuple(pods),
        plans=tuple(sorted(map(objects.plan_of, gang.plans), key=lambda plan: plan.attempt)),
        maker=made.maker_of(owner or objects.Owner("v1", "Pod", name), gang.pods),
        owner=None if owner is None else (owner.api_version, owner.kind, owner.name),
        suspended=gang.maker is not None and gang.maker.spec.suspend,
    )


def _state(gang: _Gang) -> tuple[str, str]:
    """Of makers that do not say it themselves: a gang of which all pods ended well is over, and one that nobody makes
    anew when none of its pods run.
    """
    phases = [pod.status.phase for pod in gang.pods]
    if not phases or len(phases) < made.size_of(gang.pods[0]):
        return "", ""
    if all(phase == "Succeeded" for phase in phases):
        return "Completed", ""
    alone = gang.owner is not None and gang.owner.kind == "Pod"
    return ("Failed", "") if alone and all(phase in ("Succeeded", "Failed") for phase in phases) else ("", "")


def _gpus(gang: _Gang) -> int:
    """In all, as far as its pods or its template say."""
    if gang.pods:
        return gang.pods[0].spec.gpus * (made.size_of(gang.pods[0]) or len(gang.pods))
    template = None if gang.maker is None else gang.maker.template
    if template is None:
        return 0
    return template.spec.gpus * made.size_of(objects.Pod(template.metadata, template.spec))
