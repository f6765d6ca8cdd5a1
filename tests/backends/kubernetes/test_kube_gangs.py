"""Gangs that `rackyard submit` did not make, as the user's side finds them: whose they are, and how they stand."""

import json
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from rackyard.backends.kubernetes.client import ApiError, Client, Status
from rackyard.backends.kubernetes.jobs import Jobs
from rackyard.errors import RackyardError, UsageError
from rackyard.jobs.kubejob import Maker, phase_of
from rackyard.jobs.kubewhy import why

SPACE = "namespaces/default"
PODS, PLANS = f"/api/v1/{SPACE}/pods", f"/apis/rackyard.io/v1alpha1/{SPACE}/gangplans"
JOBS, JOBSETS = f"/apis/batch/v1/{SPACE}/jobs", f"/apis/jobset.x-k8s.io/v1alpha2/{SPACE}/jobsets"
VOLCANO = f"/apis/batch.volcano.sh/v1alpha1/{SPACE}/jobs"
WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/{SPACE}/workloads"
EVENTS = f"/api/v1/{SPACE}/events"
GATE = [{"name": "rackyard.io/placement"}]
SIZE = {"rackyard.io/gang-size": "2"}


@dataclass
class Server:
    """Answers what it has; anything else is not there."""

    objects: dict[str, Any] = field(default_factory=lambda: {PODS: [], PLANS: [], EVENTS: [], f"/api/v1/{SPACE}": {}})
    refuse: dict[str, int] = field(default_factory=dict)
    server: str = "here"

    def get(self, path: str, params: dict[str, str], accept: str) -> bytes:
        code = self.refuse.get(path, 200 if path in self.objects else 404)
        if code != 200:
            raise ApiError(f"{code}", Status(code=code, reason="Refused", message="no"), where="here")
        found = self.objects[path]
        return json.dumps({"items": found} if isinstance(found, list) else found).encode()


@pytest.fixture
def server() -> Server:
    return Server()


def jobs(server: Server) -> Jobs:
    return Jobs(cast(Client, server))


def pod(name: str, owner: tuple[str, str, str] | None = None, phase: str = "Pending", **meta: Any) -> dict[str, Any]:
    """A gated pod of a gang of two."""
    by = []
    if owner is not None:
        api, kind, by_name = owner
        by = [{"apiVersion": api, "kind": kind, "name": by_name, "uid": f"uid-{by_name}", "controller": True}]
    said = {"name": name, "uid": f"uid-{name}", "annotations": SIZE, "ownerReferences": by, **meta}
    said["creationTimestamp"] = "2026-11-30T10:00:00Z"
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    gates = GATE if phase == "Pending" else []
    return {
        "metadata": said,
        "spec": {"containers": [container], "schedulingGates": gates, "nodeName": "" if gates else "r01-t01"},
        "status": {"phase": phase},
    }


def template() -> dict[str, Any]:
    made = pod("")
    return {"metadata": {"annotations": SIZE}, "spec": made["spec"]}


def job(name: str, *conditions: tuple[str, str], **spec: Any) -> dict[str, Any]:
    told = [{"type": kind, "status": "True", "message": message} for kind, message in conditions]
    meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-11-30T10:00:00Z"}
    return {"metadata": meta, "spec": {"template": template(), **spec}, "status": {"conditions": told}}


def of_job(name: str, phase: str = "Pending", at: int = 0) -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-name": name, "batch.kubernetes.io/job-completion-index": str(at)}
    return pod(f"{name}-{at}-x7k2p", ("batch/v1", "Job", name), phase, labels=labels)


def plan(gang: str, phase: str = "Bound") -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": gang, "uid": f"uid-{gang}"}
    meta = {"name": f"{gang}-1", "ownerReferences": [owner], "creationTimestamp": "2026-11-30T10:00:00Z"}
    members = [{"pod": f"{gang}-0", "uid": "u", "node": "r01-t01", "segment": 0, "seats": "0:0:a"}]
    said = {"phase": phase, "message": "its pods are gone"}
    return {"metadata": meta, "spec": {"gang": gang, "attempt": 1, "members": members}, "status": said}


def test_a_job_its_pods_and_its_phase(server: Server) -> None:
    server.objects |= {JOBS: [job("train")], PODS: [of_job("train", "Running"), of_job("train", "Running", 1)]}
    found = jobs(server).read("train", deep=True)
    assert (found.gpus, found.maker, phase_of(found).value) == (8, Maker("Job", "train", "job.batch train"), "running")
    assert [each.name for each in found.pods] == ["train-0-x7k2p", "train-1-x7k2p"]
    assert why(found).reason == "it runs: 2 pods on 1 node"
    for kind, message, phase in (("Complete", "", "succeeded"), ("Failed", "too often", "failed")):
        server.objects[JOBS] = [job("train", (kind, message))]
        assert phase_of(jobs(server).read("train")).value == phase
    server.objects[PODS] = []
    assert "too often" in why(jobs(server).read("train")).reason


def test_jobs_that_are_none_of_ours_are_not_listed(server: Server) -> None:
    plain = job("plain")
    plain["spec"]["template"] = {"spec": {"containers": [{"name": "main"}]}}
    stranger = pod("stranger", phase="Running", annotations={})
    server.objects |= {JOBS: [plain, job("train")], PODS: [stranger, of_job("train")]}
    assert [each.name for each in jobs(server).listed()] == ["train"]
    with pytest.raises(UsageError, match="no job 'plain'"):
        jobs(server).read("plain")


def test_a_jobset_is_ended_by_what_made_it(server: Server) -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/jobset-uid": "uid-js"}
    server.objects[PODS] = [pod("js-w-0-0-abcde", ("batch/v1", "Job", "js-w-0"), labels=labels)]
    assert jobs(server).read("js").maker == Maker("JobSet", "js", "jobset.jobset.x-k8s.io js")
    above = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "js", "controller": True}
    server.objects[f"{JOBSETS}/js"] = {"metadata": {"name": "js", "ownerReferences": [above]}}
    assert jobs(server).read("js").maker == Maker("TrainJob", "js", "trainjob.trainer.kubeflow.org js")


def test_the_groups_of_a_leaderworkerset(server: Server) -> None:
    for group in "01":
        labels = {
            "leaderworkerset.sigs.k8s.io/name": "lw",
            "leaderworkerset.sigs.k8s.io/group-index": group,
            "leaderworkerset.sigs.k8s.io/worker-index": "0",
        }
        server.objects[PODS].append(pod(f"lw-{group}", ("apps/v1", "StatefulSet", "lw"), labels=labels))
    found = jobs(server).read("lw-1")
    assert found.maker == Maker("LeaderWorkerSet", "lw", "leaderworkerset.leaderworkerset.x-k8s.io lw")
    with pytest.raises(UsageError, match="several gangs") as raised:
        jobs(server).read("lw")
    assert "lw-0, lw-1" in (raised.value.fix or "")


def test_pods_that_nobody_made(server: Server) -> None:
    labels = {"rackyard.io/gang": "bare"}
    server.objects[PODS] = [pod("b-0", labels=labels), pod("b-1", labels=labels)]
    found = jobs(server).read("bare")
    assert found.maker == Maker("Pod", "b-0", "pods -l rackyard.io/gang=bare")
    assert "controller has not looked at it yet" in why(found).reason
    for phases, phase in ((("Succeeded", "Succeeded"), "succeeded"), (("Succeeded", "Failed"), "failed")):
        server.objects[PODS] = [pod(f"b-{at}", phase=each, labels=labels) for at, each in enumerate(phases)]
        assert phase_of(jobs(server).read("bare")).value == phase


def test_a_gang_that_only_a_plan_knows_of(server: Server) -> None:
    server.objects[PLANS] = [plan("set", "Ended")]
    answer = why(jobs(server).read("set"))
    assert answer.reason == "it has no pods; attempt 1: its pods are gone"
    assert answer.next_step == "if nothing happens: kubectl describe statefulset.apps set"


def workload(owner: str, *conditions: tuple[str, str, str, str]) -> dict[str, Any]:
    told = [dict(zip(("type", "status", "reason", "message"), each, strict=True)) for each in conditions]
    meta = {"name": f"job-{owner}-1a2b3", "ownerReferences": [{"uid": f"uid-{owner}"}]}
    return {"metadata": meta, "spec": {"queueName": "jobs"}, "status": {"conditions": told}}


def test_a_job_that_kueue_holds_has_no_pods_yet(server: Server) -> None:
    server.objects[JOBS] = [job("train", suspend=True)]
    assert why(jobs(server).read("train")).reason == "its Job is suspended, so that it has no pods"
    server.objects[WORKLOADS] = [
        workload("other", ("QuotaReserved", "False", "Pending", "another one's")),
        workload("train", ("QuotaReserved", "False", "Pending", "insufficient unused quota")),
    ]
    found = jobs(server).read("train", deep=True)
    answer = why(found)
    assert (found.gpus, answer.phase) == (8, "pending")
    assert answer.reason == "Kueue has not admitted it in queue jobs: insufficient unused quota"
    assert "Kueue Workload: QuotaReserved=False: Pending: insufficient unused quota" in answer.evidence
    assert [(each.name, each.gpus) for each in jobs(server).listed()] == [("train", 8)]


def test_a_jobset_that_kueue_holds(server: Server) -> None:
    held = {"metadata": {"name": "js", "uid": "uid-js"}, "spec": {"suspend": True}}
    held["spec"]["replicatedJobs"] = [{"name": "w", "template": {"spec": {"template": template()}}}]
    server.objects |= {JOBSETS: [held], WORKLOADS: [workload("js")]}
    assert why(jobs(server).read("js")).reason == "Kueue has not looked at it yet in queue jobs"


def test_what_one_may_not_see_is_left_out(server: Server) -> None:
    server.objects[PODS] = [of_job("train")]
    server.refuse = {JOBS: 403, JOBSETS: 403, WORKLOADS: 403}
    assert jobs(server).read("train").workload is None


def test_without_rackyard_and_volcano(server: Server) -> None:
    assert jobs(server).listed() == []
    del server.objects[PLANS]
    with pytest.raises(RackyardError, match="neither Rackyard's GangPlan nor Volcano"):
        jobs(server).listed()


def test_a_volcano_job_that_others_made_is_found_by_its_name(server: Server) -> None:
    made = {"metadata": {"name": "vj", "uid": "uid-vj"}}
    owner = ("batch.volcano.sh/v1alpha1", "Job", "vj")
    server.objects |= {VOLCANO: [], f"{VOLCANO}/vj": made}
    server.objects[PODS] = [pod("vj-w-0", owner, annotations={**SIZE, "scheduling.k8s.io/group-name": "vj-uid-vj"})]
    found = jobs(server).read("vj")
    assert (found.name, found.maker) == ("vj-uid-vj", Maker("Job", "vj", "job.batch.volcano.sh vj"))
