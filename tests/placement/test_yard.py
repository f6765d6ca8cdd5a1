"""Taking and giving back: spares too, and what others have on the same nodes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rackyard.fabric import simulate
from rackyard.placement.columns import Columns
from rackyard.placement.decide import decide
from rackyard.placement.model import Request
from rackyard.placement.yard import Decision, Yard

COLUMNS = Columns.of(simulate(2, 4, hgx=2))
"""Two NVL72 racks of four trays and two HGX servers."""


def seated(yard: Yard, request: Request) -> Decision:
    decision = decide(request, yard)
    assert decision is not None
    yard.take(decision)
    return decision


def test_a_spare_that_others_use_a_part_of_stays_theirs() -> None:
    yard = Yard.on(COLUMNS)
    one = seated(yard, Request(1))
    before = yard.busy.copy()
    other = COLUMNS.names[one.nodes[0] + 1]
    two = seated(yard, Request(1, pin=frozenset({other}), spares=1))
    assert two.spares.tolist() == one.nodes.tolist()
    assert two.held.tolist() == [0b1111 & ~int(one.gpus[0])]
    assert yard.busy[one.nodes[0]] == 0b1111, "nobody else comes onto a spare"
    yard.give(two)
    assert (yard.busy == before).all()


def test_an_idle_spare_is_held_whole() -> None:
    yard = Yard.on(COLUMNS)
    one = seated(yard, Request(8, spares=1))
    assert yard.busy[one.spares].tolist() == [0b1111]
    yard.give(one)
    assert not yard.busy.any()


asks = st.builds(
    Request,
    gpus=st.integers(1, 12),
    gpus_per_node=st.sampled_from([None, 1, 2, 3]),
    spares=st.integers(0, 2),
    rails=st.sampled_from(["aligned", "any"]),
    exclusive=st.booleans(),
)


@given(st.lists(st.tuples(asks, st.booleans()), min_size=2, max_size=14), st.randoms(use_true_random=False))
def test_nobody_takes_or_gives_back_what_is_another_ones(stream: list, draw: object) -> None:
    yard, held = Yard.on(COLUMNS), []
    for request, ends in stream:
        decision = decide(request, yard)
        if decision is not None:
            assert not (yard.busy[decision.nodes] & decision.gpus).any()
            assert not (yard.busy[decision.spares] & decision.held).any()
            yard.take(decision)
            held.append(decision)
        if ends and held:
            yard.give(held.pop(draw.randrange(len(held))))  # type: ignore[attr-defined]
        expected = np.zeros(len(COLUMNS.names), np.uint32)
        for each in held:
            expected[each.nodes] |= each.gpus
            expected[each.spares] |= each.held
        assert (yard.busy == expected).all()
