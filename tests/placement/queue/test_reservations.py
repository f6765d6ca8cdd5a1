"""Backfill fills gaps and delays nobody that has a reservation."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rackyard.placement.model import Request
from rackyard.placement.queue import Gang, Policy

World = Callable[..., object]
CALM = Policy(patience=1e9, preemptions=0, unknown=1000.0, overrun=10.0)
"""No elders, nobody preempted: the order stands."""

parts = st.builds(Request, gpus=st.sampled_from([1, 2, 3]), exclusive=st.sampled_from([False, False, True]))
wholes = st.builds(
    Request,
    gpus=st.sampled_from([4, 4, 8, 12, 16, 24, 32]),
    segment_gpus=st.sampled_from([None, None, None, 4, 8]),
    exclusive=st.sampled_from([False, False, False, True]),
    spares=st.sampled_from([0, 0, 0, 1]),
)
requests = parts | wholes
jobs = st.tuples(requests, st.integers(1, 30), st.floats(0.2, 1.0))
"""What is asked for, the estimate in seconds, and the part of it that is true."""


def gangs(drawn: list, prefix: str, exact: bool) -> list[tuple[Gang, float]]:
    return [
        (Gang(f"{prefix}{number:02d}", request, estimate=float(estimate)), estimate * (1.0 if exact else part))
        for number, (request, estimate, part) in enumerate(drawn)
    ]


def played(here: object, first: list, later: list, gap: float) -> object:
    for gang, lasts in first:
        here.submit(gang, lasts)
    here.plan()
    for gang, lasts in later:
        here.submit(gang, lasts)
        here.plan()
        here.run_until(here.now + gap)
    here.run_until(2000.0)
    return here


@settings(max_examples=40)
@given(st.lists(jobs, min_size=2, max_size=12), st.lists(jobs, max_size=12), st.integers(1, 4), st.floats(0.3, 5.0))
def test_a_reserved_gang_never_starts_later_than_was_first_said(
    world: World, first: list, later: list, reservations: int, gap: float
) -> None:
    """As long as no gang runs past its estimate; whether they end early does not matter."""
    policy = replace(CALM, reservations=reservations)
    here = played(world(policy), gangs(first, "a", False), gangs(later, "b", False), gap)
    late = {name: (here.started[name], said) for name, said in here.said.items() if here.started[name] > said}
    assert late == {}


@settings(max_examples=30)
@given(st.lists(jobs, min_size=2, max_size=8), st.lists(jobs, max_size=12), st.integers(1, 3), st.floats(0.3, 5.0))
def test_jobs_behind_it_never_make_a_reserved_gang_later(
    world: World, first: list, later: list, reservations: int, gap: float
) -> None:
    policy = replace(CALM, reservations=reservations)
    alone = played(world(policy), gangs(first, "a", True), [], gap)
    behind = gangs(later, "b", True)
    together = played(world(policy), gangs(first, "a", True), behind, gap)
    reserved_at_once = {name for name, said in alone.said.items() if name in together.said}
    assume(reserved_at_once)
    head = min(reserved_at_once)
    assert together.started[head] <= alone.started[head]


def test_a_reservation_comes_nearer_when_seats_are_free_sooner_than_was_thought(world: World) -> None:
    """One gang without an estimate is taken to run a day; when it ends early, nobody starts in the gap that is left."""
    here = world(Policy())
    here.submit(Gang("known", Request(24), estimate=7200.0), 7200.0)
    here.submit(Gang("unknown", Request(8)), 60.0)
    here.plan()
    here.submit(Gang("whole", Request(32), priority=5, estimate=600.0), 600.0)
    for number in range(3):
        here.submit(Gang(f"small{number}", Request(4), estimate=36_000.0), 36_000.0)
    here.plan()
    assert here.said["whole"] == 86_400.0
    here.run_until(7200.0)
    assert here.started["whole"] == 7200.0
