"""What is said of gangs on their pods: after what they wait for is done, and a bounded number at a time."""

import copy
from datetime import timedelta

from tests.controller.kube.clusterlike import Desk, Server, whole

from rackyard.controller.kube import going
from rackyard.controller.kube.voice import MOST
from rackyard.fabric import simulate

SITE = simulate(2, 4)
"""Two racks of four trays."""


def test_many_that_can_only_be_told_to_wait_do_not_keep_one_that_can_go() -> None:
    desk = Desk(Server(SITE))
    for number in range(200):
        desk.server.add(f"half{number}", 1, annotations={"rackyard.io/gang-size": "2"})
    desk.server.add("ready", 4)
    desk.server.sync(desk.rounds.cache)
    desk.look()
    assert desk.server.writes[0].endswith("/gangplans") and desk.due == 0
    assert len(desk.server.writes) == 1 + 2 * MOST
    desk.settle()
    assert whole(desk.server, "ready")
    reasons = {desk.server.condition(f"half{number}-0")["reason"] for number in range(200)}
    assert reasons == {"MembersMissing"}
    assert sum(name.startswith("half") for name, *_ in desk.server.events) == 200


def test_of_two_things_said_at_once_the_later_one_is_the_condition() -> None:
    desk = Desk(Server(SITE))
    for number in range(MOST - 1):
        desk.server.add(f"half{number}", 1, annotations={"rackyard.io/gang-size": "2"})
    desk.server.add("a", 4)
    for _ in range(3):
        desk.turn(schedule=False)
    desk.settle()
    assert desk.server.condition("a-0")["reason"] == "Bound"
    told = [reason for name, reason, _ in desk.server.events if name == "a-0"]
    assert told == ["GangPlaced", "GangReleased", "GangBound"]


def test_of_a_gang_whose_pods_come_one_by_one_only_some_is_said() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("big", 100, annotations={"rackyard.io/gang-size": "200"})
    template = desk.server.sets["big-0"]
    for number in range(100, 150):
        desk.server.sets[f"big-{number}"] = copy.deepcopy(template)
        desk.server.sets[f"big-{number}"]["metadata"]["name"] = f"big-{number}"
        desk.turn(0.1)
    desk.settle()
    told = [message for name, _, message in desk.server.events if name == "big-0"]
    assert len(told) == 2 and told[-1] == "150 of 200 pods are there"
    assert desk.server.condition("big-0")["message"] == "150 of 200 pods are there"


def test_a_pod_that_went_before_it_was_told_is_no_trouble() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("half", 1, annotations={"rackyard.io/gang-size": "2"})
    desk.server.sync(desk.rounds.cache)
    desk.server.pods.clear()
    desk.look()
    assert desk.words("half") == ["MembersMissing"]
    assert not [line for _, word, line in desk.told if word == "Trouble"]


def test_a_scheduler_that_says_nothing_is_named() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 2, scheduler="nobody")
    for _ in range(4):
        desk.turn(schedule=False)
    assert desk.words("a") == ["Placed", "Released"]
    desk.server.now += timedelta(seconds=going.UNANSWERED)
    desk.turn(schedule=False)
    said = desk.server.condition("a-0")
    assert (said["status"], said["reason"]) == ("False", "Unanswered")
    assert "scheduler nobody has said nothing of 2 of its pods" in said["message"]
    desk.settle()
    assert whole(desk.server, "a") and desk.server.condition("a-0")["reason"] == "Bound"


def test_nodes_that_its_pods_shut_out_are_named_as_what_to_change() -> None:
    desk = Desk(Server(SITE))
    desk.server.nodes["r01-t01"]["metadata"]["labels"] = {"pool": "a"}
    desk.server.add("a", 2)
    for name in ("a-0", "a-1"):
        for pod in (desk.server.pods[name], desk.server.sets[name]):
            pod["spec"]["nodeSelector"] = {"pool": "a"}
    desk.restart()
    desk.settle()
    said = desk.server.condition("a-0")
    assert said["reason"] == "NoSeat"
    assert said["message"].startswith("it would have a seat, but 7 nodes (r01-t02, r01-t03, r01-t04, ...)")
    assert "fix: change those in the pod template, or the labels and taints" in said["message"]


def test_what_fits_nowhere_is_told_without_the_nodes_that_its_pods_shut_out() -> None:
    desk = Desk(Server(SITE))
    desk.server.add("a", 9)
    for number in range(9):
        for pod in (desk.server.pods[f"a-{number}"], desk.server.sets[f"a-{number}"]):
            pod["spec"]["nodeSelector"] = {"pool": "a"}
    desk.restart()
    desk.settle()
    assert "needs 9 nodes of 4 GPUs" in desk.server.condition("a-0")["message"]
    assert "exclude" not in desk.server.condition("a-0")["message"]
