"""Nothing to plan, lost nodes between plans, several kinds of nodes, parts of nodes."""

from collections.abc import Callable

import numpy as np

from rackyard.fabric import simulate
from rackyard.placement.columns import Columns
from rackyard.placement.decide import decide
from rackyard.placement.model import Request
from rackyard.placement.queue import Gang, Policy, QueueState, Running, Team, plan
from rackyard.placement.yard import Yard

Seated = Callable[[Yard, str, Request], Running]
CALM = Policy(preemptions=0)


def test_nothing_waits(columns: Columns, seated: Seated) -> None:
    yard = Yard.on(columns)
    empty = plan(0.0, QueueState(), yard)
    assert (empty.starts, empty.reservations, empty.preemptions, dict(empty.reasons), empty.trials) == (
        (),
        (),
        (),
        {},
        0,
    )
    running = seated(yard, "r", Request(32))
    assert plan(0.0, QueueState(running=(running,), teams=(Team("t", 8),)), yard).reasons == {}


def test_no_node_is_well(columns: Columns) -> None:
    yard = Yard.on(columns)
    yard.retire(range(8))
    made = plan(200_000.0, QueueState((Gang("g", Request(4)),)), yard)
    assert made.reasons["g"].kind == "site" and made.elders == ()


def test_a_reservation_on_a_lost_node_is_made_anew_elsewhere(columns: Columns, seated: Seated) -> None:
    yard = Yard.on(columns)
    running = [seated(yard, f"r{n}", Request(16)) for n in range(2)]
    waiting = Gang("g", Request(4), estimate=10.0)
    first = plan(1.0, QueueState((waiting,), tuple(running)), yard, CALM)
    (kept,) = first.reservations
    yard.retire(kept.decision.nodes)
    again = plan(2.0, QueueState((waiting,), tuple(running), reservations=first.reservations), yard, CALM)
    (new,) = again.reservations
    assert not set(new.decision.nodes.tolist()) & set(kept.decision.nodes.tolist())
    yard.restore(kept.decision.nodes)
    gone = plan(2.0, QueueState((), tuple(running), reservations=first.reservations), yard, CALM)
    assert gone.reservations == (), "nor is one kept for a gang that waits no more"


def test_a_firm_reservation_on_a_lost_node_is_made_anew_too(columns: Columns, seated: Seated) -> None:
    yard = Yard.on(columns)
    running = [seated(yard, f"r{n}", Request(16)) for n in range(2)]
    old = Gang("old", Request(4), submitted=-100_000.0)
    first = plan(1.0, QueueState((old,), tuple(running)), yard, CALM)
    assert first.reservations[0].firm
    yard.retire(first.reservations[0].decision.nodes)
    again = plan(2.0, QueueState((old,), tuple(running), reservations=first.reservations), yard, CALM)
    assert again.reservations[0].firm
    assert again.reservations[0].decision.nodes.tolist() != first.reservations[0].decision.nodes.tolist()


def test_two_kinds_of_nodes() -> None:
    columns = Columns.of(simulate(1, 4, hgx=2))
    yard = Yard.on(columns)
    waiting = (
        Gang("trays", Request(16, segment_gpus=16)),
        Gang("servers", Request(16), submitted=1.0),
        Gang("late", Request(8), submitted=2.0, estimate=5.0),
    )
    made = plan(10.0, QueueState(waiting), yard, CALM)
    assert [start.gang for start in made.starts] == ["trays", "servers"]
    kinds = {start.gang: set(columns.kind[start.decision.nodes].tolist()) for start in made.starts}
    assert all(len(kind) == 1 for kind in kinds.values()) and kinds["trays"] != kinds["servers"]
    assert made.reasons["late"].kind == "room" and made.reservations[0].gang == "late"


def test_gangs_on_parts_of_nodes_share_and_preempt_each_other(columns: Columns, seated: Seated) -> None:
    yard = Yard.on(columns)
    yard.retire(range(1, 8))
    halves = tuple(seated(yard, f"r{n}", Request(2)) for n in range(2))
    one = Gang("one", Request(1), priority=1)
    made = plan(10_000.0, QueueState((one,), halves), yard)
    (preemption,) = made.preemptions
    assert len(preemption.victims) == 1
    assert decide(Request(1), yard) is None
    assert not np.any(yard.busy & ~columns.all)
