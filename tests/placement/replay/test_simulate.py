"""The replay: what happens when, worked out by hand, and what must hold whatever happens."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackyard.fabric import simulate as simulate_site
from rackyard.placement import Request
from rackyard.placement.columns import Columns, Ints
from rackyard.placement.replay import POLICIES, Account, Failure, Policy, Replay, Rules, named, simulate
from rackyard.placement.traces import TraceJob
from rackyard.placement.yard import Decision, Yard

FIRST = named(["first-fit"])[0]
EXACT = Rules(estimate=1.0, restart=60.0)
SITE = Columns.of(simulate_site(racks=2, trays=3))
"""Six nodes of 4 GPUs."""


def job(name: str, submit: float, nodes: int, duration: float, **more: int | float) -> TraceJob:
    return TraceJob(name, submit, 4 * nodes, duration, **more)  # type: ignore[arg-type]


def columns_of(nodes: int) -> Columns:
    return Columns.of(simulate_site(racks=1, trays=nodes))


def run(jobs: Sequence[TraceJob], nodes: int, *failures: Failure, policy: Policy = FIRST) -> dict[str, Account]:
    return told(simulate(jobs, columns_of(nodes), policy, EXACT, failures))


def told(replay: Replay) -> dict[str, Account]:
    return {account.name: account for account in replay.accounts}


def starts(accounts: dict[str, Account]) -> dict[str, float | None]:
    return {name: account.started for name, account in accounts.items()}


def test_first_come_first_served() -> None:
    jobs = [job("a", 0, 2, 100), job("b", 1, 2, 50), job("c", 2, 2, 10)]
    assert starts(run(jobs, 2)) == {"a": 0, "b": 100, "c": 150}


def test_a_higher_priority_goes_first() -> None:
    jobs = [job("a", 0, 2, 100), job("b", 1, 2, 50), job("c", 2, 2, 10, priority=1)]
    assert starts(run(jobs, 2)) == {"a": 0, "b": 110, "c": 100}


def test_backfill_lets_pass_what_does_not_delay_the_first() -> None:
    jobs = [job("a", 0, 1, 100), job("b", 1, 2, 50), job("short", 2, 1, 50), job("long", 3, 1, 200)]
    assert starts(run(jobs, 2)) == {"a": 0, "b": 100, "short": 2, "long": 150}


def test_a_long_gang_may_run_on_nodes_that_are_not_reserved() -> None:
    jobs = [job("a", 0, 2, 100), job("b", 1, 3, 50), job("long", 2, 1, 1000)]
    # the first gang will need nodes 0 to 2 of the four, so node 3 is nobody's
    assert starts(run(jobs, 4)) == {"a": 0, "b": 100, "long": 2}


def test_backfill_goes_by_what_jobs_ask_for() -> None:
    jobs = [job("a", 0, 1, 100), job("b", 1, 2, 50), job("c", 2, 1, 60)]
    assert starts(told(simulate(jobs, columns_of(2), FIRST, Rules(estimate=1.0))))["c"] == 2
    # everybody asks for twice as much: a is taken to end at 200, and c, which asks for 120, still is out of the way
    assert starts(told(simulate(jobs, columns_of(2), FIRST, Rules(estimate=2.0))))["c"] == 2
    later = [*jobs[:2], job("c", 2, 1, 100)]
    assert starts(told(simulate(later, columns_of(2), FIRST, Rules(estimate=2.0))))["c"] == 150


def test_a_failure_costs_the_work_since_the_last_checkpoint() -> None:
    account = run([job("a", 0, 1, 1000, checkpoint_every=300)], 2, Failure(400, 0, 50))["a"]
    assert account.faults == 1 and account.ended == 400 + 60 + 700
    assert account.lost == 4 * 100 and account.useful == 4 * 1000 and account.used == 4 * (400 + 760)


def test_no_checkpoint_is_kept_of_a_restart() -> None:
    job_ = job("a", 0, 1, 1000, checkpoint_every=50)
    account = run([job_], 2, Failure(100, 0, 9999), Failure(155, 1, 10))["a"]
    assert account.faults == 2 and account.lost == 0 and account.useful == 4 * 1000
    assert account.ended == 165 + 60 + 900  # waits for node 1, and loses the 55 s of the restart


def test_a_gang_that_is_hit_goes_before_those_that_came_later() -> None:
    jobs = [job("a", 0, 2, 1000), job("b", 1, 2, 10)]
    accounts = run(jobs, 2, Failure(500, 0, 100))
    assert accounts["a"].ended == 600 + 60 + 1000 and accounts["b"].started == accounts["a"].ended


def test_a_policy_may_mend_a_gang_in_place() -> None:
    def mend(request: Request, held: Decision, lost: Ints, yard: Yard) -> Decision | None:
        assert yard.out[lost].all() and (yard.busy[held.nodes] & held.gpus == held.gpus).all()
        nodes = held.nodes.copy()
        nodes[np.isin(nodes, lost)] = 2
        return replace(held, nodes=nodes)

    mending = replace(FIRST, name="mending", replace=mend)
    account = run([job("a", 0, 2, 1000, checkpoint_every=100)], 3, Failure(250, 1, math.inf), policy=mending)["a"]
    assert account.moved == account.faults == 1 and account.ended == 250 + 60 + 800
    assert len(account.spans) == 2


def test_ours_goes_on_at_once_on_a_free_node_of_the_rack() -> None:
    ours = named(["rackyard"])[0]
    account = run([job("a", 0, 2, 1000, checkpoint_every=100)], 3, Failure(250, 1, math.inf), policy=ours)["a"]
    assert account.moved == account.faults == 1 and account.ended == 250 + 60 + 800
    nowhere = run([job("a", 0, 2, 1000)], 2, Failure(250, 1, 100), policy=ours)["a"]
    assert nowhere.moved == 0 and nowhere.ended == 350 + 60 + 1000


def test_what_waits_for_nodes_that_never_come_back_is_reported() -> None:
    jobs = [job("a", 0, 2, 100), job("b", 1, 2, 50), job("c", 2, 1, 50)]
    replay = simulate(jobs, columns_of(2), FIRST, EXACT, [Failure(10, 0, math.inf)])
    assert replay.stuck == ("a", "b") and replay.never == () and told(replay)["c"].ended == 60


def test_what_fits_on_no_site_of_that_size_is_reported_and_holds_nobody_up() -> None:
    replay = simulate([job("big", 0, 3, 100), job("b", 1, 2, 50)], columns_of(2), FIRST, EXACT)
    assert replay.never == ("big",) and told(replay)["b"].ended == 51


def test_a_gang_that_never_gets_to_a_checkpoint_is_given_up() -> None:
    endless = (Failure(10.0 * at, 0, 1.0) for at in range(1, 10**9))
    replay = simulate([job("a", 0, 1, 1000), job("b", 5, 1, 50)], columns_of(1), FIRST, EXACT, endless)
    assert replay.stuck == ("a", "b") and told(replay)["a"].faults == 1000


def test_a_failure_of_a_failed_node_is_none() -> None:
    replay = simulate([job("a", 0, 1, 100)], columns_of(2), FIRST, EXACT, [Failure(5, 1, 50), Failure(6, 1, 50)])
    assert replay.failures == 1


def test_the_full_queue_preempts_for_a_higher_priority() -> None:
    jobs = [job("a", 0, 2, 5000, checkpoint_every=1000), job("b", 1200, 2, 100, priority=2)]
    accounts = told(simulate(jobs, columns_of(2), FIRST, Rules("full", 1.0, 60.0)))
    assert accounts["b"].started == 1200
    assert accounts["a"].preempted == 1 and accounts["a"].cut == 8 * 200 and accounts["a"].lost == 0
    assert accounts["a"].ended == 1300 + 60 + 4000


def test_nothing_comes_of_nothing() -> None:
    replay = simulate([], SITE, FIRST)
    assert replay.accounts == () and replay.timeline.busy == 0


def test_the_watcher_is_told() -> None:
    seen: list[int] = []
    simulate([job("a", 0, 1, 10), job("b", 1, 1, 20)], SITE, FIRST, watch=seen.append)
    assert seen[-1] == 2 and seen == sorted(seen)


jobs_strategy = st.lists(
    st.builds(
        TraceJob,
        name=st.uuids().map(str),
        submit=st.integers(0, 300).map(float),
        gpus=st.sampled_from([1, 2, 4, 8, 12, 16, 24, 28]),
        duration=st.integers(1, 400).map(float),
        priority=st.integers(0, 2),
        segment_gpus=st.sampled_from([None, 4]),
        checkpoint_every=st.sampled_from([30.0, 1000.0]),
    ),
    max_size=14,
)
failures_strategy = st.lists(
    st.builds(
        Failure,
        st.integers(0, 600).map(float),
        st.integers(0, 5),
        st.sampled_from([1.0, 70.0, 500.0, math.inf]),
    ),
    max_size=6,
).map(lambda found: sorted(found, key=lambda failure: failure.time))


class Watched:
    """A policy whose seats are checked against the yard it was given, which is the replay's own or one to come."""

    def __init__(self, policy: Policy) -> None:
        self.inner = policy
        self.first: Yard | None = None
        self.policy = replace(policy, place=self)

    def __call__(self, request: Request, yard: Yard) -> Decision | None:
        self.first = self.first or yard
        decision = self.inner.place(request, yard)
        if decision is not None:
            assert len(set(decision.nodes.tolist())) == len(decision.nodes)
            assert not (yard.busy[decision.nodes] & decision.gpus).any(), "a GPU would be used twice"
            assert not yard.out[decision.nodes].any(), "a failed node would be used"
            assert int(np.bitwise_count(decision.gpus).sum()) == request.gpus
        return decision


@pytest.mark.parametrize(
    ("policy", "queue"),
    [*((policy, "easy") for policy in POLICIES), (FIRST, "full"), (POLICIES[0], "full")],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
@given(jobs=jobs_strategy, failures=failures_strategy, estimate=st.sampled_from([0.5, 1.0, 3.0]))
def test_work_is_conserved_whatever_happens(
    policy: Policy, queue: Literal["easy", "full"], jobs: list[TraceJob], failures: list[Failure], estimate: float
) -> None:
    ordered = sorted(jobs, key=lambda one: one.submit)
    watched = Watched(policy)
    replay = simulate(ordered, SITE, watched.policy, Rules(queue, estimate, restart=20.0), failures)
    accounts = told(replay)
    ended = {name for name, account in accounts.items() if account.ended is not None}
    assert ended | set(replay.never) | set(replay.stuck) == set(accounts)
    assert len(ended) + len(replay.never) + len(replay.stuck) == len(accounts)
    if all(math.isfinite(failure.repair) for failure in failures):
        assert replay.stuck == ()
    for one in ordered:
        account = accounts[one.name]
        assert account.used >= account.useful + account.lost + account.cut - 1e-6
        if account.ended is not None and account.started is not None:
            assert account.started >= one.submit and account.ended >= account.started + one.duration - 1e-6
            assert account.useful == pytest.approx(one.gpu_seconds) and account.remaining == 0
            if not account.faults and not account.preempted:
                assert account.used == pytest.approx(one.gpu_seconds) and account.lost == account.cut == 0
    if watched.first is not None:
        assert not watched.first.busy.any(), "GPUs are still in use when all has ended"
    assert replay.timeline.busy <= replay.timeline.available + 1e-6


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@settings(max_examples=15)
@given(jobs=jobs_strategy, failures=failures_strategy)
def test_a_replay_is_the_same_every_time(policy: Policy, jobs: list[TraceJob], failures: list[Failure]) -> None:
    ordered = sorted(jobs, key=lambda one: one.submit)
    one, two = (simulate(ordered, SITE, policy, EXACT, failures) for _ in range(2))
    assert one.accounts == two.accounts and one.timeline == two.timeline


@given(jobs=jobs_strategy)
def test_backfill_never_delays_the_first_of_the_queue_when_asked_times_are_right(jobs: list[TraceJob]) -> None:
    """On one pool of whole nodes, the first gang that has to wait starts no later than without any backfill."""
    whole = [replace(one, gpus=max(4, one.gpus // 4 * 4), priority=0, segment_gpus=None) for one in jobs]
    ordered = sorted(whole, key=lambda one: one.submit)
    with_backfill = told(simulate(ordered, SITE, FIRST, Rules(estimate=1.0)))
    without = told(simulate(ordered, SITE, FIRST, Rules(estimate=1.0, depth=0)))
    for one in ordered:
        start, plain = with_backfill[one.name].started, without[one.name].started
        if plain is not None and plain > one.submit:
            assert start is not None and start <= plain
            break
