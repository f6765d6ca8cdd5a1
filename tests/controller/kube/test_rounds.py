"""Whole rounds against a stand-in cluster, with a clock that is passed in."""

from datetime import timedelta
from typing import Any

import pytest
from tests.controller.kube.clusterlike import Desk, Server, phase, whole

from rackyard.controller.kube import waiting
from rackyard.controller.kube.objects import ATTEMPT, MASTER, RANK, SEATS, SEGMENT
from rackyard.fabric import simulate

SITE = simulate(2, 4)
"""Two racks of four trays."""
RACK1, RACK2 = (tuple(node.name for node in SITE.nodes if node.name.startswith(rack)) for rack in ("r01", "r02"))
FOUR = '{"segment_gpus": 16}'


def test_a_gang_comes_to_its_nodes_and_its_pods_know_their_place() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 4, FOUR)
    for _ in range(3):
        desk.turn(schedule=False)
    desk.settle()
    assert desk.words("a") == ["Placed", "Released", "Bound"]
    assert desk.server.where("a") == list(RACK1)
    told = desk.server.pods["a-2"]["metadata"]["annotations"]
    assert (told[RANK], told[SEGMENT], told[ATTEMPT]) == ("2", "0", "1")
    assert told[SEATS] == "8:0:mlx5_0,9:1:mlx5_1,10:2:mlx5_2,11:3:mlx5_3"
    host, _, port = told[MASTER].partition(":")
    assert host == "10.0.0.0" and 20000 <= int(port) < 30000
    (plan,) = desk.server.plans.values()
    assert plan["metadata"]["name"] == "a-1" and {"releasedAt", "boundAt"} <= plan["status"].keys()
    condition = desk.server.condition("a-0")
    assert (condition["status"], condition["reason"]) == ("True", "Bound")
    assert [reason for name, reason, _ in desk.server.events] == ["GangPlaced", "GangReleased", "GangBound"]


def test_all_pods_are_told_the_same_place_to_meet_also_after_a_crash() -> None:
    """Rank 0 is the last pod by name, and is let go last."""
    desk = Desk(Server(SITE))
    for rank, name in enumerate(("a-2", "a-1", "a-0")):
        desk.server.add("a", 3)
        for pod in (desk.server.pods[name], desk.server.sets[name]):
            pod["metadata"]["annotations"][RANK] = str(rank)
            pod["spec"] |= {"hostname": name, "subdomain": "svc"}
    desk.restart()
    desk.look()
    desk.server.kill = len(desk.server.writes) + 1
    desk.settle()
    assert desk.killed == 1
    told = {pod["metadata"]["annotations"][MASTER] for pod in desk.server.pods.values()}
    assert len(told) == 1 and told.pop().startswith("a-2.svc:")


def test_who_waits_is_told_on_the_pod_that_is_there_now() -> None:
    """Also when the pods were made anew, and the reason is the same."""
    desk = Desk(Server(SITE))
    for gang in "abc":
        desk.server.add(gang, 4, FOUR)
    desk.settle()
    assert desk.server.condition("c-0")["reason"] == "NoSeat"
    for name in [name for name in desk.server.pods if name.startswith("c-")]:
        del desk.server.pods[name]
    desk.server.remake()
    desk.server.sync(desk.rounds.cache)
    assert not desk.server.condition("c-0")
    desk.settle()
    assert desk.server.condition("c-0")["reason"] == "NoSeat"


def test_a_gang_goes_back_to_its_seats_but_for_the_node_that_is_out() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 3, '{"segment_gpus": 12}')
    desk.settle()
    before = desk.server.where("a")
    desk.server.cordon(before[1], fault="Xid 79 on r01-t02")
    desk.server.sync(desk.rounds.cache)
    desk.settle()
    assert desk.server.where("a") == [before[0], "r01-t04", before[2]]
    first, second = desk.server.of("a")
    assert (first["status"]["reason"], second["spec"]["why"]) == ("Fault", "Xid 79 on r01-t02")


def test_a_gang_whose_pods_take_their_time_to_leave_goes_back_to_its_seats() -> None:
    """Pods are made anew while those before them still end in peace, as a Job's are."""
    server = Server(SITE, grace=True)
    desk = Desk(server)
    server.add("a", 3, '{"segment_gpus": 12}')
    desk.settle()
    before = server.where("a")
    server.cordon(before[1], fault="Xid 79")
    server.sync(desk.rounds.cache)
    desk.look()
    leaving = {name: server.pods.pop(name) for name in list(server.pods)}
    assert all("deletionTimestamp" in pod["metadata"] for pod in leaving.values())
    server.remake()
    for name, pod in leaving.items():
        pod["metadata"]["name"] = f"old-{name}"
        server.pods[f"old-{name}"] = pod
    server.sync(desk.rounds.cache)
    for _ in range(4):
        desk.look()
        server.sync(desk.rounds.cache)
        assert server.where("a") == ["gated"] * 3 and len(server.of("a")) == 1
    assert server.condition("a-0")["reason"] == "Leaving"
    server.leave()
    server.sync(desk.rounds.cache)
    desk.settle()
    assert server.where("a") == [before[0], "r01-t04", before[2]]


def test_a_mark_without_a_cordon_keeps_gangs_off_too() -> None:
    desk = Desk(Server(SITE))
    desk.server.cordon("r01-t01", out=False, fault="Xid 79")
    desk.server.sync(desk.rounds.cache)
    desk.server.add("a", 3, '{"segment_gpus": 12}')
    desk.settle()
    assert "r01-t01" not in desk.server.where("a") and len(desk.server.of("a")) == 1


@pytest.mark.parametrize("how", ["fault", "node"])
def test_an_eviction_that_a_budget_forbids_is_said_and_tried_until_it_is_allowed(how: str) -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 4, FOUR)
    for _ in range(4):
        desk.turn(schedule=False)
    desk.server.schedule(most=3)
    desk.server.sync(desk.rounds.cache)
    desk.server.budget = {"a-0", "a-1"}
    desk.server.cordon("r01-t04", fault="Xid 79" if how == "fault" else "")
    desk.server.sync(desk.rounds.cache)
    for _ in range(20):
        desk.turn(schedule=False)
    assert "Trouble" in desk.words("a")
    assert "disruption budget" in next(line for _, word, line in desk.told if word == "Trouble")
    desk.server.budget = set()
    desk.settle()
    assert desk.server.where("a") == list(RACK2)


def test_the_scheduler_is_believed_after_a_while_and_never_asked_in_a_hot_loop() -> None:
    """It binds nothing anywhere: plans come to nothing, further and further apart."""
    desk = Desk(Server(SITE))
    desk.server.add("a", 2, '{"segment_gpus": 8}')
    desk.server.refuse = dict.fromkeys(desk.server.nodes, "too little cpu")
    began = desk.server.now
    while desk.server.now - began < timedelta(minutes=30):
        desk.turn(3.0)
    attempts = desk.server.of("a")
    assert 3 <= len(attempts) <= 60
    refused = {name for plan in attempts for name in plan["status"].get("refused", ())}
    assert refused == set(desk.server.nodes)
    assert "too little cpu" in attempts[-1]["status"]["message"]
    assert {"Refused", "NoSeat"} <= set(desk.words("a"))
    assert len(desk.server.writes) < 900


def test_what_the_scheduler_refuses_is_avoided_for_a_while() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 4, FOUR)
    desk.server.refuse["r01-t02"] = "1 node(s) had untolerated taint"
    desk.settle()
    first, second = desk.server.of("a")
    assert first["status"]["refused"] == ["r01-t02"] and "untolerated taint" in second["spec"]["why"]
    age = [plan["status"][key] for plan, key in ((first, "releasedAt"), (first, "endedAt"))]
    assert age[0] < age[1]
    assert desk.server.where("a") == list(RACK2)


def test_words_longer_than_a_plan_takes_are_cut() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 4, FOUR)
    desk.server.refuse["r01-t02"] = "ü" * 9000
    desk.settle()
    assert [phase(plan) for plan in desk.server.of("a")] == ["Ended", "Bound"]


def test_each_victim_is_evicted_once() -> None:
    """To ask again for one that was made anew meanwhile takes the API server 10 s."""
    desk = Desk(Server(SITE))
    for gang in "ab":
        desk.server.add(gang, 4, FOUR)
    desk.settle()
    desk.server.add("top", 4, FOUR, priority=9)
    desk.server.sync(desk.rounds.cache)
    for _ in range(3):  # the watch is late
        desk.look()
    asked = [each for each in desk.server.writes if each.endswith("/eviction")]
    assert len(asked) == len(set(asked)) == 4
    desk.settle()
    assert whole(desk.server, "top")


def test_the_last_ten_attempts_are_kept() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 2)
    for _ in range(14):
        desk.settle()
        del desk.server.pods["a-0"]
        desk.server.now += timedelta(seconds=waiting.AVOIDED)
        desk.server.sync(desk.rounds.cache)
    desk.settle()
    assert [plan["spec"]["attempt"] for plan in desk.server.of("a")] == list(range(5, 16))
    deleted = [each for each in desk.server.writes if each.startswith("DELETE")]
    assert len(deleted) == len(set(deleted)) == 4


def test_a_gang_that_has_ended_ends_its_plan_and_is_not_told_again() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 2)
    desk.settle()
    desk.server.sets.clear()
    for pod in desk.server.pods.values():
        pod["status"]["phase"] = "Succeeded"
        desk.server._touch(pod)
    desk.server.sync(desk.rounds.cache)
    desk.settle()
    (plan,) = desk.server.of("a")
    assert (phase(plan), plan["status"]["reason"]) == ("Ended", "Ended")
    desk.restart()
    before = len(desk.server.writes)
    desk.settle()
    assert len(desk.server.writes) == before


def test_one_that_finishes_earlier_than_the_others_changes_nothing() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 2)
    desk.settle()
    desk.server.pods["a-1"]["status"]["phase"] = "Succeeded"
    desk.server._touch(desk.server.pods["a-1"])
    desk.server.sync(desk.rounds.cache)
    before = len(desk.server.writes)
    desk.settle()
    assert len(desk.server.writes) == before and desk.words("a")[-1] == "Bound"


def test_to_observe_is_to_say_and_to_write_nothing() -> None:
    desk = Desk(Server(SITE), act=False)
    desk.server.add("a", 4, FOUR)
    for _ in range(3):
        desk.server.sync(desk.rounds.cache)
        desk.look()
    assert desk.words("a") == ["WouldPlace"] and not desk.server.writes


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"rackyard.io/gang-size": "many"}, "UnknownSize"),
        ({"rackyard.io/gang-size": "1"}, "TooMany"),
        ({"rackyard.io/gang-size": "3"}, "MembersMissing"),
        ({"rackyard.io/request": "{"}, "BadRequest"),
        ({"rackyard.io/request": '{"segment_gpus": "five"}'}, "BadRequest"),
        ({"rackyard.io/request": '{"spares": 2147483648}'}, "BadRequest"),
        ({"rackyard.io/request": '{"rail": 40}'}, "BadRequest"),
        ({"rackyard.io/request": '{"rail": -1}'}, "BadRequest"),
        ({"rackyard.io/request": '{"exclude": ' + "[" * 100_000}, "BadRequest"),
        ({"rackyard.io/rank": "0"}, "NoRanks"),
    ],
)
def test_what_is_malformed_is_said_and_can_be_mended(broken: dict[str, str], reason: str) -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 2, annotations=broken)
    desk.settle()
    assert desk.server.condition("a-0")["reason"] == reason and not desk.server.plans
    for pod in desk.server.pods.values():
        for key in broken:
            del pod["metadata"]["annotations"][key]
        pod["metadata"]["annotations"]["rackyard.io/gang-size"] = "2"
        desk.server._touch(pod)
    desk.server.sync(desk.rounds.cache)
    desk.settle()
    assert whole(desk.server, "a")


def test_a_gang_whose_plan_was_deleted_leaves_a_faulty_node_too() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 2)
    desk.settle()
    where = desk.server.where("a")
    del desk.server.plans["a-1"]
    desk.restart()
    desk.settle()
    assert desk.server.where("a") == where and desk.words("a")[-1] == "NoPlan"
    desk.server.cordon(where[0], fault="Xid 79")
    desk.server.sync(desk.rounds.cache)
    desk.settle()
    desk.server.remake()
    desk.server.sync(desk.rounds.cache)
    desk.settle()
    assert whole(desk.server, "a") and where[0] not in desk.server.where("a")


@pytest.mark.parametrize("seats", ["0:40:x", "0:-1:x", "0:99999999999:x", "rubbish", ":::"])
def test_what_a_stranger_says_of_its_seats_stops_nobody(seats: str) -> None:
    server = Server(SITE)
    server.foreign("odd", RACK1[0])
    server.pods["odd"]["metadata"]["annotations"]["rackyard.io/seats"] = seats
    desk = Desk(server)
    server.add("a", 2)
    desk.settle()
    assert whole(server, "a") and RACK1[0] not in server.where("a")


def test_a_gang_that_placement_can_not_take_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    real = waiting.turns

    def picky(waiting: Any, *rest: Any) -> Any:
        if any(gang.key == "ml/odd" for gang in waiting):
            raise OverflowError("too odd")
        return real(waiting, *rest)

    monkeypatch.setattr(waiting, "turns", picky)
    desk = Desk(Server(SITE))
    for gang in ("a", "b", "odd"):
        desk.server.add(gang, 2)
    desk.settle()
    assert whole(desk.server, "a") and whole(desk.server, "b")
    said = desk.server.condition("odd-0")
    assert said["reason"] == "Broken" and "too odd" in said["message"]


def test_a_name_that_no_object_can_have_is_refused() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("My_Gang", 2)
    desk.settle()
    assert desk.server.condition("My_Gang-0")["reason"] == "BadName"


@pytest.mark.parametrize("ended", ["yesterday", "2026-01-01T00:00:00", ""])
def test_a_plan_with_an_odd_time_is_history(ended: str) -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 2)
    desk.settle()
    desk.server.plans["a-1"]["status"] |= {"phase": "Ended", "reason": "Fault", "endedAt": ended}
    for name in ("a-0", "a-1"):
        del desk.server.pods[name]
    desk.server.remake()
    desk.restart()
    desk.settle()
    assert whole(desk.server, "a")
