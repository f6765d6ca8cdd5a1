"""Advice that frees whole domains: it can be carried out move by move, and it says what it costs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from rackyard.fabric import simulate
from rackyard.placement.columns import Columns
from rackyard.placement.decide import decide
from rackyard.placement.model import Request
from rackyard.placement.queue import (
    Consolidation,
    Gang,
    Policy,
    QueueState,
    Reservation,
    Running,
    consolidate,
)
from rackyard.placement.yard import Yard

NOW = 10_000.0
COLUMNS = Columns.of(simulate(4, 4, hgx=2))
"""Four racks of four trays, and two servers that are each their own domain."""


def at(yard: Yard, name: str, gpus: int, *nodes: int, saved: float = NOW, preemptible: bool = True) -> Running:
    """A gang on those trays."""
    pin = frozenset(COLUMNS.names[node] for node in nodes)
    decision = decide(Request(gpus, pin=pin), yard)
    assert decision is not None
    yard.take(decision)
    return Running(Gang(name, Request(gpus), preemptible=preemptible), decision, 0.0, saved)


def tray(rack: int, slot: int) -> int:
    """Its position; the racks come before the servers."""
    return rack * 4 + slot


def carried_out(advice: Consolidation, state: QueueState, yard: Yard) -> Yard:
    """The yard after the moves, each of which must find its seats free."""
    after = yard.copy()
    runs = {run.gang.name: run for run in state.running}
    for move in advice.moves:
        after.give(runs[move.gang].decision)
        assert not (after.busy[move.decision.nodes] & move.decision.gpus).any(), f"{move.gang} has no room"
        after.take(move.decision)
    for rack in advice.domains:
        pool = COLUMNS.rack_names.index(rack)
        assert not after.busy[COLUMNS.starts[pool] : COLUMNS.starts[pool + 1]].any(), f"{rack} is not free"
    return after


def scattered() -> tuple[Yard, list[Running]]:
    """One tray in use in each rack, r1's the cheapest to move."""
    yard = Yard.on(COLUMNS)
    return yard, [at(yard, f"g{rack}", 4, tray(rack, 1), saved=NOW - 100.0 * (rack != 1)) for rack in range(4)]


def test_the_cheapest_domain_is_freed() -> None:
    yard, running = scattered()
    state = QueueState(running=tuple(running))
    advice = consolidate(NOW, state, yard, None)
    assert advice is not None
    assert (advice.domains, advice.gang, advice.decision) == (("r02",), None, None)
    (move,) = advice.moves
    assert (move.gang, move.ranks, move.lost) == ("g1", 4, 4 * 300.0)
    assert (advice.ranks, advice.lost) == (4, 4 * 300.0)
    carried_out(advice, state, yard)


def test_a_gang_that_fits_afterwards() -> None:
    yard, running = scattered()
    state = QueueState(running=tuple(running))
    wanted = Gang("new", Request(16, segment_gpus=16))
    assert decide(wanted.request, yard) is None
    advice = consolidate(NOW, state, yard, wanted)
    assert advice is not None and advice.gang == "new"
    after = carried_out(advice, state, yard)
    assert advice.decision is not None
    assert not (after.busy[advice.decision.nodes] & advice.decision.gpus).any()
    two = consolidate(NOW, state, yard, replace(wanted, request=Request(32, segment_gpus=16)))
    assert two is not None and len(two.domains) == 2 and {move.gang for move in two.moves} >= {"g1"}
    carried_out(two, state, yard)


def test_no_advice_where_it_fits_or_nothing_can_be_done() -> None:
    yard, running = scattered()
    state = QueueState(running=tuple(running))
    assert consolidate(NOW, state, yard, Gang("fits", Request(12, segment_gpus=12))) is None
    assert consolidate(NOW, state, yard, Gang("never", Request(64, segment_gpus=64))) is None
    assert consolidate(NOW, QueueState(), Yard.on(COLUMNS), None) is None, "nobody to move"
    assert consolidate(NOW, state, yard, None, Policy(consolidation_trials=0)) is None
    full = Yard.on(COLUMNS)
    packed = QueueState(running=tuple(at(full, f"f{node}", 4, node) for node in range(16)))
    full.retire(range(16, 18))
    assert consolidate(NOW, packed, full, None) is None, "nowhere to go"


@pytest.mark.parametrize("stays", ["preemptible", "stopping", "large", "stranger"])
def test_who_stays_where_he_is(stays: str) -> None:
    yard, running = scattered()
    policy = Policy()
    match stays:
        case "preemptible":
            running[1] = replace(running[1], gang=replace(running[1].gang, preemptible=False))
        case "stopping":
            running[1] = replace(running[1], stopping=True)
        case "large":
            yard.give(running[1].decision)
            running[1] = at(yard, "g1", 12, tray(1, 0), tray(1, 1), tray(1, 2))
            policy = Policy(small=8)
        case "stranger":
            yard.busy[tray(1, 3)] |= np.uint32(1)
    advice = consolidate(NOW, QueueState(running=tuple(running)), yard, None, policy)
    assert advice is not None and advice.domains != ("r02",)
    assert "g1" not in {move.gang for move in advice.moves}


def test_what_is_reserved_for_others_is_respected() -> None:
    yard, running = scattered()
    held = decide(Request(12, segment_gpus=12, pin=frozenset({COLUMNS.names[tray(1, 0)]})), yard)
    assert held is not None
    other = Gang("other", Request(12))
    state = QueueState((other,), tuple(running), reservations=(Reservation("other", NOW + 50.0, held),))
    advice = consolidate(NOW, state, yard, None)
    assert advice is not None and advice.domains != ("r02",)
    assert all(not set(move.decision.nodes.tolist()) & set(held.nodes.tolist()) for move in advice.moves)
    own = consolidate(NOW, state, yard, Gang("other", Request(16, segment_gpus=16)))
    assert own is not None and own.domains == ("r02",), "its own reservation is no obstacle"


def test_neighbours_move_one_after_the_other_into_what_the_first_left() -> None:
    """The gang of two racks leaves both; nobody is put on the domain being freed."""
    yard = Yard.on(COLUMNS)
    wide = at(yard, "wide", 8, tray(0, 0), tray(1, 0))
    small = [at(yard, f"s{n}", 4, tray(2, n)) for n in range(3)] + [at(yard, f"t{n}", 4, tray(3, n)) for n in range(3)]
    state = QueueState(running=(wide, *small))
    advice = consolidate(NOW, state, yard, Gang("new", Request(32, segment_gpus=16)))
    if advice is not None:
        carried_out(advice, state, yard)
    one = consolidate(NOW, state, yard, Gang("new", Request(16, segment_gpus=16)))
    assert one is not None and {move.gang for move in one.moves} == {"wide"}
    carried_out(one, state, yard)


gangs = st.tuples(st.sampled_from([1, 2, 4, 4, 8, 12]), st.booleans(), st.floats(0, 5000), st.integers(0, 17))


@settings(max_examples=60)
@given(st.lists(gangs, min_size=1, max_size=14), st.sampled_from([None, 16, 32]), st.integers(0, 8))
def test_every_piece_of_advice_can_be_carried_out(drawn: list, size: int | None, gone: int) -> None:
    yard, running = Yard.on(COLUMNS), []
    for number, (gpus, preemptible, work, node) in enumerate(drawn):
        decision = decide(Request(gpus, exclude=frozenset({COLUMNS.names[node]})), yard)
        if decision is not None:
            yard.take(decision)
            gang = Gang(f"g{number:02d}", Request(gpus), preemptible=preemptible)
            running.append(Running(gang, decision, 0.0, NOW - work))
    for run in running[:gone]:
        yard.give(run.decision)
    state = QueueState(running=tuple(running[gone:]))
    wanted = None if size is None else Gang("new", Request(size, segment_gpus=16))
    before = yard.busy.copy()
    advice = consolidate(NOW, state, yard, wanted)
    assert (yard.busy == before).all()
    if advice is None:
        return
    event("advice")
    after = carried_out(advice, state, yard)
    runs = {run.gang.name: run for run in state.running}
    assert len({move.gang for move in advice.moves}) == len(advice.moves), "nobody moves twice"
    assert all(runs[move.gang].gang.preemptible and runs[move.gang].gang.gpus <= 36 for move in advice.moves)
    assert advice.lost == sum(runs[m.gang].gang.gpus * (NOW - runs[m.gang].checkpointed + 300.0) for m in advice.moves)
    if advice.decision is not None:
        assert not (after.busy[advice.decision.nodes] & advice.decision.gpus).any()
