"""Gangs on a real API server, with real schedulers: placed as a whole, released, and whatever goes wrong on the way."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from ruamel.yaml import YAML
from tests.testbed.gangset import (
    CRDS,
    PLANS,
    PODS,
    ROOT,
    SETS,
    SITE,
    controller,
    cordon,
    established,
    events,
    nodes,
    plan,
    plans,
    pods,
    submit,
    template,
    withdraw,
)

from rackyard.controller.kube.objects import SEATS
from testbed import Cluster, cluster
from testbed.api import MERGE, Refused, until
from testbed.nodes import create

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def yard(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_testbed(("kwok", "volcano"))
    with cluster(tmp_path_factory.mktemp("gangs") / "cluster", parts=("kwok", "volcano")) as bed:
        create(bed, SITE)
        crd = YAML(typ="safe").load((ROOT / "deploy" / "crd.yaml").read_text())
        bed.api.post(CRDS, crd)
        until("the CRD is served", lambda: established(bed))
        yield bed


@pytest.fixture(autouse=True)
def tidy(yard: Cluster) -> Iterator[None]:
    yield
    for each in yard.api.items(SETS):
        withdraw(yard, each["metadata"]["name"])
    for pod in yard.api.items(PODS):
        with suppress(Refused):  # it went with its set
            yard.api.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds="0")
    for found in yard.api.items(PLANS):
        with suppress(Refused):
            yard.api.delete(f"{PLANS}/{found['metadata']['name']}")
    for node in SITE.nodes:
        cordon(yard, node.name, False)
    until("no pod is left", lambda: not yard.api.items(PODS))


@pytest.mark.parametrize("scheduler", ["default-scheduler", "volcano"])
def test_a_gang_is_placed_released_and_bound_in_rank_order(yard: Cluster, scheduler: str) -> None:
    submit(yard, "g", 4, scheduler, segment_gpus=16)
    with controller(yard) as told:
        assert told.wait("g", "Placed").startswith("4 pods in 1 segments")
        told.wait("g", "Bound")
    assert nodes(yard, "g") == plan(yard, "g") == ["r01-t01", "r01-t02", "r01-t03", "r01-t04"]
    last = pods(yard, "g")[3]["metadata"]["annotations"]
    assert last[SEATS] == "12:0:mlx5_0,13:1:mlx5_1,14:2:mlx5_2,15:3:mlx5_3"


def test_one_of_two_gangs_waits_with_the_reason_and_follows_when_there_is_room(yard: Cluster) -> None:
    for node in ("r02-t01", "r02-t02", "r02-t03", "r02-t04"):
        cordon(yard, node, True)
    submit(yard, "a", 4, segment_gpus=16)
    submit(yard, "b", 4, segment_gpus=16)
    with controller(yard) as told:
        told.wait("a", "Bound")
        assert "4 busy" in told.wait("b", "NoSeat")
        assert nodes(yard, "b") == [""] * 4
        withdraw(yard, "a")
        told.wait("b", "Bound")


def test_a_gang_with_a_missing_member_waits_and_says_so(yard: Cluster) -> None:
    body = template("g", 2, "default-scheduler", {})
    body["metadata"]["name"] = "g-0"
    yard.api.post(PODS, body)
    with controller(yard) as told:
        assert told.wait("g", "MembersMissing") == "1 of 2 pods are there"
        until("the pod says so", lambda: ("GangMembersMissing", "1 of 2 pods are there") in events(yard, "g-0"))
        body["metadata"]["name"] = "g-1"
        yard.api.post(PODS, body)
        told.wait("g", "Bound")


def test_whoever_comes_after_a_crash_goes_on_with_the_plan(yard: Cluster) -> None:
    """The plan is stored and one of four pods is let go, as if the controller had been killed there."""
    submit(yard, "g", 4, segment_gpus=16)
    yard.stop("kube-scheduler")
    try:
        with controller(yard) as told:
            told.wait("g", "Released")
        before = plan(yard, "g")
        for pod in pods(yard, "g")[1:]:  # made again, they are gated
            where = {"name": pod["metadata"]["name"], "namespace": "default"}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": where}
            yard.api.post(f"{PODS}/{where['name']}/eviction", eviction)
        until("the pods are there again", lambda: len(pods(yard, "g")) == 4)
    finally:
        yard.resume("kube-scheduler")
    with controller(yard) as told:
        assert told.wait("g", "Restarted") == "pods of the gang were made anew"
        told.wait("g", "Bound")
    assert nodes(yard, "g") == plan(yard, "g") == before, "its seats were kept for it"
    phases = [(each["status"]["phase"], each["spec"].get("why", "")) for each in plans(yard, "g")]
    assert phases == [("Ended", ""), ("Bound", "pods of the gang were made anew")]


def test_a_plan_that_is_there_is_kept(yard: Cluster) -> None:
    submit(yard, "g", 2, segment_gpus=8)
    until("the pods are there", lambda: len(pods(yard, "g")) == 2)
    members = [
        {"pod": p["metadata"]["name"], "uid": p["metadata"]["uid"], "node": node, "segment": 0, "seats": seats}
        for p, node, seats in zip(pods(yard, "g"), ("r02-t03", "r02-t01"), ("0:0:a", "1:0:a"), strict=True)
    ]
    spec = {"gang": "g", "attempt": 1, "siteDigest": SITE.digest(), "members": members}
    yard.api.post(
        PLANS, {"apiVersion": "rackyard.io/v1alpha1", "kind": "GangPlan", "metadata": {"name": "g-1"}, "spec": spec}
    )
    with controller(yard) as told:
        told.wait("g", "Bound")
        assert all(word != "Placed" for _, word, _ in told.lines)
    assert nodes(yard, "g") == ["r02-t03", "r02-t01"]


@pytest.mark.parametrize("how", ["cordoned", "taken"])
def test_a_planned_node_that_is_lost_before_binding_means_another_plan(yard: Cluster, how: str) -> None:
    submit(yard, "g", 4, segment_gpus=16)
    yard.stop("kube-scheduler")
    try:
        with controller(yard) as told:
            told.wait("g", "Released")
            at = len(told.lines)
            if how == "cordoned":
                cordon(yard, "r01-t02", True)
            else:
                foreign = template("other", 1, "default-scheduler", {})
                foreign["metadata"] = {"name": "foreign", "labels": {}}
                foreign["spec"] |= {"schedulingGates": [], "nodeName": "r01-t02"}
                yard.api.post(PODS, foreign)
            assert "r01-t02" in told.wait("g", "NodeLost", at)
            yard.resume("kube-scheduler")
            told.wait("g", "Bound", at)
    finally:
        if "kube-scheduler" not in yard.running():
            yard.resume("kube-scheduler")
    assert {name.split("-")[0] for name in nodes(yard, "g")} == {"r02"}


def test_the_api_server_may_restart_in_between(yard: Cluster) -> None:
    submit(yard, "g", 4, segment_gpus=16)
    yard.stop("kube-scheduler")
    with controller(yard) as told:
        told.wait("g", "Placed")
        yard.restart("kube-apiserver", hard=True)
        yard.resume("kube-scheduler")
        told.wait("g", "Bound")
    assert nodes(yard, "g") == plan(yard, "g")


def test_a_deleted_plan_of_a_bound_gang_changes_nothing(yard: Cluster) -> None:
    submit(yard, "g", 2)
    with controller(yard) as told:
        told.wait("g", "Bound")
        before = nodes(yard, "g")
        yard.api.delete(f"{PLANS}/g-1")
        assert "left alone" in told.wait("g", "NoPlan")
    assert nodes(yard, "g") == before


def test_a_plan_can_not_be_changed(yard: Cluster) -> None:
    submit(yard, "g", 2)
    with controller(yard) as told:
        told.wait("g", "Bound")
    with pytest.raises(Exception, match="a plan is never changed"):
        yard.api.patch(f"{PLANS}/g-1", {"spec": {"siteDigest": "x"}}, MERGE)
