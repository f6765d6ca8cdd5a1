"""Who comes first: priority, standing of the team, age; and which limits hold a gang back."""

from collections.abc import Callable

import pytest

from rackyard.placement.columns import Columns
from rackyard.placement.model import Request
from rackyard.placement.queue import Gang, Policy, QueueState, Team, plan
from rackyard.placement.yard import Yard

World = Callable[..., object]
ONE = Request(4)
EIGHT = Request(8)


def gang(name: str, team: str = "", priority: int = 0, submitted: float = 0.0, request: Request = ONE) -> Gang:
    return Gang(name, request, team, priority, submitted, estimate=100.0)


def started(columns: Columns, *waiting: Gang, teams: tuple[Team, ...] = (), free: int = 8) -> list[str]:
    """Who starts, in order, on so many free trays."""
    yard = Yard.on(columns)
    yard.retire(range(free, 8))
    return [start.gang for start in plan(10.0, QueueState(waiting, teams=teams), yard).starts]


def test_priority_then_age_then_name(columns: Columns) -> None:
    waiting = (
        gang("c", submitted=1),
        gang("b", submitted=1),
        gang("a", submitted=2),
        gang("z", priority=1, submitted=9),
    )
    assert started(columns, *waiting) == ["z", "b", "c", "a"]


def test_teams_below_their_quota_come_before_those_that_borrow(columns: Columns) -> None:
    teams = (Team("rich", 16), Team("poor", 4))
    waiting = tuple(gang(f"{team}{n}", team, submitted=n) for n in range(4) for team in ("poor", "rich"))
    # rich 0/16, poor 0/4: the older; then by share of the quota, and poor borrows from its second on
    assert started(columns, *waiting, teams=teams) == [
        "poor0", "rich0", "rich1", "rich2", "rich3", "poor1", "poor2", "poor3",
    ]  # fmt: skip


def test_what_nobody_owns_is_borrowed_by_weight(columns: Columns) -> None:
    teams = (Team("one", weight=1), Team("three", weight=3))
    waiting = tuple(gang(f"{team}{n}", team) for n in range(8) for team in ("one", "three"))
    order = started(columns, *waiting, teams=teams)
    assert len(order) == 8
    assert sum(name.startswith("three") for name in order) == 6


def test_priority_stands_above_standing(columns: Columns) -> None:
    teams = (Team("rich", 16), Team("poor"))
    assert started(columns, gang("a", "rich"), gang("b", "poor", priority=1), teams=teams, free=1) == ["b"]


def test_a_team_stops_at_its_ceiling_and_others_go_on(columns: Columns) -> None:
    teams = (Team("low", 0, ceiling=8), Team("high"))
    waiting = (
        gang("l0", "low"),
        gang("l1", "low", submitted=1),
        gang("l2", "low", submitted=2),
        gang("h", "high", submitted=3),
    )
    made = plan(10.0, QueueState(waiting, teams=teams), Yard.on(columns))
    assert [start.gang for start in made.starts] == ["l0", "h", "l1"]
    reason = made.reasons["l2"]
    assert (reason.kind, reason.gpus) == ("ceiling", 8)
    assert reason.text(10.0) == "its team is at its ceiling of 8 GPUs"


def test_what_may_not_be_preempted_does_not_borrow(columns: Columns) -> None:
    teams = (Team("own", 8), Team("other", 24))
    fixed = Gang("fixed", Request(12), "own", preemptible=False)
    made = plan(0.0, QueueState((fixed, gang("loose", "own", request=Request(12))), teams=teams), Yard.on(columns))
    assert [start.gang for start in made.starts] == ["loose"]
    assert made.reasons["fixed"].kind == "quota"
    alone = plan(0.0, QueueState((fixed,)), Yard.on(columns))
    assert [start.gang for start in alone.starts] == ["fixed"], "without teams there are no quotas"


def test_a_team_that_nobody_listed_owns_nothing(columns: Columns) -> None:
    assert started(
        columns, gang("a", "stray"), gang("b", "listed", submitted=5), teams=(Team("listed", 4),), free=1
    ) == ["b"]


def test_an_elder_comes_before_all_and_only_one_at_a_time(columns: Columns) -> None:
    policy = Policy(patience=100.0)
    old = (gang("old1", submitted=-200.0), gang("old2", submitted=-150.0), gang("new", priority=9))
    yard = Yard.on(columns)
    yard.retire(range(2, 8))
    made = plan(0.0, QueueState(old), yard, policy)
    assert made.elders == ("old1",)
    assert [start.gang for start in made.starts] == ["old1", "new"]


def test_what_can_never_start_is_no_elder(columns: Columns) -> None:
    policy = Policy(patience=100.0)
    teams = (Team("", 0, ceiling=8),)
    waiting = (
        gang("too-large", submitted=-300.0, request=Request(64)),
        gang("odd", "other", submitted=-300.0, request=Request(6)),
        gang("over", submitted=-300.0, request=Request(12)),
        gang("fits", submitted=-200.0),
    )
    made = plan(0.0, QueueState(waiting, teams=teams), Yard.on(columns), policy)
    assert made.elders == ("fits",)
    assert [made.reasons[name].kind for name in ("too-large", "odd", "over")] == ["ceiling", "site", "ceiling"]


def test_an_elder_keeps_its_teams_last_gpus(world: World) -> None:
    here = world(Policy(patience=50.0, unknown=10.0), (Team("t", 0, ceiling=16),))
    for number in range(4):
        here.submit(gang(f"s{number}", "t"), 60.0 + number)
    here.plan()
    here.submit(gang("large", "t", request=Request(16)), 5.0)
    for number in range(4, 60):
        here.submit(gang(f"s{number}", "t", priority=5), 9.0)
        here.plan()
        here.run_until(here.now + 2.0)
    # overdue at 50 s; the last of those that run then ends at 63 s
    assert here.started["large"] == 63.0
    assert here.last is not None


def test_the_same_answer_whatever_the_order_of_the_arguments(columns: Columns) -> None:
    teams = (Team("a", 8), Team("b", 8), Team("c"))
    waiting = tuple(
        gang(f"g{n:02d}", "abc"[n % 3], n % 2, submitted=n // 4, request=(ONE, EIGHT)[n % 2]) for n in range(16)
    )
    one = plan(5.0, QueueState(waiting, teams=teams), Yard.on(columns))
    other = plan(5.0, QueueState(waiting[::-1], teams=teams[::-1]), Yard.on(columns))
    assert [start.gang for start in one.starts] == [start.gang for start in other.starts]
    assert [(each.gang, each.start) for each in one.reservations] == [
        (each.gang, each.start) for each in other.reservations
    ]
    assert dict(one.reasons) == dict(other.reasons)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Team("t", -1), "quota is -1 GPUs"),
        (lambda: Team("t", 8, ceiling=4), "ceiling, 4 GPUs, is below its quota, 8 GPUs"),
        (lambda: Team("t", weight=0.0), "weight is 0.0"),
        (lambda: Team("t", weight=float("nan")), "weight is nan"),
        (lambda: Gang("g", ONE, estimate=0.0), "estimate is 0.0 s"),
        (lambda: Policy(reservations=0), "reservations is 0: expected 1 or more"),
        (lambda: Policy(patience=-1.0), "patience is -1.0 s"),
        (lambda: Policy(preemption_trials=-1), "preemption_trials is -1"),
        (lambda: QueueState((gang("a"), gang("a"))), "gang a is there twice"),
        (lambda: QueueState(teams=(Team("t"), Team("t"))), "team t is there twice"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(make: Callable[[], object], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        make()
