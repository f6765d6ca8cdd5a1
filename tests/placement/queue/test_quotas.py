"""Quotas with borrowing: what is lent comes back, first from whoever borrows most beyond its share."""

from collections.abc import Callable
from dataclasses import replace

from rackyard.placement.columns import Columns
from rackyard.placement.decide import decide
from rackyard.placement.model import Request
from rackyard.placement.queue import Gang, Policy, QueuePlan, QueueState, Running, Team, plan
from rackyard.placement.queue.teams import Ledger
from rackyard.placement.yard import Yard

World = Callable[..., object]
NOW = 10_000.0
FOUR, EIGHT = Request(4), Request(8)


def gang(name: str, team: str, request: Request = FOUR, priority: int = 0, **more: object) -> Gang:
    return Gang(name, request, team, priority, estimate=50_000.0, **more)


def planned(
    columns: Columns, running: list[Gang], waiting: list[Gang], teams: tuple[Team, ...], policy: Policy | None = None
) -> QueuePlan:
    """A plan for gangs that started in this order, one second after the other."""
    yard, runs = Yard.on(columns), []
    for number, each in enumerate(running):
        decision = decide(each.request, yard)
        assert decision is not None
        yard.take(decision)
        runs.append(Running(each, decision, float(number)))
    return plan(NOW, QueueState(tuple(waiting), tuple(runs), teams), yard, policy or Policy())


def victims(made: QueuePlan) -> list[str]:
    return sorted(name for preemption in made.preemptions for name in preemption.victims)


def test_idle_quota_is_lent_and_reclaimed_whatever_the_priority(columns: Columns) -> None:
    teams = (Team("own", 16), Team("other", 16))
    lent = [gang(f"b{n}", "other", priority=9) for n in range(8)]
    made = planned(columns, lent, [gang("mine", "own", EIGHT)], teams)
    # those that other's own quota covers, the older ones, stay
    assert set(victims(made)) <= {"b4", "b5", "b6", "b7"} and len(victims(made)) == 2
    lower = planned(columns, lent, [gang("mine", "own", EIGHT)], teams, Policy(reclaim="lower"))
    assert victims(lower) == []
    lower = planned(columns, lent, [gang("mine", "own", EIGHT, priority=10)], teams, Policy(reclaim="lower"))
    assert set(victims(lower)) <= {"b4", "b5", "b6", "b7"} and len(victims(lower)) == 2


def test_what_a_quota_covers_is_taken_by_no_other_team_at_any_priority(columns: Columns) -> None:
    teams = (Team("own", 16), Team("other", 16))
    full = [gang(f"{team}{n}", team) for team in ("own", "other") for n in range(4)]
    made = planned(columns, full, [gang("greedy", "other", priority=9)], teams)
    assert set(victims(made)) <= {"other0", "other1", "other2", "other3"} and len(victims(made)) == 1
    none = planned(columns, full, [gang("greedy", "stray", priority=9)], teams)
    assert victims(none) == [], "who borrows stops nobody that is covered"


def test_who_borrows_most_beyond_its_share_gives_first(columns: Columns) -> None:
    teams = (Team("own", 8), Team("much", weight=1), Team("little", weight=3))
    lent = [gang(f"m{n}", "much") for n in range(5)] + [gang(f"l{n}", "little") for n in range(3)]
    made = planned(columns, lent, [gang("mine", "own", EIGHT)], teams)
    assert len(victims(made)) == 2 and all(name.startswith("m") for name in victims(made))


def test_two_gangs_do_not_reclaim_with_the_same_quota(columns: Columns) -> None:
    """The second one would borrow; what borrows may not stop what borrows at the same priority."""
    teams = (Team("own", 8), Team("lent", 0))
    lent = [gang(f"b{n}", "lent") for n in range(8)]
    made = planned(columns, lent, [gang("one", "own", EIGHT), gang("two", "own", EIGHT)], teams)
    assert [preemption.gang for preemption in made.preemptions] == ["one"]
    again = planned(columns, lent, [gang("one", "own", FOUR), gang("two", "own", FOUR)], teams)
    assert [preemption.gang for preemption in again.preemptions] == ["one", "two"]


def test_a_ceiling_holds_while_victims_stop_and_the_room_stays_theirs(columns: Columns) -> None:
    """Victims count until they are gone, and so does the gang that they are stopped for."""
    teams = (Team("t", 0, ceiling=16), Team("rest", 16))
    running = [gang("old", "t", EIGHT), gang("low", "t")] + [gang(f"r{n}", "rest") for n in range(3)]
    waiting = [gang("high", "t", priority=5, request=FOUR)]
    yard_full = [*running, gang("r3", "rest"), gang("r4", "rest")]
    made = planned(columns, yard_full, [*waiting, gang("next", "t", EIGHT)], teams)
    assert made.starts == () or [start.gang for start in made.starts] == ["high"]
    assert made.reasons["next"].kind == "ceiling"


def test_a_ceilings_last_gpus_are_kept_for_the_gang_with_a_reservation(columns: Columns) -> None:
    """Seats alone would not do: when its seats are free, its team must be below its ceiling too."""
    teams = (Team("t", 0, ceiling=16), Team("rest", 32))
    running = [replace(gang("rest0", "rest", Request(24)), estimate=NOW + 100.0)]
    first = gang("first", "t", Request(16))
    small = [gang("long", "t"), replace(gang("short", "t"), estimate=50.0)]
    made = planned(columns, running, [first, *small], teams)
    assert [start.gang for start in made.starts] == ["short"]
    assert (made.reasons["long"].kind, made.reasons["long"].holder) == ("ceiling", "first")
    assert made.reasons["long"].text(NOW) == (
        "its team is at its ceiling of 16 GPUs; what is left is kept for first, which comes first"
    )


def test_what_may_not_be_preempted_keeps_its_quota_for_itself(columns: Columns) -> None:
    teams = (Team("own", 8), Team("other", 24))
    running = [gang("fixed", "own", preemptible=False)]
    made = planned(columns, running, [gang("second", "own", EIGHT, preemptible=False)], teams)
    assert (made.reasons["second"].kind, made.reasons["second"].gpus) == ("quota", 8)
    assert made.reasons["second"].text(NOW) == (
        "may not be preempted, so it can't borrow, and its team's quota of 8 GPUs is used"
    )


def test_what_may_not_be_preempted_gets_its_quota_back_from_its_own_team(columns: Columns) -> None:
    """It is covered before all that may be preempted, whoever came first."""
    teams = (Team("own", 8), Team("other", 24))
    running = [gang("mine", "own", EIGHT)] + [gang(f"o{n}", "other") for n in range(6)]
    made = planned(columns, running, [gang("fixed", "own", EIGHT, priority=1, preemptible=False)], teams)
    assert victims(made) == ["mine"]


def test_ranks_of_running_gangs(columns: Columns) -> None:
    decision = decide(FOUR, Yard.on(columns))
    assert decision is not None
    runs = [
        Running(gang("late", "t"), decision, 9.0),
        Running(gang("early", "t"), decision, 1.0),
        Running(gang("high", "t", priority=3), decision, 10.0),
        Running(gang("fixed", "t", preemptible=False), decision, 11.0),
        Running(gang("stray", "unlisted", priority=7), decision, 0.0),
    ]
    ledger = Ledger((Team("t", 12),), runs)
    assert ledger.ranks() == [(0, 0), (1, 0), (1, 3), (1, 0), (0, 7)]
    assert ledger.rank(gang("new", "t", priority=3)) == (1, 3)
    assert ledger.rank(gang("new", "t", priority=2)) == (1, 2)
    assert ledger.rank(gang("new", "t", priority=0)) == (0, 0)
    assert ledger.rank(gang("new", "t", EIGHT, preemptible=False)) == (1, 0)
    assert Ledger((), runs).ranks() == [(1, 0), (1, 0), (1, 3), (1, 0), (1, 7)], "without teams all is covered"


def test_reclaiming_does_not_run_in_circles(world: World) -> None:
    """Two teams with half the site each, one of them with twice as many important gangs: one wave, and no more."""
    here = world(Policy(exempt=0.0, worth=0.0, stop=0.0), (Team("a", 16), Team("b", 16)))
    for number in range(8):
        here.submit(gang(f"a{number}", "a", priority=9), 1000.0)
    here.plan()
    assert len(here.running) == 8
    for number in range(8):
        here.now += 1.0
        here.submit(gang(f"b{number}", "b"), 1000.0)
        here.plan()
    assert len(here.preempted) == 4 and {victim[0] for _, victim in here.preempted} == {"a"}
    assert sum(run.gang.team == "b" for run in here.running.values()) == 4
    for _ in range(5):
        here.now += 1.0
        assert here.plan().preemptions == ()
