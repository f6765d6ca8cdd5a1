"""The gang loop killed at any write, disturbed in any order, and run twice by mistake, against a stand-in cluster: in
the end every gang is bound as a whole or waits as a whole.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.controller.kube.clusterlike import Desk, Server, phase, whole

from rackyard.controller.kube import waiting
from rackyard.controller.kube.objects import FAULT
from rackyard.fabric import simulate

SITE = simulate(2, 4)
"""Two racks of four trays."""
FOUR = '{"segment_gpus": 16}'


def fresh(desk: Desk) -> None:
    """Three gangs of a rack each, for two racks."""
    for gang in "abc":
        desk.server.add(gang, 4, FOUR)


def volcano(desk: Desk) -> None:
    """Nodes are nominated first."""
    desk.server.add("a", 4, FOUR, scheduler="volcano")


def pushed(desk: Desk) -> None:
    """Two gangs that run, and one of higher priority that comes."""
    desk.server.add("a", 4, FOUR)
    desk.server.add("b", 4, FOUR, priority=5)
    desk.settle()
    desk.server.add("c", 4, FOUR, priority=9)
    desk.server.sync(desk.rounds.cache)


def struck(desk: Desk) -> None:
    """A gang runs, and one of its nodes is taken out of use."""
    desk.server.add("a", 3, '{"segment_gpus": 12}')
    desk.server.add("b", 4, FOUR)
    desk.settle()
    desk.server.cordon(desk.server.where("a")[1], fault="Xid 79")
    desk.server.sync(desk.rounds.cache)


def cut(desk: Desk) -> None:
    """Half of a gang is on its nodes, and one of the others is cordoned."""
    desk.server.add("a", 4, FOUR)
    for _ in range(3):
        desk.turn(schedule=False)
    desk.server.schedule(most=2)
    desk.server.cordon("r01-t04")
    desk.server.sync(desk.rounds.cache)


def dropped(desk: Desk) -> None:
    """The plan is deleted when half of the gang is on its nodes."""
    desk.server.add("a", 4, FOUR)
    for _ in range(3):
        desk.turn(schedule=False)
    desk.server.schedule(most=2)
    desk.server.plans.clear()
    desk.server.sync(desk.rounds.cache)


def unwanted(desk: Desk) -> None:
    """The scheduler binds nothing to one of the nodes."""
    desk.server.add("a", 4, FOUR)
    desk.server.refuse["r01-t02"] = "1 node(s) had untolerated taint"


SCENES: dict[Callable[[Desk], None], dict[str, bool]] = {
    fresh: {"a": True, "b": True, "c": False},
    volcano: {"a": True},
    pushed: {"a": False, "b": True, "c": True},
    struck: {"a": True, "b": True},
    cut: {"a": True},
    dropped: {"a": True},
    unwanted: {"a": True},
}


@pytest.mark.parametrize("grace", [False, True], ids=["at-once", "with-grace"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_killed_at_any_write_a_gang_is_bound_as_a_whole_or_waits_as_a_whole(
    scene: Callable[[Desk], None], grace: bool
) -> None:
    def played(kill: int | None) -> Desk:
        desk = Desk(Server(SITE, grace=grace))
        scene(desk)
        desk.start = len(desk.server.writes)
        desk.server.kill = None if kill is None else desk.start + kill
        desk.settle()
        stand = {gang: abandoned(desk.server, gang) or whole(desk.server, gang) for gang in SCENES[scene]}
        assert stand == SCENES[scene], (kill, desk.told)
        return desk

    calm = played(None)
    count = len(calm.server.writes) - calm.start
    assert count > 5
    for kill in range(count):
        assert played(kill).killed == 1


EVENTS = st.sampled_from(
    ["turn", "turn", "turn", "kill", "kill", "cordon", "fault", "heal", "foreign", "drop", "withdraw", "add", "pod"]
)


@settings(max_examples=40, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_happens_in_whatever_order_no_gang_is_left_half(data: st.DataObject) -> None:
    desk = Desk(Server(SITE, grace=data.draw(st.booleans())))
    server = desk.server
    priorities = {"a": 0, "b": 0, "c": 7}
    for gang in "ab":
        server.add(gang, 3, priority=priorities[gang])
    for what in data.draw(st.lists(EVENTS, min_size=3, max_size=25)):
        node = data.draw(st.sampled_from(sorted(server.nodes)))
        gang = data.draw(st.sampled_from("abc"))
        match what:
            case "turn":
                desk.turn(schedule=data.draw(st.booleans()))
            case "kill":
                server.kill = len(server.writes) + data.draw(st.integers(0, 6))
            case "cordon":
                server.cordon(node)
            case "fault":
                server.cordon(node, fault="NVLink down")
            case "heal":
                server.cordon(node, out=False)
            case "foreign" if server.free(node) == 4 and node not in server.pods:
                server.foreign(node, node, priority=data.draw(st.integers(0, 9)))
            case "drop":
                server.racing = True  # what was dropped may be gone on with until the watch tells of it
                for name in [plan["metadata"]["name"] for plan in server.of(gang)[-1:]]:
                    del server.plans[name]
            case "withdraw":
                server.withdraw(gang)
            case "add":
                server.add(gang, 3, priority=priorities[gang])
            case "pod" if members := server.members(gang):
                del server.pods[members[0]["metadata"]["name"]]
        if data.draw(st.booleans()):
            server.sync(desk.rounds.cache)
    server.kill = None
    server.now += timedelta(seconds=waiting.AVOIDED)  # what came to nothing is forgotten
    desk.settle(200)
    for gang in "abc":
        if server.members(gang) and not abandoned(server, gang):
            whole(server, gang)


def abandoned(server: Server, gang: str) -> bool:
    """Bound, all of it, and its plan was deleted: it is left alone."""
    on = all(pod["spec"].get("nodeName") for pod in server.members(gang))
    return on and all(phase(plan) == "Ended" for plan in server.of(gang))


def test_two_controllers_never_have_two_plans_that_go_on() -> None:
    """Both run by mistake, each with what it saw last: the stand-in watches over every write."""
    server = Server(SITE, racing=True)
    one, two = Desk(server), Desk(server)
    for gang in "abc":
        server.add(gang, 4, FOUR)
    for at in range(12):
        desk, other = (one, two) if at % 2 else (two, one)
        desk.look()
        if at == 5:
            server.cordon(server.of("a")[-1]["spec"]["members"][0]["node"], fault="Xid 79")
        if at % 3 == 0:
            other.server.sync(other.rounds.cache)
        server.schedule(most=2)
        server.remake()
        server.sync(desk.rounds.cache)
        server.now += timedelta(seconds=1)
    for _ in range(30):
        for desk in (one, two):
            server.sync(desk.rounds.cache)
            desk.turn(1.0)
    assert sorted(whole(server, gang) for gang in "abc") == [False, False, True]


@settings(max_examples=25, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.integers(0, 4), st.booleans()), max_size=30))
def test_two_controllers_in_any_order_come_to_one_end(script: list[tuple[int, bool, int, bool]]) -> None:
    server = Server(SITE, racing=True)
    desks = Desk(server), Desk(server)
    server.add("a", 3)
    server.add("b", 3)
    for who, sync, most, fault in script:
        if sync:
            server.sync(desks[who].rounds.cache)
        desks[who].look()
        server.schedule(most)
        server.remake()
        if fault and (plans := server.of("a")) and FAULT not in server.nodes["r01-t01"]["metadata"]["annotations"]:
            server.cordon(plans[-1]["spec"]["members"][0]["node"], fault="Xid 79")
        server.now += timedelta(seconds=1)
    for _ in range(60):
        for desk in desks:
            server.sync(desk.rounds.cache)
            desk.turn(2.0)
    for gang in "ab":
        whole(server, gang)
