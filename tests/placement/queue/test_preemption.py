"""Who is stopped for whom: as little lost work as can be, nobody in vain, nobody who ranks as high."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rackyard.placement.columns import Columns
from rackyard.placement.decide import decide
from rackyard.placement.model import Request
from rackyard.placement.queue import Gang, Policy, QueuePlan, QueueState, Reservation, Running, plan, requeued
from rackyard.placement.yard import Yard

World = Callable[..., object]
NOW = 10_000.0
FOUR, RACK, SITE = Request(4), Request(16, segment_gpus=16), Request(32)


class Full:
    """Both racks full of one-tray gangs r0 to r7, tray n with r{n}; what each has done since its checkpoint differs."""

    def __init__(self, columns: Columns, work: dict[int, float], **changed: object) -> None:
        self.yard = Yard.on(columns)
        self.running = []
        for node in range(8):
            decision = decide(Request(4, pin=frozenset({columns.names[node]})), self.yard)
            assert decision is not None
            self.yard.take(decision)
            gang = Gang(f"r{node}", FOUR, estimate=100_000.0, **changed)
            self.running.append(Running(gang, decision, 0.0, NOW - work.get(node, 1000.0)))

    def change(self, node: int, **changed: object) -> None:
        run = self.running[node]
        names = set(Running.__slots__)
        gang = replace(run.gang, **{name: value for name, value in changed.items() if name not in names})
        self.running[node] = replace(
            run, gang=gang, **{name: value for name, value in changed.items() if name in names}
        )

    def plan(
        self, *waiting: Gang, policy: Policy | None = None, reservations: tuple[Reservation, ...] = ()
    ) -> QueuePlan:
        state = QueueState(waiting, tuple(self.running), reservations=reservations)
        return plan(NOW, state, self.yard, policy or Policy())


def wants(request: Request, priority: int = 1) -> Gang:
    return Gang("new", request, priority=priority, submitted=NOW, estimate=500.0)


def victims(made: QueuePlan) -> list[str]:
    return [name for preemption in made.preemptions for name in preemption.victims]


def test_the_least_work_since_a_checkpoint_goes(columns: Columns) -> None:
    made = Full(columns, {5: 10.0}).plan(wants(FOUR))
    (preemption,) = made.preemptions
    assert preemption.victims == ("r5",)
    assert preemption.lost == 4 * (10.0 + 300.0), "GPU-seconds since the checkpoint, and of the restart"
    assert preemption.decision.nodes.tolist() == [5]
    assert made.reasons["new"].kind == "victims"
    assert [(each.gang, each.start, each.decision) for each in made.reservations] == [("new", NOW, preemption.decision)]


def test_work_without_a_checkpoint_counts_from_the_start(columns: Columns) -> None:
    full = Full(columns, {3: 9000.0})
    for node in (0, 1, 2, 4, 5, 6, 7):
        full.change(node, checkpointed=None)
    assert victims(full.plan(wants(FOUR))) == ["r3"]


def test_a_whole_domain_goes_where_that_loses_least(columns: Columns) -> None:
    """The cheapest gangs sit in both racks; a segment of a rack needs all of one."""
    cheap_first = {0: 1.0, 1: 1.0, 4: 500.0, 5: 500.0, 6: 500.0, 7: 500.0, 2: 5000.0, 3: 5000.0}
    made = Full(columns, cheap_first).plan(wants(RACK))
    assert victims(made) == ["r4", "r5", "r6", "r7"]


def test_only_as_many_as_are_needed_beside_what_is_free(columns: Columns) -> None:
    full = Full(columns, {0: 1.0, 1: 2.0, 2: 3.0})
    full.yard.give(full.running.pop(7).decision)
    assert victims(full.plan(wants(Request(8)))) == ["r0"]
    full.running[0], full.running[1] = (replace(run, checkpointed=NOW - 1000.0) for run in full.running[:2])
    (victim,) = victims(full.plan(wants(Request(8, segment_gpus=8))))
    assert victim in ("r4", "r5", "r6"), "beside the free tray"


def test_nobody_of_the_same_or_a_higher_priority(columns: Columns) -> None:
    full = Full(columns, {}, priority=1)
    full.change(6, priority=0)
    full.change(2, priority=2)
    assert victims(full.plan(wants(FOUR))) == ["r6"]
    assert victims(full.plan(wants(Request(8)))) == [], "one is not enough, and so none is stopped"
    assert victims(full.plan(wants(FOUR, priority=0))) == []


@pytest.mark.parametrize(
    "spared",
    [{"preemptible": False}, {"started": NOW - 599.0}, {"stopping": True}],
    ids=["not preemptible", "just started", "told already"],
)
def test_who_is_spared(columns: Columns, spared: dict) -> None:
    full = Full(columns, {5: 0.0})
    full.change(5, **spared)
    made = full.plan(wants(FOUR), policy=Policy(exempt=600.0))
    # the one that stops already is as good as free, but that is 120 s away: no longer than is worth a preemption
    assert "r5" not in victims(made)
    assert len(victims(made)) == (0 if "stopping" in spared else 1)


def test_nothing_is_preempted_for_a_start_that_is_near(columns: Columns) -> None:
    full = Full(columns, {5: 0.0})
    ending = replace(full.running[2].gang, estimate=NOW + 299.0)
    full.running[2] = replace(full.running[2], gang=ending)
    made = full.plan(wants(FOUR))
    assert victims(made) == []
    assert [(each.gang, each.start) for each in made.reservations] == [("new", NOW + 299.0)]
    assert victims(full.plan(wants(FOUR), policy=Policy(worth=298.0))) == ["r5"]


def test_a_reservation_is_kept_while_victims_stop_and_nobody_else_is_asked(columns: Columns) -> None:
    full = Full(columns, {5: 0.0})
    first = full.plan(wants(FOUR))
    full.change(5, stopping=True)
    again = full.plan(wants(FOUR), Gang("late", FOUR, submitted=NOW), reservations=first.reservations)
    assert again.preemptions == ()
    assert again.reasons["new"].kind == "victims"
    assert next(each for each in again.reservations if each.gang == "new").decision.nodes.tolist() == [5]
    full.yard.give(full.running.pop(5).decision)
    last = full.plan(wants(FOUR), Gang("late", FOUR, submitted=NOW), reservations=again.reservations)
    assert [(start.gang, start.decision.nodes.tolist()) for start in last.starts] == [("new", [5])]


def test_several_that_are_alike_each_get_their_own_victims(columns: Columns) -> None:
    full = Full(columns, {})
    made = full.plan(*(replace(wants(FOUR), name=f"new{n}") for n in range(3)))
    assert len(made.preemptions) == 3
    assert len(set(victims(made))) == 3


def test_the_numbers_of_the_policy_bound_the_search(columns: Columns) -> None:
    many = [replace(wants(Request(4 + 4 * (n % 2))), name=f"new{n}", priority=n + 1) for n in range(4)]
    assert len(Full(columns, {}).plan(*many, policy=Policy(preemptions=1)).preemptions) == 1
    assert Full(columns, {}).plan(*many, policy=Policy(preemptions=0)).preemptions == ()
    assert Full(columns, {}).plan(*many, policy=Policy(preemption_trials=0)).preemptions == ()


def test_on_a_small_site_single_trays_and_racks_are_chosen_as_by_brute_force(columns: Columns) -> None:
    draw = np.random.default_rng(7)
    for _ in range(20):
        work = {node: float(draw.integers(0, 5000)) for node in range(8)}
        losses = [4 * (work[node] + 300.0) for node in range(8)]
        for count in (1, 2, 3):
            made = Full(columns, work).plan(wants(Request(4 * count)))
            assert made.preemptions[0].lost == sum(sorted(losses)[:count])
        racks = sum(losses[:4]), sum(losses[4:])
        assert Full(columns, work).plan(wants(RACK)).preemptions[0].lost == min(racks)
        # for segments of half a rack the search is no proof, but no worse than a rack
        (found,) = Full(columns, work).plan(wants(Request(16, segment_gpus=8))).preemptions
        assert len(found.victims) == 4 and found.lost <= min(racks)


def test_a_preempted_gang_waits_anew_with_what_is_left_to_do(columns: Columns) -> None:
    run = Full(columns, {}).running[0]
    gang = requeued(replace(run, started=100.0, checkpointed=600.0), NOW)
    assert (gang.submitted, gang.estimate) == (NOW, 99_500.0)
    assert requeued(replace(run, checkpointed=None), NOW).estimate == 100_000.0
    assert requeued(replace(run, checkpointed=200_000.0), NOW).estimate == 100_000.0, "past its estimate: it was wrong"
    nearly = replace(run, started=100.0, checkpointed=100_100.0 - 1e-10)
    assert requeued(nearly, NOW).estimate == 1.0, "what takes no time crosses no reservation"
    unsaid = requeued(replace(run, gang=replace(run.gang, estimate=None)), NOW)
    assert unsaid.estimate is None


def test_no_circle_of_preemptions(world: World) -> None:
    """Two gangs that want the whole site, and one that outranks both: it settles after one preemption each."""
    here = world(Policy(exempt=0.0, worth=0.0, stop=0.0, restart=0.0))
    for number, priority in enumerate((0, 0, 1, 1, 2, 2)):
        here.submit(Gang(f"g{number}", SITE, priority=priority, estimate=50.0), 50.0)
        here.plan()
        here.run_until(here.now + 1.0)
    assert len(here.preempted) == 2
    here.run_until(1000.0)
    assert len(here.preempted) == 2, "whoever was preempted starts when the others have ended, and preempts nobody"
    assert not here.waiting and not here.running
