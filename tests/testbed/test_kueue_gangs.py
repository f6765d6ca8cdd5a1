"""Gangs that Kueue queues, on a real API server: it decides when, Rackyard where, and `why` says who of them waits."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.cli.calling import Answer, call
from tests.testbed.gangset import CRDS, PLANS, PODS, ROOT, SITE, controller, established, plans
from tests.testbed.kueues import KUEUE, kueue, queue
from tests.testbed.work import JOBS

from rackyard.controller.kube.objects import GATE, GPU, SIZE
from testbed import Cluster, cluster
from testbed.api import Refused, until
from testbed.kueue import QUEUE_LABEL
from testbed.nodes import create

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

PARTS = ("kwok", "kueue")
RACK = "rackyard.io/rack"
THEIRS = "kueue.x-k8s.io/topology"
WITHIN = "kueue.x-k8s.io/podset-required-topology"
ANYWHERE = "kueue.x-k8s.io/podset-unconstrained-topology"
INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.fixture(scope="module")
def yard(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two racks of four trays. Queue `jobs` has quota for four trays, and no topology; in `ranked` priority preempts,
    too; `racks` chooses racks; `hosts` chooses trays, with the Topology that `rackyard topo export` writes.
    """
    needs_testbed(PARTS)
    with cluster(tmp_path_factory.mktemp("kueue-gangs") / "cluster", parts=PARTS) as bed:
        create(bed, SITE)
        bed.api.post(CRDS, YAML(typ="safe").load((ROOT / "deploy" / "crd.yaml").read_text()))
        until("the CRD is served", lambda: established(bed))
        (exported,) = bed.api.items(f"{KUEUE}/resourceflavors")
        levels = [{"nodeLabel": RACK}]
        bed.api.post(f"{KUEUE}/topologies", kueue("Topology", "racks", {"levels": levels}))
        present = {"nodeLabels": {f"{GPU}.present": "true"}}
        bed.api.post(f"{KUEUE}/resourceflavors", kueue("ResourceFlavor", "plain", {}))
        bed.api.post(f"{KUEUE}/resourceflavors", kueue("ResourceFlavor", "racks", {**present, "topologyName": "racks"}))
        queue(bed, "jobs", "plain", 16)
        queue(bed, "ranked", "plain", 16, preemption={"withinClusterQueue": "LowerPriority"})
        queue(bed, "racks", "racks", 32)
        queue(bed, "hosts", exported["metadata"]["name"], 32)
        yield bed


@pytest.fixture(autouse=True)
def tidy(yard: Cluster) -> Iterator[None]:
    yield
    for each in yard.api.items(JOBS):
        withdraw(yard, each["metadata"]["name"])
    until("no pod is left", lambda: not yard.api.items(PODS))
    for each in yard.api.items(PLANS):
        with suppress(Refused):
            yard.api.delete(f"{PLANS}/{each['metadata']['name']}")


def submit(bed: Cluster, name: str, pods: int, to: str, annotations: dict[str, str] | None = None, **more: Any) -> None:
    """An Indexed Job whose pods take a tray each."""
    said = {SIZE: str(more.get("size", pods)), **(annotations or {})}
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: "4"}}}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "schedulingGates": [{"name": GATE}],
        "containers": [container],
    }
    template = {"metadata": {"annotations": said}, "spec": spec}
    job = {"completions": pods, "parallelism": pods, "completionMode": "Indexed", "template": template}
    labels = {QUEUE_LABEL: to, **more.get("labels", {})}
    bed.api.post(JOBS, {"metadata": {"name": name, "labels": labels}, "spec": job})


def withdraw(bed: Cluster, name: str) -> None:
    bed.api.delete(f"{JOBS}/{name}", propagationPolicy="Background")


def suspended(bed: Cluster, name: str) -> bool:
    return bool(bed.api.get(f"{JOBS}/{name}")["spec"]["suspend"])


def pods(bed: Cluster, name: str) -> list[dict[str, Any]]:
    """By completion index."""
    found = bed.api.items(PODS, labelSelector=f"batch.kubernetes.io/job-name={name}")
    return sorted(found, key=lambda pod: int(pod["metadata"]["labels"][INDEX]))


def gates(bed: Cluster, name: str) -> set[tuple[str, ...]]:
    return {tuple(sorted(gate["name"] for gate in pod["spec"].get("schedulingGates", ()))) for pod in pods(bed, name)}


def racks(bed: Cluster, name: str) -> set[str]:
    """Of its pods, by their nodes' names."""
    return {pod["spec"]["nodeName"].partition("-")[0] for pod in pods(bed, name)}


def ask(bed: Cluster, *words: object) -> Answer:
    return call(*words, "--target", "kubernetes", "--kubeconfig", bed.kubeconfig)


def test_kueue_decides_when_and_rackyard_where(yard: Cluster) -> None:
    submit(yard, "first", 4, "jobs")
    until("it is let in", lambda: not suspended(yard, "first") and len(pods(yard, "first")) == 4)
    assert gates(yard, "first") == {(GATE,)}, "held by us alone"
    submit(yard, "second", 4, "jobs")
    lacks = "second is pending: Kueue has not admitted it in queue jobs: "
    until("Kueue has said why", lambda: "insufficient unused quota" in ask(yard, "why", "second").out)
    assert "first is pending: Rackyard's controller has not looked at it yet" in ask(yard, "why", "first").out
    with controller(yard) as told:
        told.wait("first", "Bound")
        members = plans(yard, "first")[-1]["spec"]["members"]
        assert [pod["spec"]["nodeName"] for pod in pods(yard, "first")] == [member["node"] for member in members]
        until("they run", lambda: "attempt 1 runs: 4 pods on 4 nodes" in ask(yard, "why", "first").out)
        answer = ask(yard, "why", "second").out
        assert answer.startswith(lacks) and GPU in answer.splitlines()[0] and " describe localqueue jobs" in answer
        assert suspended(yard, "second") and not pods(yard, "second")
        rows = {tuple(line.split()[:4]) for line in ask(yard, "ps").out.splitlines()[1:]}
        assert rows == {("first", "running", "16", "1"), ("second", "pending", "16", "0")}
        assert ask(yard, "attempts", "first").out.splitlines()[1].split()[0] == "1"
        refused = ask(yard, "cancel", "first", "-y")
        kubectl = f"kubectl -n default --kubeconfig {yard.kubeconfig}"
        assert refused.code == 2 and f"{kubectl} delete job.batch first" in refused.err, refused
        assert not suspended(yard, "first") and len(pods(yard, "first")) == 4
        withdraw(yard, "first")
        told.wait("second", "Bound")
    assert len({pod["spec"]["nodeName"] for pod in pods(yard, "second")}) == 4


def test_what_kueue_takes_off_comes_back_as_another_attempt(yard: Cluster) -> None:
    high = {**kueue("WorkloadPriorityClass", "high", {}), "value": 1000}
    yard.api.post(f"{KUEUE}/workloadpriorityclasses", {key: high[key] for key in high if key != "spec"})
    submit(yard, "low", 4, "ranked")
    with controller(yard) as told:
        told.wait("low", "Bound")
        at = len(told.lines)
        submit(yard, "high", 4, "ranked", labels={"kueue.x-k8s.io/priority-class": "high"})
        told.wait("high", "Bound")
        answer = until(
            "it was taken off", lambda: asked(yard, "low", "low is pending: Kueue took it off (Preempted): ")
        )
        assert "next: nothing: it comes back" in answer and "Kueue Workload: Preempted=True" in answer
        withdraw(yard, "high")
        told.wait("low", "Bound", at)
        until("it runs", lambda: asked(yard, "low", "attempt 2 runs: 4 pods on 4 nodes"))
    assert [plan["spec"]["attempt"] for plan in plans(yard, "low")] == [1, 2]


def test_a_queue_that_is_not_there(yard: Cluster) -> None:
    submit(yard, "lost", 2, "nowhere")
    reason = "Kueue has not admitted it in queue nowhere: LocalQueue nowhere doesn't exist"
    answer = until("it is said", lambda: asked(yard, "lost", f"lost is pending: {reason}"))
    assert "next: mend the queue, or name another one" in answer


def asked(bed: Cluster, gang: str, what: str) -> str:
    """What `why` answers, once that is in it."""
    answer = ask(bed, "why", gang).out
    return answer if what in answer else ""


def test_a_gang_stays_in_the_rack_that_kueue_chose(yard: Cluster) -> None:
    """The first job fills a rack in Kueue's eyes only: it lacks a pod, and Rackyard does not place it."""
    submit(yard, "lame", 4, "racks", {WITHIN: RACK}, size=5)
    until("Kueue has chosen for it", lambda: gates(yard, "lame") == {(GATE,)})
    (taken,) = {pod["spec"]["nodeSelector"][RACK] for pod in pods(yard, "lame")}
    yard.stop("kube-controller-manager")
    submit(yard, "inside", 2, "racks", {WITHIN: RACK})
    until("Kueue has let it in", lambda: not suspended(yard, "inside"))
    yard.stop("kueue")  # before there are pods whose gate it could lift
    yard.resume("kube-controller-manager")
    until("its pods are there", lambda: len(pods(yard, "inside")) == 2)
    assert gates(yard, "inside") == {tuple(sorted((GATE, THEIRS)))}
    with controller(yard) as told:
        told.wait("inside", "OtherGates")
        until("it is said", lambda: f"other gates hold its pods: {THEIRS}" in ask(yard, "why", "inside").out)
        yard.resume("kueue")
        told.wait("inside", "Bound")
    (chosen,) = {pod["spec"]["nodeSelector"][RACK] for pod in pods(yard, "inside")}
    assert chosen != taken and racks(yard, "inside") == {chosen}


def test_a_gang_whose_pods_kueue_pinned_to_trays_waits_and_says_so(yard: Cluster) -> None:
    submit(yard, "pinned", 2, "hosts", {ANYWHERE: "true"})
    until("Kueue has chosen trays", lambda: gates(yard, "pinned") == {(GATE,)})
    with controller(yard) as told:
        line = told.wait("pinned", "Pinned")
        until("it is said", lambda: "pinned to different nodes by somebody else" in ask(yard, "why", "pinned").out)
    assert "leave kubernetes.io/hostname out of the levels of Kueue's Topology" in line
    assert "next: leave kubernetes.io/hostname out" in ask(yard, "why", "pinned").out
    assert not plans(yard, "pinned") and gates(yard, "pinned") == {(GATE,)}
