"""Why a gang waits: each kind, and a line that an operator can act on."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rackyard.placement.columns import Columns
from rackyard.placement.decide import decide
from rackyard.placement.model import Request
from rackyard.placement.queue import Gang, Policy, QueuePlan, QueueState, Reason, Running, plan
from rackyard.placement.yard import Yard

NOW = 1000.0
CALM = Policy(preemptions=0)


def planned(
    columns: Columns, running: list[tuple[int, float]], waiting: list[Gang], policy: Policy = CALM
) -> QueuePlan:
    """Gangs run with so many GPUs till so many seconds from now."""
    yard, runs = Yard.on(columns), []
    for number, (gpus, left) in enumerate(running):
        decision = decide(Request(gpus), yard)
        assert decision is not None
        yard.take(decision)
        runs.append(Running(Gang(f"r{number}", Request(gpus), estimate=NOW + left), decision, 0.0))
    return plan(NOW, QueueState(tuple(waiting), tuple(runs)), yard, policy)


def gang(name: str, gpus: int, estimate: float | None = 50.0, submitted: float = 0.0) -> Gang:
    return Gang(name, Request(gpus), submitted=submitted, estimate=estimate)


def said(made: QueuePlan, name: str) -> str:
    return made.reasons[name].text(NOW)


def test_the_site_is_too_small_or_the_numbers_do_not_divide(columns: Columns) -> None:
    made = planned(columns, [], [gang("large", 64), gang("odd", 6), gang("lost", 4)], replace(CALM, reservations=4))
    assert [made.reasons[name].kind for name in ("large", "odd")] == ["site", "site"]
    assert said(made, "large") == "does not fit on this site, even with all running gangs gone"
    assert [start.gang for start in made.starts] == ["lost"]


def test_no_room_with_and_without_a_reservation(columns: Columns) -> None:
    waiting = [gang("first", 32), gang("second", 32, submitted=1.0)]
    made = planned(columns, [(24, 600.0)], waiting, replace(CALM, reservations=1))
    assert made.reasons["first"] == Reason("room", until=NOW + 600.0, gpus=8)
    assert said(made, "first") == "no room among 8 free GPUs; seats are reserved for it, in 10m"
    assert said(made, "second") == "no room among 8 free GPUs"


def test_seats_that_are_kept_for_another(columns: Columns) -> None:
    waiting = [
        gang("first", 32),
        gang("long", 8, 700.0, 1.0),
        gang("unsaid", 8, None, 2.0),
        gang("short", 8, 60.0, 3.0),
    ]
    made = planned(columns, [(24, 600.0)], waiting)
    assert [(start.gang, start.backfill) for start in made.starts] == [("short", True)]
    made = planned(columns, [(24, 600.0)], waiting[:3], replace(CALM, reservations=1))
    assert made.reasons["long"] == Reason("reserved", "first", NOW + 600.0)
    assert said(made, "long") == "would run past the start of first, in 10m, on seats reserved for it"
    assert made.reasons["unsaid"] == Reason("behind", "first", NOW + 600.0)
    assert said(made, "unsaid") == "has no estimate, and the room is reserved for first, in 10m"


def test_the_reasons_share_of_decisions_is_used_up(columns: Columns) -> None:
    """It was looked at and does not fit: whether reservations alone are to blame is left open."""
    waiting = [gang("first", 32), *(gang(f"g{n}", 4 * (n % 2 + 1), 700.0, 1.0 + n) for n in range(4))]
    made = planned(columns, [(24, 600.0)], waiting, replace(CALM, reservations=1, trials=8))
    kinds = {made.reasons[f"g{n}"].kind for n in range(4)}
    assert kinds <= {"reserved", "room", "untried"}
    rooms = [why for why in made.reasons.values() if why.kind == "room" and why.holder]
    for why in rooms:
        assert why.text(NOW) == (
            "no room among 0 free GPUs that are not reserved; others are, most of them for first, in 10m"
        )


def test_the_rounds_decisions_are_used_up(columns: Columns) -> None:
    made = planned(columns, [], [gang(f"g{n}", 4, submitted=float(n)) for n in range(3)], replace(CALM, trials=2))
    assert [start.gang for start in made.starts] == ["g0", "g1"]
    assert made.trials == 2
    assert said(made, "g2") == "not looked at in this round: too many others before it"


def test_an_elder_is_looked_at_even_so(columns: Columns) -> None:
    waiting = [*(gang(f"g{n}", 4, submitted=NOW - 1) for n in range(3)), gang("old", 32, None, -100_000.0)]
    made = planned(columns, [(4, 600.0)], waiting, replace(CALM, trials=1))
    assert made.elders == ("old",)
    assert made.reservations[0].gang == "old" and made.reservations[0].firm


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (Reason("victims"), "waits for preempted gangs to stop"),
        (Reason("ceiling", gpus=16), "its team is at its ceiling of 16 GPUs"),
        (
            Reason("quota", "x", gpus=16),
            "may not be preempted, so it can't borrow, and its team's quota of 16 GPUs is used;"
            " what is left is kept for x, which comes first",
        ),
        (Reason("reserved", "x", NOW - 5.0), "would run past the start of x, in 0s, on seats reserved for it"),
        (
            Reason("room", "x", NOW + 3600.0, 12),
            "no room among 12 free GPUs that are not reserved; others are, most of them for x, in 1h",
        ),
    ],
)
def test_lines(reason: Reason, line: str) -> None:
    assert reason.text(NOW) == line


def test_the_reason_of_a_gang_whose_reservation_gives_way_is_right(world: Callable[..., object]) -> None:
    """See test_quotas: reservations of gangs that borrow give way to what a quota covers."""
    from rackyard.placement.queue import Team

    here = world(Policy(exempt=0.0, worth=0.0, reservations=1), (Team("own", 16), Team("lent", 16)), stop=5.0)
    for number in range(8):
        here.submit(Gang(f"l{number}", Request(4), "lent", 9, estimate=100.0), 100.0)
    here.plan()
    here.now = 50.0
    here.submit(Gang("more", Request(4), "lent", 9, estimate=100.0), 100.0)
    here.plan()
    assert [each.gang for each in here.last.reservations] == ["more"]
    here.submit(Gang("mine", Request(16, segment_gpus=16), "own", 0, estimate=100.0), 100.0)
    made = here.plan()
    assert [each.gang for each in made.preemptions] == ["mine"]
    assert made.reasons["mine"].kind == "victims"
    assert made.reasons["more"].kind == "room"
    assert (made.reasons["more"].until is None) == ("more" not in {each.gang for each in made.reservations})
