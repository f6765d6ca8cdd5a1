"""Placement is the exact optimum on small sites, nearly always, and never pretends."""

from dataclasses import replace

import pytest
from against import Verdict, judge
from oracle import optimum

from rackyard.fabric import Health, Site, simulate
from rackyard.placement import Group, Occupancy, Parallel, Request, Yard, decide

SEEDS = range(1000, 1080)
SITE = simulate(racks=4, trays=6, racks_per_block=2)
NOBODY = Occupancy()


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    return [judge(seed) for seed in SEEDS]


def test_what_fits_is_placed_and_nothing_beats_the_optimum(verdicts: list[Verdict]) -> None:
    wrong = [one for one in verdicts if one.outcome in ("refused", "better")]
    assert [(one.instance.seed, one.ours, one.best.cost) for one in wrong] == []


def test_nearly_all_placements_are_optimal(verdicts: list[Verdict]) -> None:
    decided = [one for one in verdicts if one.outcome in ("equal", "worse")]
    worse = [(one.instance.seed, one.ours, one.best.cost) for one in decided if one.outcome == "worse"]
    assert len(decided) >= 60
    assert len(worse) <= 0.05 * len(decided), worse


def test_the_cost_reported_is_the_cost_of_the_placement(verdicts: list[Verdict]) -> None:
    assert [one.ours for one in verdicts] == [one.again for one in verdicts]


def used(*counts: int) -> Occupancy:
    """So many trays of each rack in use, the first ones."""
    names = [f"r{rack:02d}-t{slot:02d}" for rack, count in enumerate(counts, 1) for slot in range(1, count + 1)]
    return Occupancy(dict.fromkeys(names, frozenset(range(4))))


PIPES = Parallel(tp=4, pp=2, dp_weight=1, pp_weight=8)

LITERAL = [
    # one domain holds it all: the tightest one that is in use already
    (Request(8), SITE, used(0, 2, 4, 0), (0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0)),
    # eight nodes: two racks of one block rather than the tighter two of different blocks
    (Request(32), SITE, used(0, 2, 2, 6), (0, 0, 0, 1, 1, 2, 1, 0, 2, 1, 0)),
    # three segments of four: a rack of six holds one each
    (Request(48, segment_gpus=16), SITE, NOBODY, (0, 0, 0, 2, 2, 3, 3, 0, 6, 3, 0)),
    # the same may be split, and is not
    (Request(48, segment_gpus=16, segment_required=False), SITE, NOBODY, (0, 0, 0, 2, 2, 3, 3, 0, 6, 3, 0)),
    # six segments of four in 24 nodes: four whole, and two of the remainders
    (Request(96, segment_gpus=16, segment_required=False), SITE, NOBODY, (2, 0, 0, 2, 3, 4, 4, 0, 0, 0, 0)),
    # groups of six in a leaf: a rack each
    (Request(48, groups=(Group(24, "leaf"),)), SITE, used(1, 0, 0, 1), (0, 0, 0, 2, 1, 2, 2, 0, 0, 0, 0)),
    # weak NVLink is left alone, even at the price of another block
    (
        Request(32),
        SITE.with_health(nvlink={"r02": Health.DEGRADED}),
        used(1, 0, 2, 6),
        (0, 0, 0, 2, 1, 2, 0, 0, 1, 1, 0),
    ),
    # two stages of four, data parallel across; each pipeline in one rack, so each stage is in two
    (Request(32, parallel=PIPES), SITE, used(2, 2, 6, 6), (0, 0, 0, 1, 2, 2, 0, 0, 0, 0, 0)),
    # exactly three racks: the two with room for four, and three of the one with room for five
    (Request(44, spread=3), SITE, used(0, 1, 2, 2), (0, 0, 0, 2, 2, 3, 0, 0, 2, 1, 0)),
    # two copies: no rack has more than half
    (Request(16, copies=2), SITE, NOBODY, (0, 0, 0, 1, 1, 2, 2, 0, 8, 2, 0)),
    # seven nodes of a segment are in no rack
    (Request(28, segment_gpus=28), SITE, NOBODY, None),
]


@pytest.mark.parametrize(("request_", "site", "occupancy", "cost"), LITERAL)
def test_literal_optima(request_: Request, site: Site, occupancy: Occupancy, cost: tuple[int, ...] | None) -> None:
    best = optimum(request_, site, occupancy)
    assert best.exact
    assert best.cost == cost
    decision = decide(request_, Yard.open(site, occupancy))
    assert (decision.cost if decision else None) == cost


def test_pins_and_spares_bind_the_oracle_too() -> None:
    pinned = Request(8, pin=frozenset({"r01-t01", "r04-t01"}))
    assert optimum(pinned, SITE, NOBODY).cost == (0, 0, 0, 2, 1, 2, 2, 0, 10, 2, 0)
    assert optimum(replace(pinned, pin=frozenset({"r01-t01", "nowhere"})), SITE, NOBODY).cost is None
    assert optimum(Request(96, spares=1), SITE, NOBODY).cost is None
    assert optimum(Request(80, spares=1), SITE, NOBODY).cost == (0, 0, 0, 2, 3, 4, 4, 0, 4, 4, 0)
