"""The rule of each policy on sites small enough to work out by hand; racks have 18 trays of 4 GPUs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yards import by_rack, yard_of

from rackyard.errors import UsageError
from rackyard.fabric import simulate
from rackyard.placement import Request
from rackyard.placement.columns import Columns
from rackyard.placement.replay import POLICIES, Policy, named
from rackyard.placement.replay.policies.tier_by_tier import nearest
from rackyard.placement.replay.spans import span_of
from rackyard.placement.yard import Yard

OURS, FIRST, BEST, TIER, LEVEL, SLURM = named(
    ["rackyard", "first-fit", "best-fit", "tier-by-tier", "per-level", "slurm-block"]
)
(NEAREST,) = named(["nearest"])
PEERS = (FIRST, BEST, TIER, LEVEL, SLURM)


def gang(nodes: int, segment: int | None = None, *, required: bool = True) -> Request:
    """A gang of whole trays."""
    return Request(4 * nodes, segment_gpus=None if segment is None else 4 * segment, segment_required=required)


@pytest.mark.parametrize(
    ("policy", "free", "wanted", "taken"),
    [
        # blind: whatever comes first
        (FIRST, [3, 18], gang(5), [3, 2]),
        (FIRST, [3, 18], gang(8, 4), [3, 5]),
        # the fullest rack that holds it; else racks filled up from the fullest
        (BEST, [18, 7, 5], gang(5), [0, 0, 5]),
        (BEST, [18, 7, 5], gang(6), [0, 6, 0]),
        (BEST, [6, 5, 7], gang(12), [6, 5, 1]),
        (BEST, [6, 5, 7], gang(12, 4), [4, 4, 4]),
        (BEST, [6, 5, 3], gang(12, 4), None),
        (BEST, [3, 3], gang(4, 4), None),
        (BEST, [3, 3], gang(4, 4, required=False), [3, 1]),
        # the fullest domain; inside a larger group no care is taken of domains
        (TIER, [18, 9, 12], gang(8), [0, 8, 0]),
        (TIER, [1, 1, 18], gang(19), [1, 1, 17]),
        (TIER, [18, 10, 8], gang(16, 8), [16, 0, 0]),
        (TIER, [15, 10, 8], gang(16, 8), [0, 8, 8]),
        (TIER, [7, 7], gang(8, 8), None),
        (TIER, [7, 7], gang(8, 8, required=False), [7, 1]),
        # KEP-2724's own examples: 3, 3, 2, 1 for 7 pods; 6, 5, 4, 3, 2 for 12 pods in slices of 2
        (LEVEL, [3, 3, 2, 1], gang(7), [3, 3, 0, 1]),
        (LEVEL, [6, 5, 4, 3, 2], gang(12, 2), [6, 0, 4, 0, 2]),
        (LEVEL, [18, 7, 5], gang(5), [0, 0, 5]),
        (LEVEL, [7, 7], gang(8, 8), None),
        (LEVEL, [7, 7], gang(8, 8, required=False), [7, 1]),
        # one block: the fullest, of two alike the last; two blocks: a pair at its place
        (SLURM, [18, 7, 5], gang(5), [0, 0, 5]),
        (SLURM, [7, 7], gang(3), [0, 3]),
        (SLURM, [10, 10, 18, 18], gang(20), [10, 10, 0, 0]),
        (SLURM, [10, 9, 18, 18], gang(20), [0, 0, 2, 18]),
        (SLURM, [2, 17, 17, 2], gang(20), None),
        (SLURM, [16, 18, 3, 16], gang(32, 16), [16, 0, 0, 16]),
        (SLURM, [18, 18], gang(20, 20), [2, 18]),
    ],
)
def test_the_rule(policy: Policy, free: list[int], wanted: Request, taken: list[int] | None) -> None:
    yard = yard_of(free)
    assert by_rack(policy.place(wanted, yard), yard) == taken


def test_the_lowest_tier_with_room_wins_and_the_fullest_group_of_it() -> None:
    yard = yard_of([14, 18, 18, 18], racks_per_block=2)
    assert by_rack(TIER.place(gang(32), yard), yard) == [14, 18, 0, 0]
    assert by_rack(TIER.place(gang(32, 16), yard), yard) == [0, 0, 16, 16]
    assert by_rack(TIER.place(gang(40), yard), yard) == [14, 18, 8, 0]  # no block has room: the site


def test_partitions_go_to_the_group_that_they_fill_most() -> None:
    yard = yard_of([18, 18, 16, 18], racks_per_block=2)
    assert by_rack(TIER.place(gang(32, 16), yard), yard) == [0, 0, 16, 16]


def test_a_preference_walks_up_only_as_far_as_it_must() -> None:
    yard = yard_of([9, 9, 9, 18, 18, 18], racks_per_block=3)
    assert by_rack(LEVEL.place(gang(27), yard), yard) == [9, 9, 9, 0, 0, 0]
    assert by_rack(LEVEL.place(gang(28), yard), yard) == [0, 0, 0, 18, 10, 0]
    # no block has room: three whole racks and the tightest for the rest; the pods go to the first hosts of them all
    assert by_rack(LEVEL.place(gang(60), yard), yard) == [9, 0, 0, 18, 18, 15]


def test_a_segment_cut_by_a_blind_policy_shows_in_the_runs() -> None:
    yard = yard_of([3, 18])
    decision = FIRST.place(gang(8, 4), yard)
    assert decision is not None and decision.runs == (3, 1, 4)


@pytest.mark.parametrize("policy", [TIER, LEVEL])
def test_a_small_job_fills_up_a_node_in_use(policy: Policy) -> None:
    yard = yard_of([2])
    yard.busy[1] = 0b0011
    decision = policy.place(Request(2), yard)
    assert decision is not None and decision.nodes.tolist() == [1] and decision.gpus.tolist() == [0b1100]


def test_soft_mode_starts_anywhere_and_hard_mode_in_the_group_that_holds_the_gang() -> None:
    yard = yard_of([1, 0, 3, 3], racks_per_block=2)
    assert by_rack(NEAREST.place(gang(4), yard), yard) == [1, 0, 3, 0]
    assert by_rack(TIER.place(gang(4), yard), yard) == [0, 0, 3, 1]


def test_the_next_pod_goes_to_the_nearest_tier_and_then_to_the_domain_with_most_of_the_gang() -> None:
    yard = yard_of([2, 2, 2, 2], racks_per_block=2)
    order = np.array([2, 1, 0, 3], np.int32)  # begins in the third rack, and would rather go on in the second
    assert by_rack(nearest(gang(5), yard, order), yard) == [0, 1, 2, 2]
    assert by_rack(nearest(gang(3), yard, order), yard) == [0, 0, 2, 1]


def test_a_fuller_node_counts_as_much_as_a_nearer_one() -> None:
    yard = yard_of([2, 0, 1], trays=2)
    yard.busy[0] = yard.busy[4] = 0b0011
    decision = NEAREST.place(Request(4, gpus_per_node=2), yard)
    assert decision is not None and decision.nodes.tolist() == [0, 1]  # 1 nearer beats 1/2 fuller
    yard = yard_of([1, 1, 2], trays=2, racks_per_block=1)
    yard.busy[0] = yard.busy[4] = 0b0011  # the first pod in the first rack; every other one is as far
    decision = NEAREST.place(Request(4, gpus_per_node=2), yard)
    assert decision is not None and decision.nodes.tolist() == [0, 4]


def test_room_for_one_pod_is_counted_in_such_pods() -> None:
    yard = yard_of([1, 2], trays=2)
    yard.busy[2] = yard.busy[3] = 0b0111  # room for two pods of one GPU, in the other rack for four
    decision = LEVEL.place(Request(1), yard)
    assert decision is not None and decision.nodes.tolist() == [2]


def test_of_nodes_with_room_for_as_many_pods_the_first_is_taken() -> None:
    yard = yard_of([2], trays=2)
    yard.busy[0], yard.busy[1] = 0b0001, 0b0011
    decision = LEVEL.place(Request(2), yard)
    assert decision is not None and decision.nodes.tolist() == [0]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_servers_that_are_their_own_domain_hold_no_larger_segment(policy: Policy) -> None:
    yard = Yard.on(Columns.of(simulate(racks=0, hgx=8, gpu="H200")))
    decision = policy.place(Request(32, segment_gpus=8), yard)
    assert decision is not None and len(decision.nodes) == 4 and decision.runs == (1, 1, 1, 1)
    if policy.segments.startswith("kept") and policy is not SLURM:
        assert policy.place(Request(32, segment_gpus=16), yard) is None


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_failed_and_cordoned_nodes_are_left_out(policy: Policy) -> None:
    yard = yard_of([3])
    yard.retire([1])
    decision = policy.place(gang(2), yard)
    assert decision is not None and sorted(decision.nodes.tolist()) == [0, 2]
    assert policy.place(gang(3), yard) is None


@pytest.mark.parametrize("policy", [*POLICIES, NEAREST], ids=lambda policy: policy.name)
@given(
    free=st.lists(st.integers(0, 6), min_size=1, max_size=9),
    per_block=st.integers(0, 4),
    segment=st.sampled_from([None, 1, 2, 3]),
    units=st.integers(1, 6),
    required=st.booleans(),
)
def test_what_is_placed_is_free_whole_and_kept_together(
    policy: Policy, free: list[int], per_block: int, segment: int | None, units: int, required: bool
) -> None:
    yard = yard_of(free, trays=6, racks_per_block=per_block)
    busy = yard.busy.copy()
    nodes = units * (segment or 1)
    decision = policy.place(gang(nodes, segment, required=required), yard)
    assert (yard.busy == busy).all()
    if decision is None:
        assert policy is SLURM or sum(free) < nodes or (segment or 1) > 1
        return
    assert len(set(decision.nodes.tolist())) == nodes == sum(decision.runs)
    assert (yard.busy[decision.nodes] == 0).all() and (decision.gpus == 0b1111).all()
    pools = np.split(yard.columns.pool[decision.nodes], np.cumsum(decision.runs)[:-1])
    assert all(len(set(run.tolist())) == 1 for run in pools)
    if required and segment and policy.segments != "ignored":
        assert set(decision.runs) == {segment}


@given(free=st.lists(st.integers(0, 6), min_size=1, max_size=6), nodes=st.integers(1, 36))
def test_peers_without_fixed_rows_seat_whatever_there_is_room_for(free: list[int], nodes: int) -> None:
    yard = yard_of(free, trays=6)
    for policy in (FIRST, BEST, TIER, LEVEL):
        assert (policy.place(gang(nodes), yard) is not None) == (sum(free) >= nodes)


@given(
    free=st.lists(st.integers(0, 6), min_size=2, max_size=9),
    per_block=st.integers(0, 4),
    segment=st.sampled_from([None, 2, 3]),
    units=st.integers(1, 8),
)
def test_on_one_yard_ours_spans_no_more_than_any_peer(
    free: list[int], per_block: int, segment: int | None, units: int
) -> None:
    """Fewest blocks, then fewest domains. Over a whole replay this promises nothing: each rule meets other yards."""
    yard = yard_of(free, trays=6, racks_per_block=per_block)
    wanted = gang(units * (segment or 1), segment)
    ours = POLICIES[0].place(wanted, yard)
    for peer in PEERS if segment is None else PEERS[1:]:
        theirs = peer.place(wanted, yard)
        if theirs is not None:
            assert ours is not None, peer.name
            mine, other = (span_of(found, wanted, yard.columns) for found in (ours, theirs))
            assert (mine.split, mine.blocks, mine.domains) <= (other.split, other.blocks, other.domains), peer.name


@given(
    free=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    segment=st.sampled_from([None, 2, 3]),
    units=st.integers(1, 4),
    spares=st.integers(0, 1),
    at=st.integers(0, 100),
)
def test_ours_mends_a_gang_by_moving_as_little_as_it_can(
    free: list[int], segment: int | None, units: int, spares: int, at: int
) -> None:
    yard = yard_of(free, trays=6)
    wanted = replace(gang(units * (segment or 1), segment), spares=spares)
    held = OURS.place(wanted, yard)
    if held is None:
        return
    yard.take(held)
    lost = held.nodes[[at % len(held.nodes)]]
    yard.retire(lost)
    busy, out = yard.busy.copy(), yard.out.copy()
    assert OURS.replace is not None
    mended = OURS.replace(wanted, held, lost, yard)
    assert (yard.busy == busy).all() and (yard.out == out).all()
    if mended is None:
        assert sum(free) == len(held.nodes) or segment is not None
        return
    moved = mended.nodes[mended.nodes != held.nodes]
    pools = yard.columns.pool
    same = np.append(held.spares, np.flatnonzero((yard.busy == 0) & ~yard.out))
    if (pools[same] == pools[lost[0]]).any():
        assert len(moved) == 1 and pools[moved[0]] == pools[lost[0]]
    assert len(set(mended.nodes.tolist())) == len(held.nodes)
    yard.give(held)
    assert not yard.out[mended.nodes].any() and (yard.busy[mended.nodes] == 0).all()
    assert (yard.busy[mended.spares] & mended.held == 0).all()


def test_names_are_looked_up() -> None:
    assert [policy.name for policy in named([])] == [policy.name for policy in POLICIES]
    assert named(["first-fit", "first-fit"]) == (FIRST,)
    with pytest.raises(UsageError) as caught:
        named(["slurm-bloc"])
    assert caught.value.fix == "did you mean slurm-block?"
    with pytest.raises(UsageError, match="no policy") as caught:
        named(["???"])
    assert "rackyard, first-fit" in str(caught.value.fix)


def test_every_policy_says_what_it_is() -> None:
    for policy in POLICIES:
        assert policy.line and policy.segments and policy.source
        if policy in PEERS:
            assert policy.place.__doc__
