"""Whose pods they are: pods as the controllers make them, with what they write on them."""

from typing import Any

import msgspec
import pytest

from rackyard.controller.kube.kinds import gang_name, owner_of, place_in_gang, size_of
from rackyard.controller.kube.objects import GANG, GATE, RANK, SEATS, SIZE, Owner, Pod


def pod(name: str, labels: dict[str, str], annotations: dict[str, str] | None = None, **more: Any) -> Pod:
    """Gated, unless `gated` is false; made by the controllers `by`: (kind, name)."""
    by = [
        {"apiVersion": api, "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
        for api, kind, owner in more.get("by", ())
    ]
    gates = [{"name": GATE}] if more.get("gated", True) else []
    data = {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "labels": labels,
            "annotations": annotations or {},
            "ownerReferences": by,
        },
        "spec": {"schedulingGates": gates},
    }
    return msgspec.convert(data, Pod)


def jobset(job: int, index: int, **more: Any) -> Pod:
    """A pod of JobSet `js` with a driver and workers; `job` counts over both, as JobSet does."""
    name = "js-driver-0" if job == 0 else f"js-worker-{job - 1}"
    labels = {
        "batch.kubernetes.io/job-completion-index": str(index),
        "batch.kubernetes.io/job-name": name,
        "jobset.sigs.k8s.io/global-replicas": "3",
        "jobset.sigs.k8s.io/job-global-index": str(job),
        "jobset.sigs.k8s.io/job-index": str(max(job - 1, 0)),
        "jobset.sigs.k8s.io/jobset-name": "js",
        "jobset.sigs.k8s.io/jobset-uid": "uid-js",
        "jobset.sigs.k8s.io/replicatedjob-name": name.split("-")[1],
        "jobset.sigs.k8s.io/restart-attempt": "0",
    }
    return pod(f"{name}-{index}-c5rsj", labels, {SIZE: "4"}, by=[("batch/v1", "Job", name)], **more)


def lws(group: int, index: int) -> Pod:
    labels = {
        "apps.kubernetes.io/pod-index": str(group if index == 0 else index),
        "leaderworkerset.sigs.k8s.io/group-index": str(group),
        "leaderworkerset.sigs.k8s.io/name": "lw",
        "leaderworkerset.sigs.k8s.io/worker-index": str(index),
    }
    name, by = (f"lw-{group}", "lw") if index == 0 else (f"lw-{group}-{index}", f"lw-{group}")
    return pod(name, labels, {"leaderworkerset.sigs.k8s.io/size": "3"}, by=[("apps/v1", "StatefulSet", by)])


def pytorch(role: str, index: int) -> Pod:
    labels = {
        "training.kubeflow.org/job-name": "pt",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-index": str(index),
        "training.kubeflow.org/replica-type": role,
    }
    return pod(f"pt-{role}-{index}", labels, by=[("kubeflow.org/v1", "PyTorchJob", "pt")])


def volcano(task: str, index: int) -> Pod:
    labels = {"volcano.sh/job-name": "vj", "volcano.sh/task-spec": task, "volcano.sh/task-index": str(index)}
    annotations = {"scheduling.k8s.io/group-name": "vj-0b1c", "volcano.sh/task-spec": task}
    return pod(f"vj-{task}-{index}", labels, annotations, by=[("batch.volcano.sh/v1alpha1", "Job", "vj")])


def job(index: int) -> Pod:
    labels = {"batch.kubernetes.io/job-name": "j", "batch.kubernetes.io/job-completion-index": str(index)}
    return pod(f"j-{index}-x7x7x", labels, by=[("batch/v1", "Job", "j")])


def in_order(*pods: Pod) -> list[str]:
    places = {each.metadata.name: place_in_gang(each) for each in pods}
    assert None not in places.values() and len(set(places.values())) == len(pods)
    return sorted(places, key=lambda name: places[name] or ())


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (jobset(2, 0), "js"),
        (lws(1, 0), "lw-1"),
        (lws(1, 2), "lw-1"),
        (pytorch("worker", 0), "pt"),
        (volcano("worker", 0), "vj-0b1c"),
        (job(0), "j"),
        (pod("alone", {}), "alone"),
    ],
)
def test_the_gang_is_named_after_whoever_made_the_pods(found: Pod, name: str) -> None:
    assert gang_name(found) == name


def test_our_label_comes_first_and_the_pod_group_second() -> None:
    both = {**jobset(1, 0).metadata.labels, GANG: "mine"}
    assert gang_name(pod("p", both, {"scheduling.k8s.io/group-name": "group"})) == "mine"
    assert gang_name(pod("p", jobset(1, 0).metadata.labels, {"scheduling.k8s.io/group-name": "group"})) == "group"


def test_pods_that_are_not_ours_are_in_no_gang() -> None:
    labels = jobset(1, 0).metadata.labels
    assert gang_name(pod("helper", labels, gated=False)) == ""
    assert gang_name(pod("helper", {}, {"scheduling.k8s.io/group-name": "group"}, gated=False)) == ""
    assert gang_name(pod("released", labels, {SEATS: "0:0:mlx5_0"}, gated=False)) == "js"
    assert gang_name(pod("labelled", {GANG: "g"}, gated=False)) == "g"


def test_a_jobset_is_ranked_over_its_jobs_and_then_within_each() -> None:
    found = in_order(jobset(2, 1), jobset(0, 0), jobset(2, 0), jobset(10, 0), jobset(1, 1), jobset(1, 0))
    assert [name.rsplit("-", 1)[0] for name in found] == [
        "js-driver-0-0",
        "js-worker-0-0",
        "js-worker-0-1",
        "js-worker-1-0",
        "js-worker-1-1",
        "js-worker-9-0",
    ]


def test_a_jobs_pod_of_a_jobset_may_have_no_index() -> None:
    labels = {key: value for key, value in jobset(3, 0).metadata.labels.items() if "completion" not in key}
    assert place_in_gang(pod("js-w-2-abcde", labels)) == (3, 0)


def test_a_group_of_a_leaderworkerset_starts_with_its_leader() -> None:
    assert in_order(lws(1, 2), lws(1, 0), lws(1, 1)) == ["lw-1", "lw-1-1", "lw-1-2"]
    assert in_order(lws(1, 0), lws(0, 1), lws(0, 0)) == ["lw-0", "lw-0-1", "lw-1"], "where a label makes it one gang"


def test_a_master_comes_before_the_workers() -> None:
    assert in_order(pytorch("worker", 1), pytorch("worker", 0), pytorch("master", 0)) == [
        "pt-master-0",
        "pt-worker-0",
        "pt-worker-1",
    ]
    assert in_order(volcano("ps", 1), volcano("worker", 0), volcano("ps", 0), volcano("chief", 0)) == [
        "vj-chief-0",
        "vj-ps-0",
        "vj-ps-1",
        "vj-worker-0",
    ]


def test_a_job_and_a_statefulset_are_ranked_by_index_and_others_by_name() -> None:
    assert in_order(job(10), job(9)) == ["j-9-x7x7x", "j-10-x7x7x"]
    assert place_in_gang(pod("web-3", {"apps.kubernetes.io/pod-index": "3"})) == (3,)
    assert place_in_gang(pod("w-12", {})) == (12,)
    assert place_in_gang(pod("w", {})) is None


@pytest.mark.parametrize("told", ["x", "-1", "", "1234567", "²"])
def test_a_rank_that_is_no_number_is_no_place(told: str) -> None:
    assert place_in_gang(pod("w-3", {}, {RANK: told})) is None
    assert (
        place_in_gang(pod("w-3", {**lws(0, 0).metadata.labels, "leaderworkerset.sigs.k8s.io/group-index": told}))
        is None
    )


def test_an_explicit_rank_comes_before_all_that_is_known() -> None:
    assert place_in_gang(pod("p", jobset(2, 1).metadata.labels, {RANK: "7"})) == (7,)


def test_the_size_of_a_group_is_known_and_of_others_is_not() -> None:
    assert [size_of(lws(0, 1)), size_of(jobset(0, 0)), size_of(job(0))] == [3, None, None]
    whole = {**lws(0, 1).metadata.labels, GANG: "lw"}
    assert size_of(pod("lw-0-1", whole, {"leaderworkerset.sigs.k8s.io/size": "3"})) is None, "one gang of all groups"


def test_what_goes_with_the_gang_belongs_to_what_outlives_its_pods() -> None:
    assert owner_of(jobset(1, 0)) == Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "js", "uid-js", True)
    assert owner_of(job(0)) == Owner("batch/v1", "Job", "j", "uid-j", True)
    assert owner_of(pod("alone", {})) == Owner("v1", "Pod", "alone", "uid-alone", True)
