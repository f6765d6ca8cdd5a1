"""Nothing starves: the bound of `queue/plan.py`, against streams made to break it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from rackyard.placement.model import Request
from rackyard.placement.queue import Gang, Policy, Team

World = Callable[..., object]
PATIENCE = 30.0
LONGEST = 10.0
"""Seconds: no run takes longer, and no estimate is longer."""
POLICY = Policy(patience=PATIENCE, unknown=LONGEST, overrun=5.0, stop=1.0, exempt=3.0, worth=0.0, restart=1.0)
TEAMS = [(), (Team("a", 8), Team("b", 8, ceiling=32)), (Team("a", 32), Team("b")), (Team("a", 4), Team("b", 16))]


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Gang, float]:
    """A job and how long it lasts: most are small and important, and estimates are often lies."""
    lasts = draw(st.floats(1.0, LONGEST))
    gang = Gang(
        name="",
        request=Request(draw(st.sampled_from([1, 2, 4, 4, 4, 8, 8, 16]))),
        team=draw(st.sampled_from(["a", "a", "b"])),
        priority=draw(st.sampled_from([0, 5, 9, 9, 9])),
        estimate=draw(st.sampled_from([None, 0.5, 1.0, lasts, LONGEST])),
        preemptible=draw(st.booleans()),
    )
    return gang, lasts


def press(here: object, stream: list[tuple[Gang, float]], until: float, waiting: int = 5) -> None:
    """Keep so many jobs of the stream waiting, whatever ends, until the target starts or the time is over."""
    at = 0
    while "target" not in here.started and here.now <= until:
        while len(here.waiting) <= waiting:
            gang, lasts = stream[at % len(stream)]
            here.submit(replace(gang, name=f"n{at:05d}"), lasts)
            at += 1
        here.plan()
        here.run_until(min(here.ends.values(), default=here.now + 1.0))


@settings(max_examples=25)
@given(
    st.sampled_from([Request(16), Request(32), Request(32, segment_gpus=16), Request(16, segment_gpus=16), Request(4)]),
    st.lists(jobs(), min_size=3, max_size=20),
    st.sampled_from(TEAMS),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([None, LONGEST]),
)
def test_a_gang_that_fits_starts_within_the_bound_whatever_arrives(
    world: World, request_: Request, stream: list, teams: tuple, stop: float, estimate: float | None
) -> None:
    here = world(POLICY, teams, stop)
    for number, (gang, lasts) in enumerate(stream[:6]):
        here.submit(replace(gang, name=f"s{number}"), lasts)
    here.plan()
    here.submit(Gang("target", request_, "b", 0, estimate=estimate), LONGEST)
    here.plan()
    bound = PATIENCE + len(here.waiting) * (2 * LONGEST + LONGEST)
    press(here, stream, bound)
    assert here.started["target"] <= bound
    event("as an elder" if here.started["target"] > PATIENCE else "by its rank")


SMALL = [(Gang("", Request(4), "a", 9, estimate=5.0), 5.0), (Gang("", Request(8), "a", 9, estimate=0.5), 7.0)]
"""Important jobs; the second one runs fourteen times as long as it says."""


@pytest.mark.parametrize("request_", [Request(32), Request(16, segment_gpus=16)], ids=["whole site", "one domain"])
def test_small_important_jobs_keep_a_large_one_out_only_as_long_as_its_patience(
    world: World, request_: Request
) -> None:
    here = world(POLICY)
    for number, (gang, lasts) in enumerate(SMALL * 3):
        here.submit(replace(gang, name=f"s{number}"), lasts - number / 2)
    here.plan()
    here.submit(Gang("target", request_, "b"), 1.0)
    press(here, SMALL, PATIENCE + 7 * 3 * LONGEST)
    assert PATIENCE <= here.started["target"] <= PATIENCE + 3 * LONGEST


def test_without_elders_it_would_starve(world: World) -> None:
    here = world(replace(POLICY, patience=1e9, reservations=1))
    for number, (gang, lasts) in enumerate(SMALL * 3):
        here.submit(replace(gang, name=f"s{number}"), lasts - number / 2)
    here.plan()
    here.submit(Gang("target", Request(32), "b"), 1.0)
    press(here, SMALL, PATIENCE + 7 * 3 * LONGEST)
    assert "target" not in here.started
