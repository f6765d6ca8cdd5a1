"""Whose turn it is among the gangs that wait, and who gives way."""

from typing import Any

import pytest
from tests.controller.kube.clusterlike import Desk, Server

from rackyard.controller.kube.cache import Cache
from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.held import held
from rackyard.controller.kube.plans import newest
from rackyard.controller.kube.turns import Turns, turns
from rackyard.controller.kube.world import out_of_use
from rackyard.controller.kube.yards import Yards
from rackyard.fabric import simulate
from rackyard.placement import Columns

SITE = simulate(2, 4)
RACK1, RACK2 = (tuple(node.name for node in SITE.nodes if node.name.startswith(rack)) for rack in ("r01", "r02"))
FOUR = '{"segment_gpus": 16}'


def desk(*gangs: tuple[str, int], **more: Any) -> Desk:
    """Gangs of a rack each, with their priorities, settled."""
    made = Desk(Server(SITE))
    for name, priority in gangs:
        made.server.add(name, 4, FOUR, priority=priority, **more)
    made.settle()
    return made


def decided(
    server: Server,
    *,
    returning: bool = False,
    before: Turns | None = None,
    wait: float = 100.0,
    most: int | None = None,
) -> Turns:
    """The turns on that cluster as it stands; with `returning`, ended plans hold their seats. Queues may have so many
    GPUs at `most`.
    """
    cache = Cache(queues=bool(server.groups))
    server.sync(cache)
    gangs = {key: gang for key, gang in cache.gangs().items() if isinstance(gang, Gang)}
    latest = newest(cache.plans.values())
    back = {key: plan for key, plan in latest.items() if plan.ended and returning}
    plans = tuple(plan for key, plan in latest.items() if not plan.ended or key in back)
    columns = Columns.of(SITE.with_cordon(out_of_use(SITE, cache.nodes)))
    pods = tuple(cache.pods.values())
    planned = {key: (gang, latest[key]) for key, gang in gangs.items() if key in latest and not latest[key].ended}
    limits = {} if most is None else {"research": most}
    yards = Yards(columns, held(pods, plans, SITE, cache.nodes), planned, limits, back)
    waiting = [gang for key, gang in gangs.items() if key not in planned]
    return turns(waiting, yards, before or Turns(), server.now.timestamp() + wait)


def where(found: Turns) -> dict[str, tuple[str, ...]]:
    return {start.gang.key: start.seats.nodes() for start in found.starts}


def test_the_higher_priority_comes_first_and_among_equals_the_older() -> None:
    server = Server(SITE)
    server.add("young", 4, FOUR, priority=1)
    for pod in server.pods.values():
        pod["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z"
    server.add("old", 4, FOUR, priority=1)
    server.add("low", 4, FOUR)
    server.add("high", 4, FOUR, priority=9)
    found = decided(server)
    assert [start.gang.key for start in found.starts] == ["ml/high", "ml/old"]
    assert set(found.held) == {"ml/young", "ml/low"}
    assert all(word in ("NoSeat", "Behind") and line for word, line in found.held.values())


def test_what_is_said_of_one_that_waits_stays_the_same_from_round_to_round() -> None:
    """It is written whenever it changes."""
    server = desk(("a", 0), ("b", 0), ("c", 0)).server
    assert decided(server).held == decided(server, wait=1000.0).held
    (said,) = decided(server).held.values()
    assert said[0] == "NoSeat" and "busy" in said[1]


def test_a_large_gang_is_not_starved_by_small_ones() -> None:
    """One that has no deadline would run into the seats that are reserved for it."""
    made = Desk(Server(SITE))
    server = made.server
    server.add("x", 1)
    made.settle()
    server.add("large", 8, '{"segment_gpus": 16}', priority=5, policy="Never")
    first = decided(server)
    assert first.reservations and first.held["ml/large"][0] == "NoSeat"
    server.add("small", 2, '{"segment_gpus": 8}', priority=1)
    found = decided(server, before=first, wait=110.0)
    assert not found.starts and found.held["ml/small"][0] == "Behind" and "ml/large" in found.held["ml/small"][1]


def test_a_gang_gives_way_as_a_whole_to_one_of_higher_priority() -> None:
    server = desk(("a", 0), ("b", 5)).server
    server.add("top", 2, '{"segment_gpus": 8}', priority=9)
    (start,) = decided(server).starts
    assert start.victims == ("ml/a",) and len(start.pods) == 4
    assert set(start.seats.nodes()) < set(server.where("a"))


def test_neither_an_equal_priority_gives_way_nor_anybody_to_one_that_never_preempts() -> None:
    server = desk(("a", 5), ("b", 5)).server
    server.add("equal", 4, FOUR, priority=5)
    server.add("polite", 4, FOUR, priority=9, policy="Never")
    found = decided(server)
    assert not found.starts and {word for word, _ in found.held.values()} <= {"NoSeat", "Behind"}


def test_nobody_gives_way_where_that_would_not_help() -> None:
    server = desk(("a", 0), ("b", 5)).server
    server.add("top", 8, FOUR, priority=3)
    assert not decided(server).starts


def test_single_pods_of_lower_priority_give_way_and_others_stay() -> None:
    server = Server(SITE)
    for node in RACK2:
        server.cordon(node)
    server.foreign("low", RACK1[1], priority=1)
    server.foreign("same", RACK1[3], priority=9)
    server.add("g", 3, '{"segment_gpus": 12}', priority=9)
    (start,) = decided(server).starts
    assert start.victims == () and [pod.metadata.name for pod in start.pods] == ["low"]
    assert start.seats.nodes() == RACK1[:3]


def test_a_gang_whose_plan_was_deleted_gives_way_as_a_whole_too() -> None:
    server = desk(("a", 0), ("b", 9)).server
    del server.plans["a-1"]
    server.add("top", 1, priority=9)
    (start,) = decided(server).starts
    assert sorted(pod.metadata.name for pod in start.pods) == ["a-0", "a-1", "a-2", "a-3"]


@pytest.mark.parametrize(("queue", "gives_way"), [("research", True), ("other", False)])
def test_gangs_of_volcano_give_way_in_their_own_queue(queue: str, gives_way: bool) -> None:
    made = Desk(Server(SITE))
    server = made.server
    for gang in ("a", "b", "top"):
        spec = {"minMember": 4, "queue": "research" if gang != "top" else queue}
        meta = {"name": gang, "namespace": "ml", "uid": gang, "resourceVersion": "1"}
        server.groups[gang] = {"metadata": meta, "spec": spec, "status": {"phase": "Inqueue"}}
    made.restart()
    for gang in ("a", "b"):
        server.add(gang, 4, FOUR, scheduler="volcano", annotations={"scheduling.k8s.io/group-name": gang})
    made.settle()
    assert len(server.plans) == 2
    server.add("top", 4, FOUR, scheduler="volcano", priority=9, annotations={"scheduling.k8s.io/group-name": "top"})
    assert bool(decided(server).starts) == gives_way


@pytest.mark.parametrize(("most", "gives_way"), [(None, True), (32, True), (31, False)])
def test_a_gang_that_its_queue_keeps_out_displaces_others_unless_that_is_in_vain(
    most: int | None, gives_way: bool
) -> None:
    """One of priority 9 runs with 16 GPUs in that queue."""
    made = Desk(Server(SITE))
    server = made.server
    for gang in ("a", "b", "top"):
        meta = {"name": gang, "namespace": "ml", "uid": gang, "resourceVersion": "1"}
        phase = {"phase": "Pending" if gang == "top" else "Inqueue"}
        server.groups[gang] = {"metadata": meta, "spec": {"minMember": 4, "queue": "research"}, "status": phase}
    made.restart()
    for gang, priority in (("a", 0), ("b", 9)):
        notes = {"scheduling.k8s.io/group-name": gang}
        server.add(gang, 4, FOUR, scheduler="volcano", priority=priority, annotations=notes)
    made.settle()
    server.add("top", 4, FOUR, scheduler="volcano", priority=9, annotations={"scheduling.k8s.io/group-name": "top"})
    found = decided(server, most=most)
    assert [start.victims for start in found.starts] == ([("ml/a",)] if gives_way else [])
    assert gives_way or found.held["ml/top"][0] == "NotInqueue"


def ended(server: Server, gang: str, reason: str = "Fault") -> None:
    """Its pods were taken off their nodes."""
    server.of(gang)[-1]["status"] |= {"phase": "Ended", "reason": reason, "endedAt": "2026-01-02T03:04:05Z"}
    for pod in server.members(gang):
        del server.pods[pod["metadata"]["name"]]
    server.remake()


def test_a_gang_that_returns_finds_its_seats_kept_and_the_others_wait() -> None:
    server = desk(("a", 0), ("b", 0)).server
    before = tuple(server.where("a"))
    ended(server, "a")
    server.add("eager", 4, FOUR, priority=9, policy="Never")
    found = decided(server, returning=True)
    assert where(found) == {"ml/a": before}
    assert set(where(decided(server))) == {"ml/eager"}, "when they are kept no longer"


def test_only_the_ranks_of_the_lost_node_move_and_to_the_spare_first() -> None:
    made = Desk(Server(SITE))
    made.server.add("a", 2, '{"segment_gpus": 8, "spares": 1}')
    made.settle()
    before = made.server.where("a")
    (spare,) = made.server.of("a")[0]["spec"]["spares"]
    ended(made.server, "a")
    made.server.cordon(before[0], fault="Xid 79")
    (start,) = decided(made.server, returning=True).starts
    assert start.seats.nodes() == (spare, before[1])


def test_a_segment_whose_rack_is_lost_moves_to_another() -> None:
    server = desk(("a", 0)).server
    ended(server, "a")
    for node in RACK1:
        server.cordon(node, fault="NVLink of r01")
    assert where(decided(server, returning=True)) == {"ml/a": RACK2}


def test_one_that_can_not_return_is_placed_as_if_it_held_nothing() -> None:
    """It asks for something else now: its own old seats are no obstacle to it."""
    server = desk(("a", 0), ("b", 0)).server
    ended(server, "a")
    for name in [name for name in server.sets if name.startswith("a-")]:
        del server.sets[name], server.pods[name]
    server.add("a", 2, '{"segment_gpus": 8}')
    (start,) = decided(server, returning=True).starts
    assert set(start.seats.nodes()) < set(RACK1)


def test_one_that_can_not_return_may_preempt_as_if_it_held_nothing() -> None:
    server = desk(("a", 9), ("b", 0)).server
    ended(server, "a")
    server.cordon(server.of("a")[0]["spec"]["members"][0]["node"], fault="Xid 79")
    (start,) = decided(server, returning=True).starts
    assert start.victims == ("ml/b",) and start.seats.nodes() == RACK2


def test_a_plan_of_nodes_that_the_site_has_not_changes_nothing() -> None:
    server = desk(("a", 0)).server
    ended(server, "a")
    plan = server.of("a")[0]
    plan["spec"]["members"][0]["node"] = "gone"
    assert where(decided(server, returning=True)).keys() == {"ml/a"}
