"""Jobs of a cluster: submitted, listed, looked at and cancelled, with requests to the API server alone."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from rackyard.backends.kubernetes import jobobjects as objects
from rackyard.backends.kubernetes.client import METADATA, ApiError, Client
from rackyard.backends.kubernetes.gangobjects import pod_gang
from rackyard.backends.kubernetes.gangs import Gangs
from rackyard.backends.kubernetes.ground import Ground
from rackyard.backends.kubernetes.podenv import progress
from rackyard.backends.kubernetes.reader import Reader
from rackyard.backends.kubernetes.watch import Meta
from rackyard.errors import NotYet, RackyardError, UsageError
from rackyard.jobs.kubejob import ECHOES, KubeJob, KubePod, Said, phase_of
from rackyard.jobs.kubeplaced import lacks_pods
from rackyard.launch.volcano import GANG, SPEC

TAIL = 400
"""Lines of rank 0's log in which the newest step is looked for."""
_TAIL_BYTES = str(1 << 20)
_VOLCANO = "/apis/batch.volcano.sh/v1alpha1"
_GROUPS = "/apis/scheduling.volcano.sh/v1beta1"
_COMMANDS = "/apis/bus.volcano.sh/v1alpha1"
_PLANS = "/apis/rackyard.io/v1alpha1"
_CORDONED = "Cordoned"
"""Reason of the Event on a node that Rackyard has taken out of use."""
_MANY = 64
"""Nodes that are asked for one by one; for more, the list of all is read."""


@dataclass(frozen=True, slots=True)
class Jobs(Reader):
    """The jobs of one namespace: those of `rackyard submit`, and all other gangs that Rackyard places."""

    def submit(self, job: Mapping[str, Any], *, dry_run: bool = False) -> str:
        """Create a Volcano Job and return its name. With `dry_run` the API server checks it and stores nothing.

        UsageError when there is one of that name or no such queue, PriorityClass or namespace, RackyardError where
        something is not installed.
        """
        ground = Ground(self.client, self.namespace)
        ground.ready(str(job["spec"]["queue"]), str(job["spec"].get("priorityClassName", "")))
        name = str(job["metadata"]["name"])
        params = {"dryRun": "All"} if dry_run else {}
        try:
            self.client.post(self.path(_VOLCANO, "jobs"), {"fieldManager": "rackyard", **params}, job)
        except ApiError as error:
            if error.status.code == 409:
                raise self._exists(name) from None
            if error.status.code == 404:
                raise ground.missing(error) from None
            if error.status.code == 422:
                raise UsageError(
                    "the API server refuses the job", where=error.where, why=error.status.message
                ) from None
            raise
        return name

    def names(self) -> list[str]:
        """Of all jobs, newest first."""
        return [job.name for job in self._listed()]

    def listed(self) -> list[KubeJob]:
        """All jobs, newest first, with the step of those that run."""
        found = [job if job.maker else self._with_progress(job) for job in self._listed()]
        if not found:
            Ground(self.client, self.namespace).there()
        return self._with_setbacks(found)

    def _listed(self) -> list[KubeJob]:
        all_pods, all_plans = self.items(self.path("/api/v1", "pods"), objects.Pod), self._plans()
        pods: dict[str, list[objects.Pod]] = {}
        for pod in all_pods:
            pods.setdefault(pod.metadata.labels.get(GANG, ""), []).append(pod)
        plans: dict[str, list[objects.GangPlan]] = {}
        for plan in all_plans or ():
            plans.setdefault(plan.spec.gang, []).append(plan)
        volcano = self._volcano()
        if volcano is None and all_plans is None:
            what, fix = "the cluster knows neither Rackyard's GangPlan nor Volcano", "kubectl apply -k deploy/"
            raise RackyardError(what, where=self.client.server, fix=f"{fix}, or name another one with --context")
        groups = {group.metadata.name: group for group in self._groups()}
        ours = {}
        for job in volcano or ():
            name = job.metadata.name
            group = groups.get(f"{name}-{job.metadata.uid}")
            ours[name] = _job(job, pods.get(name, ()), plans.get(name, ()), group)
        others = [pod for pod in all_pods if pod_gang(pod) not in ours]
        left = [plan for plan in all_plans or () if plan.spec.gang not in ours]
        gangs = Gangs(self.client, self.namespace).all(others, left)
        return sorted((*ours.values(), *gangs), key=lambda job: (job.submitted, job.name), reverse=True)

    def read(self, name: str, *, deep: bool = False) -> KubeJob:
        """One job; `deep` with the events, and whether its queue is there. UsageError when there is no such job."""
        job = self.one(self.path(_VOLCANO, "jobs", name), objects.VolcanoJob)
        if job is None or SPEC not in job.metadata.annotations:
            gang = self._gang(name, job)
            if gang is not None:
                about = [gang.owner[2]] if gang.owner else []
                return self._told(gang, [*about, *([gang.workload.name] if gang.workload else [])]) if deep else gang
        if job is None:
            raise self._unknown(name)
        label = {"labelSelector": f"{GANG}={name}"}
        pods = self.items(self.path("/api/v1", "pods"), objects.Pod, label)
        group_name = f"{name}-{job.metadata.uid}"
        group = self.one(self.path(_GROUPS, "podgroups", group_name), objects.PodGroup)
        plans = [plan for plan in self._plans() or () if plan.spec.gang == name]
        made = self._with_progress(_job(job, pods, plans, group))
        if not deep:
            return made
        queue = self.one(f"{_GROUPS}/queues/{quote(made.queue, safe='')}", objects.Named)
        return replace(self._told(made, [name, group_name]), queue_there=queue is not None)

    def _gang(self, name: str, job: objects.VolcanoJob | None) -> KubeJob | None:
        """The gang of that name, or the one that an object of that name makes; `job`: a Volcano Job of others."""
        pods = self.items(self.path("/api/v1", "pods"), objects.Pod)
        gangs = Gangs(self.client, self.namespace)
        found = gangs.all(pods, self._plans() or ())
        names = (name,) if job is None else (name, f"{name}-{job.metadata.uid}")
        gang = next((each for each in found if each.name in names), None)
        if gang is not None:
            return gangs.at_the_top(gang)
        made = [gangs.at_the_top(each) for each in found if each.owner is not None and each.owner[2] == name]
        if len(made) > 1:
            there = ", ".join(sorted(each.name for each in made))
            raise UsageError(f"{name!r} is several gangs", where=f"namespace {self.namespace}", fix=f"one of: {there}")
        return made[0] if made else None

    def _told(self, job: KubeJob, about: Iterable[str]) -> KubeJob:
        """With its nodes, and the events about it and its first pod."""
        names = dict.fromkeys((*about, *(pod.name for pod in job.pods[:1])))
        found = sorted((event for one in names for event in self._events(one)), key=lambda event: event.at)
        return replace(self.with_nodes(job), events=tuple(found))

    def cancel(self, job: KubeJob) -> None:
        """Ask Volcano to abort the job: its pods are ended, and it stays listed."""
        meta = Meta(name=job.name, namespace=self.namespace, uid=job.uid)
        command(self.client, meta, "AbortJob", "CancelRequested", "rackyard cancel")

    def with_nodes(self, job: KubeJob) -> KubeJob:
        """With what the nodes of its attempts say; those that are gone are left out."""
        wanted = {node for plan in job.plans for _, node in plan.nodes}
        if len(wanted) > _MANY:
            found = self.items("/api/v1/nodes", objects.Named, {}, METADATA.format("PartialObjectMetadataList"))
        else:
            one = METADATA.format("PartialObjectMetadata")
            paths = [f"/api/v1/nodes/{quote(name, safe='')}" for name in sorted(wanted)]
            found = [node for path in paths if (node := self.one(path, objects.Named, one)) is not None]
        nodes = {node.metadata.name: objects.node_of(node) for node in found if node.metadata.name in wanted}
        for name in {node for plan in job.plans if plan.reason in ECHOES for _, node in plan.nodes} & nodes.keys():
            # Its mark is of the newest fault; older ones stand in events, while the cluster keeps them.
            told = [one for one in self._node_events(name) if one.reason == _CORDONED]
            nodes[name] = replace(nodes[name], faults=(*nodes[name].faults, *told))
        return replace(job, nodes=nodes)

    def log(self, pod: str, *, tail: int | None = None, container: str = "") -> list[str]:
        """The lines of a pod's log, or the last so many. NotYet when it has none yet, or none any more."""
        params = {} if tail is None else {"tailLines": str(tail), "limitBytes": _TAIL_BYTES}
        params |= {"container": container} if container else {}
        try:
            data = self.client.get(self.log_path(pod), params, "*/*")
        except ApiError as error:
            if error.status.code not in (400, 404):
                raise
            raise NotYet(f"pod {pod} has no log", where=error.where, why=error.status.message) from None
        return data.decode(errors="replace").splitlines()

    def log_path(self, pod: str) -> str:
        """Where the API server has a pod's log."""
        return f"{self.path('/api/v1', 'pods')}/{quote(pod, safe='')}/log"

    def _with_progress(self, job: KubeJob) -> KubeJob:
        """With what rank 0's pod says of steps; nothing where it can't be asked now."""
        first = next((pod for pod in job.pods if pod.rank == 0 and not pod.ending and pod.phase != "Pending"), None)
        if first is None:
            return job
        try:
            lines = self.log(first.name, tail=TAIL)
        except RackyardError:  # its node may be down; the job is told of all the same
            return job
        mark = "[rackyard] "
        said = progress([line.removeprefix(mark) for line in lines if line.startswith(mark)])
        return replace(
            job, step=said.step, resumed=said.resumed, checkpoint=said.checkpoint, metrics=said.metrics or {}
        )

    def _with_setbacks(self, jobs: list[KubeJob]) -> list[KubeJob]:
        """With what those who make their pods say of it, where pods are missing: asked for together."""
        wanting = [job for job in jobs if not phase_of(job).over and lacks_pods(job)]
        if not wanting:
            return jobs
        ask = {"fieldSelector": "reason=FailedCreate"}
        told: dict[str, list[Said]] = {}
        for event in self.maybe(self.path("/api/v1", "events"), objects.Event, ask, shy=True) or ():
            told.setdefault(event.involved_object.name, []).append(objects.event_of(event))
        found = {}
        for job in wanting:
            events = told.get(job.owner[2] if job.owner is not None else job.name, [])
            found[job.name] = replace(job, events=tuple(sorted(events, key=lambda event: event.at)))
        return [found.get(job.name, job) for job in jobs]

    # --- requests -----------------------------------------------------------------------------------------------

    def _volcano(self) -> list[objects.VolcanoJob] | None:
        """The Volcano Jobs that `rackyard submit` made; None where there is no Volcano."""
        return self.maybe(self.path(_VOLCANO, "jobs"), objects.VolcanoJob, {"labelSelector": GANG})

    def _plans(self) -> list[objects.GangPlan] | None:
        return self.maybe(self.path(_PLANS, "gangplans"), objects.GangPlan)

    def _groups(self) -> list[objects.PodGroup]:
        return self.maybe(self.path(_GROUPS, "podgroups"), objects.PodGroup) or []

    def _events(self, about: str) -> list[Said]:
        ask = {"fieldSelector": f"involvedObject.name={about}"}
        return [objects.event_of(event) for event in self.items(self.path("/api/v1", "events"), objects.Event, ask)]

    def _node_events(self, node: str) -> list[Said]:
        ask = {"fieldSelector": f"involvedObject.kind=Node,involvedObject.name={node}"}
        found = self.maybe("/api/v1/namespaces/default/events", objects.Event, ask) or ()
        return [objects.event_of(event) for event in found]

    # --- what is wrong ------------------------------------------------------------------------------------------

    def _exists(self, name: str) -> UsageError:
        try:
            phase = f"it is {phase_of(self.read(name)).value}"
        except RackyardError:
            phase = "it is not one of Rackyard's"
        return UsageError(
            f"there is a job {name!r} already",
            where=f"namespace {self.namespace} of {self.client.server}",
            why=phase,
            fix=f"another name, or: kubectl -n {self.namespace} delete job.batch.volcano.sh {name}",
        )

    def _unknown(self, name: str) -> UsageError:
        names = self.names()
        if not names:
            Ground(self.client, self.namespace).there()
        near = difflib.get_close_matches(name, names, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        return UsageError(
            f"no job {name!r}",
            where=f"namespace {self.namespace} of {self.client.server}",
            fix=f"{meant}`rackyard ps -a --target kubernetes` lists the jobs",
        )


def command(client: Client, job: Meta, action: str, reason: str, message: str) -> None:
    """Tell Volcano's job controller to do something with a Job: a Command, which it deletes when it has read it."""
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job.name, "uid": job.uid}
    target = {**owner, "controller": True, "blockOwnerDeletion": True}
    body = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {
            "generateName": f"{job.name}-{action.lower()}-",
            "namespace": job.namespace,
            "ownerReferences": [target],
        },
        "target": target,
        "action": action,
        "reason": reason,
        "message": message,
    }
    client.post(f"{_COMMANDS}/namespaces/{quote(job.namespace, safe='')}/commands", {}, body)


def _job(
    job: objects.VolcanoJob,
    pods: Iterable[objects.Pod],
    plans: Iterable[objects.GangPlan],
    group: objects.PodGroup | None,
) -> KubeJob:
    meta, status = job.metadata, job.status
    members: list[KubePod] = sorted((objects.pod_of(pod) for pod in pods), key=lambda pod: (pod.rank, pod.name))
    return KubeJob(
        name=meta.name,
        namespace=meta.namespace,
        spec=objects.spec_of(meta.annotations.get(SPEC, "{}")),
        submitted=objects.seconds(meta.creation_timestamp),
        updated=objects.seconds(status.state.last_transition_time),
        state=status.state.phase,
        state_message=status.state.message,
        uid=meta.uid,
        queue=job.spec.queue,
        retries=status.retry_count,
        group="" if group is None else group.status.phase or "Pending",
        pods=tuple(members),
        plans=tuple(sorted((objects.plan_of(one) for one in plans if one.of(meta.uid)), key=lambda one: one.attempt)),
        group_conditions={} if group is None else objects.said(group.status.conditions),
    )
