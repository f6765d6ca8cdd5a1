"""Queues and priorities on a real API server: whose turn it is is said by the cluster's own objects."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.testbed.gangset import GANG, GATE, GPU, PODS, REQUEST, Told, controller, nodes, plans, template, withdraw
from tests.testbed.gangyard import (
    BUDGETS,
    GROUPS,
    JOBS,
    QUEUES,
    RACK1,
    RACK2,
    gather,
    mark,
    opened,
    says,
    settled,
    tidied,
    waits,
    whole,
)
from tests.testbed.work import gone, volcano_job

from testbed import Cluster
from testbed.api import MERGE, until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

BOTH = ["default-scheduler", "volcano"]


@pytest.fixture(scope="module")
def yard(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_testbed(("kwok", "volcano"))
    with opened(tmp_path_factory.mktemp("queue")) as bed:
        yield bed


@pytest.fixture(autouse=True)
def tidy(yard: Cluster) -> Iterator[None]:
    yield
    tidied(yard)


def queue(bed: Cluster, name: str, gpus: int) -> None:
    spec = {"weight": 1, "reclaimable": True, "capability": {GPU: str(gpus), "cpu": "1000", "memory": "10Ti"}}
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    bed.api.post(QUEUES, {**kind, "metadata": {"name": name}, "spec": spec})
    until("the queue is open", lambda: bed.api.get(f"{QUEUES}/{name}").get("status", {}).get("state") == "Open")


def test_a_gang_waits_until_its_queue_lets_it_in(yard: Cluster) -> None:
    queue(yard, "narrow", 4)
    gather(yard, "g", 2, "volcano", queue="narrow", group={"minResources": {GPU: "8"}})
    with controller(yard):
        assert "queue narrow" in says(yard, "g-0", "NotInqueue")
        assert settled(yard, lambda: waits(yard, "g", 2) and not plans(yard, "g"))
        yard.api.patch(f"{QUEUES}/narrow", {"spec": {"capability": {GPU: "8"}}}, MERGE)
        until("it is bound", lambda: whole(yard, "g", 2))
    assert yard.api.get(f"{GROUPS}/g")["status"]["phase"] in ("Inqueue", "Running")


def test_a_volcano_job_is_known_by_its_pod_group_alone(yard: Cluster) -> None:
    made = volcano_job("train", 3, {REQUEST: json.dumps({"segment_gpus": 12})})
    del made["spec"]["networkTopology"]
    made["spec"]["tasks"][0]["template"]["spec"]["schedulingGates"] = [{"name": GATE}]
    yard.api.post(JOBS, made)
    (group,) = until("it has a PodGroup", lambda: yard.api.items(GROUPS))
    name = group["metadata"]["name"]
    with controller(yard) as told:
        told.wait(name, "Bound")
    (plan,) = plans(yard, name)
    where = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in yard.api.items(PODS)}
    assert where == {each["pod"]: each["node"] for each in plan["spec"]["members"]}
    assert list(where.values()) == list(RACK1[:3])
    (owner,) = plan["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", "train")


def ranked(priority: str) -> dict[str, Any]:
    return {"spec": {"priorityClassName": priority}, "request": {"segment_gpus": 16}}


def filled(bed: Cluster, told: Told, scheduler: str) -> None:
    """Two gangs of low priority take all there is."""
    for gang in ("a", "b"):
        gather(bed, gang, 4, scheduler, **ranked("low"))
        told.wait(gang, "Bound")


@pytest.mark.parametrize("scheduler", BOTH)
def test_a_higher_priority_displaces_a_lower_one_whole_which_comes_back(yard: Cluster, scheduler: str) -> None:
    with controller(yard) as told:
        filled(yard, told, scheduler)
        gather(yard, "top", 4, scheduler, **ranked("high"))
        told.wait("top", "Bound")
        assert whole(yard, "top", 4)
        out = next(gang for gang in ("a", "b") if plans(yard, gang)[0]["status"]["phase"] == "Ended")
        kept = "b" if out == "a" else "a"
        assert "gives way to gang default/top" in told.wait(out, "Preempted")
        until("the one that gave way waits", lambda: waits(yard, out, 4))
        if scheduler == "default-scheduler":
            assert "busy" in says(yard, f"{out}-0", "NoSeat")
        assert settled(yard, lambda: waits(yard, out, 4) and whole(yard, kept, 4))
        assert [plan["spec"]["attempt"] for plan in plans(yard, kept)] == [1], "one was enough"
        withdraw(yard, "top")
        until("it is back", lambda: whole(yard, out, 4))
    assert plans(yard, out)[-1]["spec"]["why"] == "gives way to gang default/top"


FOUR = {"minResources": {GPU: "16"}}
"""As the PodGroup of a Volcano Job has it: Volcano lets in only what there is room for."""


def test_a_higher_priority_enters_a_full_queue_when_lower_ones_have_gone(yard: Cluster) -> None:
    with controller(yard) as told:
        for gang in ("a", "b"):
            gather(yard, gang, 4, "volcano", group=FOUR, **ranked("low"))
            told.wait(gang, "Bound")
        gather(yard, "top", 4, "volcano", group=FOUR, **ranked("high"))
        told.wait("top", "Bound")
        out = next(gang for gang in ("a", "b") if plans(yard, gang)[0]["status"]["phase"] == "Ended")
        until("the one that gave way waits", lambda: waits(yard, out, 4))
        assert whole(yard, "top", 4)
        withdraw(yard, "top")
        until("it is back", lambda: whole(yard, out, 4))


def test_nobody_goes_for_a_gang_that_its_queue_can_never_let_in(yard: Cluster) -> None:
    queue(yard, "little", 20)
    with controller(yard) as told:
        for gang in ("a", "b"):
            gather(yard, gang, 2, "volcano", queue="little", group={"minResources": {GPU: "8"}}, **pair("low"))
            told.wait(gang, "Bound")
        for node in (*RACK1, *RACK2):
            mark(yard, node, "out") if node not in nodes(yard, "a") + nodes(yard, "b") else None
        gather(yard, "top", 6, "volcano", queue="little", group={"minResources": {GPU: "24"}},
               spec={"priorityClassName": "high"})  # fmt: skip
        says(yard, "top-0", "NotInqueue")
        assert settled(yard, lambda: waits(yard, "top", 6) and whole(yard, "a", 2) and whole(yard, "b", 2))


def pair(priority: str) -> dict[str, Any]:
    return {"spec": {"priorityClassName": priority}, "request": {"segment_gpus": 8}}


@pytest.mark.parametrize("scheduler", BOTH)
def test_one_that_never_preempts_waits(yard: Cluster, scheduler: str) -> None:
    with controller(yard) as told:
        filled(yard, told, scheduler)
        gather(yard, "top", 4, scheduler, **ranked("polite"))
        assert "busy" in told.wait("top", "NoSeat")
        assert settled(yard, lambda: waits(yard, "top", 4) and whole(yard, "a", 4) and whole(yard, "b", 4))


def test_volcanos_gangs_give_way_in_their_own_queue_only(yard: Cluster) -> None:
    queue(yard, "other", 64)
    with controller(yard) as told:
        filled(yard, told, "volcano")
        gather(yard, "top", 4, "volcano", queue="other", **ranked("high"))
        told.wait("top", "NoSeat")
        assert settled(yard, lambda: waits(yard, "top", 4) and whole(yard, "a", 4) and whole(yard, "b", 4))


def foreign(bed: Cluster, name: str, node: str, priority: str) -> None:
    body = template(name, 1, "default-scheduler", {})
    body["metadata"] = {"name": name, "labels": {"app": name}}
    body["spec"] |= {"schedulingGates": [], "nodeName": node, "priorityClassName": priority}
    bed.api.post(PODS, body)


def test_a_single_pod_of_lower_priority_gives_way(yard: Cluster) -> None:
    for node in RACK2:
        mark(yard, node, "out")
    foreign(yard, "low", RACK1[1], "low")
    foreign(yard, "same", RACK1[3], "high")
    with controller(yard) as told:
        gather(yard, "g", 3, request={"segment_gpus": 12}, spec={"priorityClassName": "high"})
        told.wait("g", "Bound")
    assert nodes(yard, "g") == list(RACK1[:3])
    assert gone(yard.api, f"{PODS}/low") and not gone(yard.api, f"{PODS}/same")
    (plan,) = plans(yard, "g")
    assert [victim["pod"] for victim in plan["spec"]["victims"]] == ["low"]


def test_a_budget_that_forbids_an_eviction_is_heeded_and_said(yard: Cluster) -> None:
    for node in RACK2:
        mark(yard, node, "out")
    with controller(yard) as told:
        gather(yard, "a", 4, **ranked("low"))
        told.wait("a", "Bound")
        spec = {"minAvailable": 4, "selector": {"matchLabels": {GANG: "a"}}}
        yard.api.post(BUDGETS, {"metadata": {"name": "a"}, "spec": spec})
        until("it counts", lambda: yard.api.get(f"{BUDGETS}/a").get("status", {}).get("currentHealthy") == 4)
        before = nodes(yard, "a")
        gather(yard, "top", 4, **ranked("high"))
        told.wait("top", "NoSeat")
        until(
            "it is said",
            lambda: "may not: POST" in (line := says(yard, "top-0", "NoSeat")) and "disruption budget" in line,
        )
        assert settled(yard, lambda: nodes(yard, "a") == before and waits(yard, "top", 4))
        yard.api.delete(f"{BUDGETS}/a")
        until("the higher one is bound", lambda: whole(yard, "top", 4))
        until("the lower one waits", lambda: waits(yard, "a", 4))
