"""What a round concludes without asking again: a gang that asks for more of the same fits only where less does."""

from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from rackyard.fabric import simulate
from rackyard.placement.columns import Columns
from rackyard.placement.decide import decide
from rackyard.placement.model import Group, Parallel, Request
from rackyard.placement.queue.memory import Failures, Forms
from rackyard.placement.yard import Yard

COLUMNS = Columns.of(simulate(4, 4, hgx=3, racks_per_block=2))
"""Four NVL72 racks of four trays, and three servers of eight GPUs: two classes of nodes."""

requests = st.builds(
    Request,
    gpus=st.integers(1, 96),
    segment_gpus=st.sampled_from([None, None, 4, 8, 12, 16, 32]),
    segment_required=st.booleans(),
    groups=st.sampled_from([(), (), (Group(16, "leaf"),), (Group(16, "block", True),), (Group(32, "block", True),)]),
    parallel=st.sampled_from([None, None, Parallel(tp=4, pp=2)]),
    spread=st.sampled_from(["pack", "pack", "pack", "pack", "spread", 2]),
    copies=st.sampled_from([1, 1, 1, 1, 2]),
    exclusive=st.sampled_from([False, False, True]),
    rails=st.sampled_from(["aligned", "any"]),
    spares=st.sampled_from([0, 0, 1]),
    gpus_per_node=st.sampled_from([None, None, 1, 2, 3]),
)


@st.composite
def yards(draw: st.DrawFn) -> Yard:
    """Trays used in part or whole, and some out."""
    yard = Yard.on(COLUMNS)
    nodes = len(COLUMNS.names)
    masks = draw(st.lists(st.sampled_from([0] * 9 + [1, 3, 8, 255]), min_size=nodes, max_size=nodes))
    yard.busy[:] = masks
    yard.busy &= COLUMNS.all
    yard.retire(draw(st.lists(st.integers(0, nodes - 1), max_size=2)))
    return yard


@settings(max_examples=400)
@given(requests, st.integers(1, 4), st.integers(1, 4), yards())
def test_asking_for_more_never_fits_where_less_does_not(request_: Request, some: int, more: int, yard: Yard) -> None:
    forms = Forms(COLUMNS)
    form = forms.of(request_)
    unit = next((gpus for gpus in range(1, 97) if forms.asks_no_less(form, 2 * gpus, gpus)), 8)
    smaller, larger = (replace(request_, gpus=unit * count) for count in (some, some + more))
    assert forms.of(larger) == form
    fits = decide(larger, yard) is not None
    event(f"larger fits: {fits}")
    if fits and forms.asks_no_less(form, larger.gpus, smaller.gpus):
        assert decide(smaller, yard) is not None


def test_numbers_that_do_not_divide_say_nothing() -> None:
    forms = Forms(COLUMNS)
    form = forms.of(Request(8, segment_gpus=8))
    assert forms.asks_no_less(form, 24, 16)
    assert forms.asks_no_less(form, 12, 12), "the same again"
    assert not forms.asks_no_less(form, 16, 12) and not forms.asks_no_less(form, 12, 8)
    assert not forms.asks_no_less(form, 8, 16)


def test_where_more_can_fit_though_less_does_not() -> None:
    forms = Forms(COLUMNS)
    for request in (
        Request(8, spread=2),
        Request(8, spread="spread"),
        Request(8, copies=2),
        Request(8, pin=frozenset({COLUMNS.names[0]})),
    ):
        form = forms.of(request)
        assert not forms.asks_no_less(form, 16, 8) and forms.asks_no_less(form, 8, 8)


def test_failures_follow_the_levels_of_bookings() -> None:
    forms = Forms(COLUMNS)
    form = forms.of(Request(8))
    other = forms.of(Request(8, exclusive=True))
    failures = Failures(forms)
    failures.add(form, 16, 1)
    assert [failures.known(form, 16, level) for level in (0, 1, 2)] == [False, True, True]
    assert failures.known(form, 24, 1) and not failures.known(form, 8, 1) and not failures.known(other, 16, 1)
    failures.insert(0)  # before the first booking: what failed with one of them blocked fails with two
    assert [failures.known(form, 16, level) for level in (0, 1, 2)] == [False, False, True]
    failures.insert(2)
    assert [failures.known(form, 16, level) for level in (1, 2, 3)] == [False, True, True]
    failures.add(form, 16, 0)
    assert failures.known(form, 16, 0)
