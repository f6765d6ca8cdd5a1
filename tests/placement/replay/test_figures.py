"""Figures of a replay: each on a case small enough to count."""

import numpy as np
import pytest
from yards import yard_of

from rackyard.fabric import simulate as simulate_site
from rackyard.placement import Request
from rackyard.placement.columns import Columns
from rackyard.placement.replay import Failure, Metrics, Rules, bench, labels, measure, named, simulate
from rackyard.placement.replay.bench import in_use
from rackyard.placement.replay.free import Scales
from rackyard.placement.replay.spans import Span, least, span_of
from rackyard.placement.shape import Shape
from rackyard.placement.traces import TraceJob
from rackyard.placement.yard import Decision

FIRST, BEST = named(["first-fit", "best-fit"])


def decision(nodes: list[int]) -> Decision:
    count = len(nodes)
    return Decision(np.array(nodes, np.int32), np.full(count, 15, np.uint32), (count,), np.zeros(0, np.int32), ())


def test_free_nodes_are_counted_by_how_they_lie() -> None:
    yard = yard_of([18, 16, 7, 0])
    shards = Scales.of(yard.columns).shards(yard)
    assert (shards.nodes, shards.in_domain, shards.in_segments) == (41, 18, 32)
    assert shards.domain_share == 1.0 and shards.segment_share == pytest.approx(32 / 41)
    yard.retire([0, 1, 2])
    shards = Scales.of(yard.columns).shards(yard)
    assert (shards.nodes, shards.in_domain, shards.in_segments) == (38, 16, 16)
    assert shards.domain_share == pytest.approx(16 / 18)


def test_shards_of_a_full_site() -> None:
    yard = yard_of([0, 0])
    shards = Scales.of(yard.columns).shards(yard)
    assert (shards.nodes, shards.domain_share, shards.segment_share) == (0, 0.0, 0.0)


def test_a_server_is_a_domain_by_itself() -> None:
    columns = Columns.of(simulate_site(racks=0, hgx=6, gpu="H200"))
    yard = yard_of([1])
    yard = type(yard).on(columns)
    shards = Scales.of(columns).shards(yard)
    assert (shards.nodes, shards.in_domain, shards.in_segments, shards.domain_share) == (6, 1, 0, 1.0)
    span = span_of(decision([0, 1, 2]), Request(24), columns)
    assert (span.domains, span.least_domains) == (3, 3)


def test_hopeless_counts_whole_nodes_for_gangs_that_need_them() -> None:
    yard = yard_of([2])
    scales = Scales.of(yard.columns)
    yard.busy[1] = 0b0001
    assert not scales.hopeless(Request(4), yard, yard.out)
    assert scales.hopeless(Request(8), yard, yard.out)
    assert not scales.hopeless(Request(3), yard, yard.out)
    assert not scales.hopeless(Request(6, gpus_per_node=3), yard, yard.out)
    yard.retire([0])
    assert scales.hopeless(Request(4), yard, yard.out) and scales.gpus(yard) == 17 * 4


def test_a_span_is_measured_against_what_the_size_makes_necessary() -> None:
    columns = yard_of([18] * 4, racks_per_block=2).columns
    nodes = [*range(8), *range(18, 26), *range(54, 70)]
    assert span_of(decision(nodes), Request(128, segment_gpus=64), columns) == Span(
        nodes=32, domains=3, least_domains=2, blocks=2, least_blocks=1, segments=2, split=1
    )
    assert span_of(decision(nodes), Request(128), columns).segments == 0


def test_the_least_allows_for_whole_segments() -> None:
    columns = yard_of([18] * 6, racks_per_block=2).columns
    assert least(columns, 0, Shape(4, 36, None)) == (2, 1)
    assert least(columns, 0, Shape(4, 36, 12)) == (3, 2)  # one segment of 12 a rack
    assert least(columns, 0, Shape(4, 40, 20)) == (3, 2)  # no rack holds one: as without


def replayed() -> Metrics:
    columns = Columns.of(simulate_site(racks=2, trays=2))
    jobs = [
        TraceJob("a", 0, 8, 100),
        TraceJob("b", 0, 8, 60, segment_gpus=8),
        TraceJob("c", 10, 4, 100, checkpoint_every=30),
        TraceJob("d", 100, 32, 10),
    ]
    ticks = iter(range(1000))
    rules = Rules(estimate=1.0, restart=20.0, clock=lambda: next(ticks) / 1000)
    return measure(simulate(jobs, columns, FIRST, rules, [Failure(100, 2, 1000)]))


def test_the_figures_of_a_small_replay() -> None:
    """a and b fill the site; c starts at 60 on b's first node, which fails at 100: 10 s are lost, 30 saved."""
    found = replayed()
    assert (found.jobs, found.never, found.stuck) == (3, 1, 0)
    assert found.wait_mean == pytest.approx(50 / 3) and found.wait_p50 == 0
    # c goes on at 100 on one of a's nodes: 20 s of restart, 70 s of work
    assert found.completion_mean == pytest.approx((100 + 60 + 180) / 3) and found.drain == 90
    assert found.occupancy == pytest.approx((8 * 100 + 8 * 60 + 4 * 40) / 1600)
    assert (found.domains, found.domains_least, found.domains_over_least) == (1.0, 1.0, 1.0)
    assert (found.blocks, found.blocks_least, found.blocks_over_least) == (1.0, 1.0, 1.0)
    assert (found.segments, found.split) == (1, 0)
    assert (found.failures, found.faults, found.moved, found.preemptions) == (1, 1, 0, 0)
    assert found.lost == pytest.approx(4 * 10 / 3600)
    assert found.goodput == pytest.approx((800 + 480 + 400) / (800 + 480 + 4 * 40 + 4 * 90))
    assert found.free_nodes == pytest.approx(1.0) and found.largest_in_domain == pytest.approx(1.0)
    assert found.segment_share == 0.0 and found.domain_share == pytest.approx(1.0)
    assert found.decision_p50 == pytest.approx(1.0) and found.decisions >= 4


def test_waits_are_of_all_jobs_that_ended_and_those_of_gangs_beside() -> None:
    """One after the other on two nodes: at 0, 100, 200 and, of a single node, 300 s."""
    jobs = [TraceJob(name, 0, 8, 100) for name in "abc"] + [TraceJob("d", 0, 4, 50)]
    found = measure(simulate(jobs, Columns.of(simulate_site(racks=1, trays=2)), FIRST))
    assert (found.wait_mean, found.wait_p50) == (150, 150)
    assert found.wait_p90 == pytest.approx(270) and found.wait_p99 == pytest.approx(297)
    assert found.gang_wait_mean == 100 and found.completion_mean == (100 + 200 + 300 + 350) / 4
    assert found.occupancy is None, "no time passes between the first submission and the last"


def test_spans_are_of_gangs_and_stand_beside_the_least() -> None:
    """Racks of 3 trays, a block each: 4 nodes in segments of 2, seated as 3 + 1, where the least is 2 + 2."""
    columns = Columns.of(simulate_site(racks=4, trays=3, racks_per_block=1))
    jobs = [TraceJob("a", 0, 16, 100, segment_gpus=8), TraceJob("b", 0, 8, 100), TraceJob("alone", 0, 4, 100)]
    found = measure(simulate(jobs, columns, FIRST))
    assert (found.domains, found.domains_least, found.domains_over_least) == (1.5, 1.5, 1.0)
    assert (found.segments, found.split) == (2, 1)
    jobs = [TraceJob("a", 0, 8, 100), TraceJob("b", 0, 8, 100)]
    found = measure(simulate(jobs, columns, FIRST))  # b sits on the last node of one rack and the first of the next
    assert (found.domains, found.domains_least, found.domains_over_least) == (1.5, 1.0, 1.5)
    assert (found.blocks, found.blocks_least, found.blocks_over_least) == (1.5, 1.0, 1.5)


def test_preempted_work_is_cut_off_and_is_no_goodput() -> None:
    """a saves 1000 s, loses 200 s to b, and needs 60 s to start again."""
    jobs = [TraceJob("a", 0, 8, 5000, checkpoint_every=1000), TraceJob("b", 1200, 8, 100, priority=2)]
    columns = Columns.of(simulate_site(racks=1, trays=2))
    found = measure(simulate(jobs, columns, FIRST, Rules("full", 1.0, 60.0)))
    assert found.preemptions == 1 and found.cut == pytest.approx(8 * 200 / 3600) and found.lost == 0
    assert found.goodput == pytest.approx(8 * (5000 + 100) / (8 * (1200 + 60 + 4000 + 100)))
    assert found.occupancy == 1.0 and found.wait_mean == 0.0


def test_nodes_out_of_service_count_in_no_occupancy() -> None:
    """Two of four nodes work for 100 s; one idle node is away for the last 50 of them."""
    jobs = [TraceJob("a", 0, 8, 100), TraceJob("b", 100, 4, 1)]
    columns = Columns.of(simulate_site(racks=1, trays=4))
    found = measure(simulate(jobs, columns, FIRST, None, [Failure(50, 3, 1000)]))
    assert found.occupancy == pytest.approx(8 * 100 / (16 * 50 + 12 * 50))
    assert found.free_nodes == pytest.approx((2 * 50 + 1 * 50) / 100)


def test_every_figure_has_a_label_a_unit_and_a_meaning() -> None:
    rows = labels()
    assert [row[0] for row in rows] == [name for name in Metrics.__slots__ if name != "__weakref__"]
    assert all(label and meaning for _, label, _, meaning in rows)


def test_nothing_to_measure_is_none_and_not_zero() -> None:
    found = measure(simulate([], Columns.of(simulate_site(racks=1)), FIRST))
    assert found.wait_mean is found.occupancy is found.goodput is found.decision_p50 is found.drain is None


def test_benches_meet_the_same_half_full_yards() -> None:
    columns = Columns.of(simulate_site(racks=8))
    one, two = in_use(columns, 1, 0.5), in_use(columns, 1, 0.5)
    assert (one.busy == two.busy).all() and 0.2 < np.count_nonzero(one.busy) / len(one.busy) < 0.8
    ticks = iter(range(1000))
    timing = bench(columns, BEST, Request(16), 5, clock=lambda: next(ticks) / 1000)
    assert timing.count == timing.placed == 5 and timing.p50 == timing.p99 == pytest.approx(1.0)
