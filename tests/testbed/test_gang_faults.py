"""Gangs on a real API server when something breaks: nodes, racks, plans, schedulers, pods, the controller itself."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.testbed.gangset import GANG, GATE, PLANS, PODS, REQUEST, SIZE, controller, nodes, plans, pods, template
from tests.testbed.gangyard import (
    BUDGETS,
    RACK1,
    RACK2,
    Killed,
    doomed,
    gather,
    mark,
    opened,
    says,
    settled,
    tidied,
    waits,
    whole,
)

from rackyard.controller.kube import going
from rackyard.controller.kube.acts import Acts
from testbed import Cluster
from testbed.api import JSON_PATCH, MERGE, until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def yard(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_testbed(("kwok", "volcano"))
    with opened(tmp_path_factory.mktemp("faults")) as bed:
        yield bed


@pytest.fixture(autouse=True)
def tidy(yard: Cluster) -> Iterator[None]:
    yield
    if "kube-scheduler" not in yard.running():
        yard.resume("kube-scheduler")
    tidied(yard)


def reasons(bed: Cluster, gang: str) -> list[str]:
    return [plan.get("status", {}).get("reason", "") for plan in plans(bed, gang)]


@pytest.mark.parametrize("scheduler", ["default-scheduler", "volcano"])
def test_a_gang_leaves_a_node_at_fault_and_its_other_ranks_stay(yard: Cluster, scheduler: str) -> None:
    gather(yard, "g", 3, scheduler, request={"segment_gpus": 12, "spares": 1})
    with controller(yard) as told:
        told.wait("g", "Bound")
        before = nodes(yard, "g")
        (spare,) = plans(yard, "g")[0]["spec"]["spares"]
        mark(yard, before[1], "Xid 79 on GPU 2")
        assert told.wait("g", "Fault") == "Xid 79 on GPU 2"
        until("it is bound again", lambda: whole(yard, "g", 3))
    assert nodes(yard, "g") == [before[0], spare, before[2]], "the spare first, and the others where they were"
    assert [plan["spec"].get("why", "") for plan in plans(yard, "g")] == ["", "Xid 79 on GPU 2"]
    assert reasons(yard, "g")[0] == "Fault"


def test_only_the_segment_whose_rack_is_at_fault_moves(yard: Cluster) -> None:
    for node in (RACK1[3], RACK2[3]):  # a rack has room for one of its two segments
        mark(yard, node, "was out before")
    gather(yard, "g", 4, request={"segment_gpus": 8})
    with controller(yard) as told:
        told.wait("g", "Bound")
        before = nodes(yard, "g")
        lost, other = (RACK1, RACK2) if before[0] in RACK1 else (RACK2, RACK1)
        assert set(before[:2]) < set(lost) and set(before[2:]) < set(other)
        heal(yard, other[3])
        for node in lost[:3]:
            mark(yard, node, "its NVLink is down")
        told.wait("g", "Fault")
        until("it is whole in the other rack", lambda: whole(yard, "g", 4) and set(nodes(yard, "g")) == set(other))
    assert nodes(yard, "g")[2:] == before[2:], "the other segment stays"


def heal(bed: Cluster, node: str) -> None:
    body = {"metadata": {"annotations": {"rackyard.io/fault": None}}, "spec": {"unschedulable": None}}
    bed.api.patch(f"/api/v1/nodes/{node}", body, MERGE)


def test_all_nodes_of_a_rack_at_fault_move_the_gang_to_another(yard: Cluster) -> None:
    gather(yard, "g", 4, request={"segment_gpus": 16})
    with controller(yard) as told:
        told.wait("g", "Bound")
        assert set(nodes(yard, "g")) == set(RACK1)
        for node in RACK1:
            mark(yard, node, "NVLink of r01 is down")
        told.wait("g", "Fault")
        until("it is in the other rack", lambda: whole(yard, "g", 4) and set(nodes(yard, "g")) == set(RACK2))
    assert "NVLink of r01 is down" in plans(yard, "g")[-1]["spec"]["why"]


def test_a_budget_that_forbids_to_leave_a_node_at_fault_is_heeded_and_said(yard: Cluster) -> None:
    gather(yard, "g", 2)
    with controller(yard) as told:
        told.wait("g", "Bound")
        before = {pod["metadata"]["uid"] for pod in pods(yard, "g")}
        budget(yard, "g", 2)
        mark(yard, nodes(yard, "g")[0], "Xid 79")
        assert "disruption budget" in told.wait("g", "Trouble")
        assert settled(yard, lambda: {pod["metadata"]["uid"] for pod in pods(yard, "g")} == before)
        yard.api.delete(f"{BUDGETS}/g")
        until("it is bound again", lambda: whole(yard, "g", 2) and len(plans(yard, "g")) == 2)


def budget(bed: Cluster, gang: str, least: int) -> None:
    spec = {"minAvailable": least, "selector": {"matchLabels": {GANG: gang}}}
    bed.api.post(BUDGETS, {"metadata": {"name": gang}, "spec": spec})
    until(
        "the budget counts", lambda: bed.api.get(f"{BUDGETS}/{gang}").get("status", {}).get("currentHealthy") == least
    )


@pytest.mark.parametrize("bound", [0, 2])
def test_a_plan_that_is_deleted_half_way_through_a_release_leaves_nothing_stuck(
    yard: Cluster, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather(yard, "g", 4, request={"segment_gpus": 16})
    if not bound:
        yard.stop("kube-scheduler")
    release = Acts.release
    monkeypatch.setattr(Acts, "release", lambda self, patches: release(self, patches[:2]) and raised())
    with doomed(yard) as killed:
        until("it is killed", killed)
    monkeypatch.undo()
    until("so many are bound", lambda: len([name for name in nodes(yard, "g") if name]) == bound)
    yard.api.delete(f"{PLANS}/g-1")
    with controller(yard) as told:
        assert "placed again" in told.wait("g", "NoPlan")
        if not bound:
            until("it is released anew", lambda: len(plans(yard, "g")) == 1)
            yard.resume("kube-scheduler")
        until("it is bound", lambda: whole(yard, "g", 4))


def raised() -> Any:
    raise Killed


@pytest.mark.parametrize("when", ["stored", "half", "released", "ended"])
def test_whoever_comes_after_a_controller_that_was_killed_finishes_its_work(
    yard: Cluster, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather(yard, "g", 4, request={"segment_gpus": 16})
    match when:
        case "stored":
            monkeypatch.setattr(Acts, "release", lambda self, patches: raised())
        case "half":
            release = Acts.release
            monkeypatch.setattr(Acts, "release", lambda self, patches: release(self, patches[:2]) and raised())
        case "released":
            monkeypatch.setattr(Acts, "mark", lambda self, plan, status: raised())
        case "ended":
            with controller(yard) as told:
                told.wait("g", "Bound")
            mark(yard, RACK1[0], "Xid 79")
            monkeypatch.setattr(Acts, "evict", lambda self, taken: raised())
    with doomed(yard) as killed:
        until("it is killed", killed)
    monkeypatch.undo()
    assert len(plans(yard, "g")) == 1
    with controller(yard):
        until("it is bound", lambda: whole(yard, "g", 4))
    assert len(plans(yard, "g")) == (2 if when == "ended" else 1)


def test_what_the_scheduler_refuses_is_placed_elsewhere(yard: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(going, "REFUSED_AFTER", 1.0)
    there = yard.api.get(f"/api/v1/nodes/{RACK1[1]}")["status"]["allocatable"]["cpu"]
    little(yard, RACK1[1], "1")
    resources = {"limits": {"nvidia.com/gpu": "4"}, "requests": {"cpu": "2"}}
    container = {"name": "main", "image": "none", "resources": resources}
    gather(yard, "g", 4, request={"segment_gpus": 16}, spec={"containers": [container]})
    try:
        with controller(yard) as told:
            assert RACK1[1] in told.wait("g", "Refused")
            until("it is bound", lambda: whole(yard, "g", 4))
    finally:
        little(yard, RACK1[1], there)
    assert set(nodes(yard, "g")) == set(RACK2)
    first, second = plans(yard, "g")
    assert first["status"]["refused"] == [RACK1[1]] and "Insufficient cpu" in second["spec"]["why"]


def test_nodes_that_its_pods_do_not_tolerate_are_left_out(yard: Cluster) -> None:
    taint = {"spec": {"taints": [{"key": "example.com/broken", "effect": "NoSchedule"}]}}
    yard.api.patch(f"/api/v1/nodes/{RACK1[1]}", taint, MERGE)
    gather(yard, "g", 4, request={"segment_gpus": 16})
    with controller(yard) as told:
        told.wait("g", "Bound")
    assert set(nodes(yard, "g")) == set(RACK2) and len(plans(yard, "g")) == 1


def little(bed: Cluster, node: str, cpu: str) -> None:
    bed.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"allocatable": {"cpu": cpu}}}, MERGE)


@pytest.mark.parametrize("scheduler", ["default-scheduler", "volcano"])
def test_what_is_refused_everywhere_waits_as_a_whole_and_not_in_a_hot_loop(
    yard: Cluster, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(going, "REFUSED_AFTER", 1.0)
    resources = {"limits": {"nvidia.com/gpu": "4"}, "requests": {"cpu": "5000"}}
    container = {"name": "main", "image": "none", "resources": resources}
    gather(yard, "g", 4, scheduler, request={"segment_gpus": 16}, spec={"containers": [container]})
    with controller(yard) as told:
        told.wait("g", "NoSeat")
        until("it waits", lambda: waits(yard, "g", 4))
        assert settled(yard, lambda: waits(yard, "g", 4) and len(plans(yard, "g")) == 2, 3.0)
    assert reasons(yard, "g") == ["Refused", "Refused"]
    assert says(yard, "g-0", "NoSeat")


MENDED: dict[str, Any] = {SIZE: "2", REQUEST: "{}"}


@pytest.mark.parametrize(
    ("broken", "reason", "message"),
    [
        ({SIZE: "some"}, "UnknownSize", "must be the same number of pods"),
        ({SIZE: "1"}, "TooMany", "2 pods say that the gang has 1"),
        ({SIZE: "3"}, "MembersMissing", "2 of 3 pods are there"),
        ({REQUEST: "{nonsense"}, "BadRequest", "is not JSON"),
        ({REQUEST: '{"color": "red"}'}, "BadRequest", "no 'color'"),
    ],
    ids=["size", "too-many", "missing", "json", "request"],
)
def test_what_is_malformed_is_said_on_the_pod_and_can_be_mended(
    yard: Cluster, broken: dict[str, str], reason: str, message: str
) -> None:
    bare(yard, 2, broken)
    with controller(yard):
        assert message in says(yard, "g-0", reason)
        assert not plans(yard, "g")
        for number in range(2):
            yard.api.patch(f"{PODS}/g-{number}", {"metadata": {"annotations": MENDED}}, MERGE)
        until("it is bound", lambda: whole(yard, "g", 2))
        says(yard, "g-0", "Bound")


def test_pods_that_others_hold_too_wait_for_them(yard: Cluster) -> None:
    bare(yard, 2, {}, gates=("example.com/quota",))
    with controller(yard):
        assert "example.com/quota" in says(yard, "g-0", "OtherGates")
        for number in range(2):
            out = [{"op": "remove", "path": "/spec/schedulingGates/1"}]
            yard.api.patch(f"{PODS}/g-{number}", out, JSON_PATCH)
        until("it is bound", lambda: whole(yard, "g", 2))


def bare(bed: Cluster, size: int, annotations: dict[str, str], gates: tuple[str, ...] = ()) -> None:
    """Pods that nobody makes anew."""
    for number in range(size):
        body = template("g", size, "default-scheduler", {})
        body["metadata"]["name"] = f"g-{number}"
        body["metadata"]["annotations"] |= annotations
        body["spec"]["schedulingGates"] = [{"name": name} for name in (GATE, *gates)]
        bed.api.post(PODS, body)


def test_two_controllers_by_mistake_come_to_one_end(yard: Cluster) -> None:
    gangs = ("a", "b", "c")
    with controller(yard) as one, controller(yard) as two:
        for gang in gangs:
            gather(yard, gang, 4, request={"segment_gpus": 16})

        def ended(many: int) -> bool:
            stand = [whole(yard, gang, 4) or (waits(yard, gang, 4) and None) for gang in gangs]
            return stand.count(True) == many and stand.count(None) == len(gangs) - many

        until("two are bound and one waits", lambda: ended(2))
        assert settled(yard, lambda: ended(2))
        victim = next(gang for gang in gangs if whole(yard, gang, 4))
        mark(yard, nodes(yard, victim)[2], "Xid 79")
        until("one is bound and two wait", lambda: ended(1))
        heal(yard, next(node for node in (*RACK1, *RACK2) if faulty(yard, node)))
        until("two are bound again", lambda: ended(2))
        assert settled(yard, lambda: ended(2))
    assert json.dumps(one.lines) and json.dumps(two.lines)


def faulty(bed: Cluster, node: str) -> bool:
    return bool(bed.api.get(f"/api/v1/nodes/{node}")["spec"].get("unschedulable"))
