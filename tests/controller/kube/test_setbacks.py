"""What comes in a gang's way: nobody else stands still for it, it is tried again in measure, and it is said."""

from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.controller.kube.clusterlike import Desk, Server, phase, refusal, whole

from rackyard.backends.kubernetes.watch import Put
from rackyard.controller.kube.cache import Cache
from rackyard.controller.kube.objects import GATE, GPU, Pod, PodGroup
from rackyard.fabric import simulate

FOUR = '{"segment_gpus": 16}'


def desk(racks: int, **gangs: int) -> Desk:
    """Racks of four trays, and gangs of a rack each with their priorities, settled."""
    made = Desk(Server(simulate(racks, 4)))
    for name, priority in gangs.items():
        made.server.add(name, 4, FOUR, priority=priority)
    made.settle()
    return made


def join(made: Desk, gang: str, priority: int, pods: int = 4, **more: Any) -> None:
    made.server.add(gang, pods, more.pop("request", FOUR), priority=priority, **more)
    made.server.sync(made.rounds.cache)


def turns(made: Desk, minutes: float, seconds: float = 6.0) -> None:
    for _ in range(int(minutes * 60 / seconds)):
        made.turn(seconds)


def evictions(made: Desk, gang: str) -> int:
    return sum(each.startswith(f"POST pods/{gang}") and each.endswith("eviction") for each in made.server.writes)


def test_gangs_that_lose_their_places_at_once_each_get_one_of_their_own() -> None:
    made = desk(12, **{f"g{number}": 0 for number in range(6)})
    for number in range(6):
        made.server.cordon(made.server.where(f"g{number}")[0], fault="x")
    made.server.sync(made.rounds.cache)
    made.settle()
    assert all(whole(made.server, f"g{number}") for number in range(6))
    assert {len(made.server.of(f"g{number}")) for number in range(6)} == {2}, "one more attempt each"


def test_of_two_that_lost_their_places_one_gets_the_rack_that_is_left_and_the_other_waits() -> None:
    made = desk(3, a=0, b=0)
    for gang in "ab":
        made.server.cordon(made.server.where(gang)[0], fault="x")
    made.server.sync(made.rounds.cache)
    for _ in range(12):
        made.turn(3.0)
        going = [plan for plan in made.server.plans.values() if phase(plan) != "Ended"]
        assert max(Counter(each["node"] for plan in going for each in plan["spec"]["members"]).values(), default=0) < 2
    assert [whole(made.server, gang) for gang in "ab"] == [True, False]
    assert made.server.condition("b-0")["reason"] == "NoSeat"


def test_one_that_lost_its_rack_does_not_pass_a_higher_priority_to_another() -> None:
    made = desk(2, fill=9, low=0)
    join(made, "hi", 9, policy="Never")
    made.turn()
    for node in made.server.where("low"):
        made.server.cordon(node, fault="rack down")
    made.server.sync(made.rounds.cache)
    for _ in range(3):
        made.turn()
    made.server.withdraw("fill")
    made.server.sync(made.rounds.cache)
    made.settle()
    assert whole(made.server, "hi") and not whole(made.server, "low")


@pytest.mark.parametrize("there", ["0", "3"])
def test_a_gang_keeps_off_a_node_whose_device_plugin_offers_too_little(there: str) -> None:
    made = desk(2)
    made.server.nodes["r01-t01"]["status"]["allocatable"][GPU] = there
    made.restart()
    join(made, "a", 0)
    made.settle()
    assert whole(made.server, "a") and made.server.where("a")[0] == "r02-t01" and len(made.server.of("a")) == 1


def test_a_node_that_loses_gpus_before_its_pod_is_on_it_is_named() -> None:
    made = desk(2)
    join(made, "a", 0)
    for _ in range(2):
        made.turn(schedule=False)
    made.server.nodes["r01-t01"]["status"]["allocatable"][GPU] = "3"
    made.server._touch(made.server.nodes["r01-t01"])
    made.server.sync(made.rounds.cache)
    made.settle()
    assert "r01-t01 had 3 allocatable GPUs" in made.server.of("a")[0]["status"]["message"]
    assert whole(made.server, "a")


@pytest.mark.parametrize("gpus", [1, 4])
def test_a_node_that_somebody_took_before_its_pod_was_on_it_is_left_to_him(gpus: int) -> None:
    made = desk(2)
    join(made, "a", 0)
    for _ in range(2):
        made.turn(schedule=False)
    made.server.foreign("other", "r01-t02", gpus=gpus)
    made.server.sync(made.rounds.cache)
    made.settle()
    assert whole(made.server, "a") and "r01-t02" not in made.server.where("a") and len(made.server.of("a")) == 2


def test_a_gang_whose_pods_left_it_stands_in_no_podgroups_way() -> None:
    cache = Cache(queues=True)
    meta = {"namespace": "ml", "name": "p", "uid": "u", "annotations": {"scheduling.k8s.io/group-name": "pg"}}
    for version, gates in (("1", [{"name": GATE}]), ("2", [])):
        spec = {"schedulerName": "volcano", "schedulingGates": gates}
        pod = msgspec.convert({"metadata": {**meta, "resourceVersion": version}, "spec": spec}, Pod)
        assert cache.heed(Put(pod), Pod)
        assert list(cache.gangs()) == (["ml/pg"] if gates else [])
    group = {"metadata": {"namespace": "ml", "name": "pg", "uid": "g", "resourceVersion": "3"}}
    assert cache.heed(Put(msgspec.convert(group, PodGroup)), PodGroup)


@pytest.mark.parametrize("how", ["refused", "gate back"])
def test_a_gang_that_can_be_let_go_in_part_only_is_taken_back(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = desk(2)
    change = made.server._change

    def picky(pod: dict[str, Any], body: Any) -> None:
        if pod["metadata"]["name"] == "a-2" and "spec" in body and how == "refused":
            raise refusal(403, "an admission policy denied the request")
        change(pod, body)
        if pod["metadata"]["name"] == "a-2" and "spec" in body:
            pod["spec"]["schedulingGates"] = [{"name": GATE}]

    monkeypatch.setattr(made.server, "_change", picky)
    join(made, "a", 0)
    for _ in range(200):  # its own writes are events, too
        made.turn(0.1)
    assert made.server.writes.count("PATCH pods/a-2") <= 11
    turns(made, 3)
    ended = made.server.of("a")[0]["status"]
    assert (ended["phase"], ended["reason"]) == ("Ended", "Refused")
    assert ("denied" if how == "refused" else "our gate is back on 1 pods") in ended["message"]
    monkeypatch.undo()
    turns(made, 10)
    assert whole(made.server, "a")


def test_a_gang_that_the_scheduler_refuses_everywhere_does_not_displace_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = desk(6, **{f"low{number}": 0 for number in range(6)})
    schedule = made.server.schedule

    def never(most: int = 1000) -> None:
        told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "an unbound volume"}
        mine = {name: pod for name, pod in made.server.pods.items() if name.startswith("hi")}
        for name, pod in mine.items():
            if not pod["spec"]["schedulingGates"]:
                pod["status"] = {**pod["status"], "conditions": [told]}
                made.server._touch(pod)
            del made.server.pods[name]
        schedule(most)
        made.server.pods |= mine

    monkeypatch.setattr(made.server, "schedule", never)
    join(made, "hi", 9)
    turns(made, 60, 3.0)
    taken = sum(plan["status"].get("reason") == "Preempted" for plan in made.server.plans.values())
    assert 2 <= taken <= 4
    message = made.server.condition("hi-0")["message"]
    assert "others made room for it" in message and "times in vain of late" in message


def test_a_gang_that_its_queue_never_lets_in_displaces_others_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(simulate(1, 4))
    monkeypatch.setattr(server, "get", lambda path, params, accept: b'{"spec":{}}')
    for name, at in (("low", "Running"), ("hi", "Pending")):
        spec = {"minMember": 4, "queue": "q"}
        server.groups[name] = {"metadata": server._meta({"name": name}, "ml"), "spec": spec, "status": {"phase": at}}
    made = Desk(server)
    for name, priority in (("low", 0), ("hi", 9)):
        join(made, name, priority, scheduler="volcano", annotations={"scheduling.k8s.io/group-name": name})
        turns(made, 1)
    turns(made, 120)
    assert 4 <= evictions(made, "low") <= 24


def test_those_that_nobody_can_make_room_for_do_not_keep_others_from_it() -> None:
    made = desk(2, low=0, other=0)
    for number in range(5):
        join(made, f"big{number}", 100, 50, request="{}")
    join(made, "mid", 50)
    turns(made, 2)
    assert whole(made.server, "mid")


@pytest.mark.parametrize("free", [True, False])
def test_one_whose_plan_can_not_be_stored_keeps_nobody_from_his_seats(
    free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = desk(2, **({} if free else {"low": 0, "other": 0}))
    plan = made.server._plan

    def full(method: str, parts: list[str], body: Any) -> Any:
        if method == "POST" and body["spec"]["gang"] == "poor":
            raise refusal(403, "exceeded quota")
        return plan(method, parts, body)

    monkeypatch.setattr(made.server, "_plan", full)
    join(made, "poor", 100)
    join(made, "mid", 50)
    turns(made, 3)
    assert whole(made.server, "mid")
    said = made.server.condition("poor-0")
    assert said["reason"] == "Trouble" and "its plan can't be stored" in said["message"]
    tried = len(made.server.writes)
    turns(made, 10)
    assert len(made.server.writes) - tried < 40
    monkeypatch.undo()
    turns(made, 3)
    assert whole(made.server, "poor")


def test_nobody_is_asked_to_go_whom_a_budget_protects_and_others_are() -> None:
    made = desk(2, low=0)
    made.server.budget = {"low-2"}
    join(made, "hi", 9, 8, request="{}")
    turns(made, 20)
    assert whole(made.server, "low") and evictions(made, "low") == 0
    said = made.server.condition("hi-0")
    assert said["reason"] == "NoSeat" and "pod ml/low-2 would have to go first, and may not" in said["message"]
    assert len([line for gang, _, line in made.told if gang == "ml/hi"]) < 4, "it is said once"
    made.server.budget = set()
    turns(made, 10)
    assert whole(made.server, "hi")


def test_one_that_others_do_not_make_room_for_goes_where_there_is_room() -> None:
    """The budget comes after the look at it."""
    made = desk(2, low=0, same=9)
    (room, *_) = made.server.where("same")
    join(made, "hi", 9)
    made.look()
    made.server.budget = {"low-2"}
    made.server.sync(made.rounds.cache)
    turns(made, 1)
    made.server.withdraw("same")
    turns(made, 10)
    assert "are still there (ml/low-2)" in made.server.of("hi")[0]["status"]["message"]
    assert whole(made.server, "hi") and made.server.where("hi")[0] == room


def test_a_planned_gang_that_loses_a_pod_for_good_gives_its_seats_back() -> None:
    made = Desk(Server(simulate(1, 4), grace=True))
    made.server.add("low", 4, FOUR)
    made.settle()
    join(made, "hi", 9)
    made.look()
    del made.server.sets["hi-3"], made.server.pods["hi-3"]
    turns(made, 10)
    assert made.server.of("hi")[0]["status"]["reason"] == "Incomplete" and whole(made.server, "low")
    assert made.server.condition("hi-0")["reason"] == "MembersMissing"


def test_the_pods_that_a_victim_waits_for_have_to_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Desk(Server(simulate(1, 4), grace=True))
    made.server.add("low", 4, FOUR)
    made.settle()
    with monkeypatch.context() as slow:
        slow.setattr(made.server, "leave", lambda: None)
        join(made, "hi", 9)
        turns(made, 0.2, 3.0)
        join(made, "top", 20)
        turns(made, 1, 3.0)
    turns(made, 0.5, 3.0)
    assert whole(made.server, "top") and len(made.server.of("top")) == 1


def test_a_pod_that_does_not_end_on_a_faulty_node_keeps_its_gang_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Desk(Server(simulate(2, 4), grace=True))
    made.server.add("a", 3, annotations={"rackyard.io/rank": "0"})
    for number in range(3):
        for pod in (made.server.pods[f"a-{number}"], made.server.sets[f"a-{number}"]):
            pod["metadata"]["annotations"]["rackyard.io/rank"] = str(number)
    made.restart()
    made.settle()
    made.server.cordon(made.server.where("a")[1], fault="Xid 79")
    made.server.sync(made.rounds.cache)
    made.look()
    stuck = made.server.pods.pop("a-1")
    stuck["metadata"]["name"] = "old"
    made.server.pods = {"old": stuck}
    monkeypatch.setattr(made.server, "leave", lambda: None)
    made.server.remake()
    made.server.sync(made.rounds.cache)
    turns(made, 1)
    assert whole(made.server, "a")


def test_pods_of_volcano_that_no_plan_knows_give_way_to_no_gang_of_volcano() -> None:
    """Which queue they are of is not known."""
    server = Server(simulate(1, 4))
    for name in server.nodes:
        server.foreign(f"p-{name}", name)
        server.pods[f"p-{name}"]["spec"]["schedulerName"] = "volcano"
    spec = {"minMember": 4, "queue": "q"}
    status = {"phase": "Inqueue"}
    server.groups["hi"] = {"metadata": server._meta({"name": "hi"}, "ml"), "spec": spec, "status": status}
    made = Desk(server)
    join(made, "hi", 9, scheduler="volcano", annotations={"scheduling.k8s.io/group-name": "hi"})
    turns(made, 1)
    assert made.server.where("hi") == ["gated"] * 4 and len(made.server.pods) == 8


def test_a_note_that_could_not_be_written_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    made = desk(1)
    do = made.server._do

    def ill(method: str, path: str, body: Any) -> bytes:
        if path.endswith(("/events", "/status")) and "gangplans" not in path:
            raise refusal(500, "etcdserver: request timed out")
        return do(method, path, body)

    with monkeypatch.context() as bad:
        bad.setattr(made.server, "_do", ill)
        join(made, "a", 0, 9)
        made.turn()
        assert any("1 notes on pods could not be written" in line for _, _, line in made.told)
    turns(made, 2)
    assert made.server.condition("a-0")["reason"] == "NoSeat"


@pytest.mark.parametrize("step", [timedelta(days=-1), timedelta(days=1)])
def test_a_clock_that_is_set_keeps_nobody_waiting(step: timedelta) -> None:
    made = desk(2, a=0)
    for _ in range(3):
        made.server.cordon(made.server.where("a")[0], fault="x")
        made.server.sync(made.rounds.cache)
        made.turn()
        for name in made.server.nodes:
            made.server.cordon(name, out=False)
        made.turn()
        made.turn()
    made.server.now += step
    turns(made, 3)
    assert whole(made.server, "a")
