"""What users of other schedulers complained of (facts: scheduling, "Public complaints"), each with the right answer."""

from collections import Counter
from dataclasses import replace

import pytest

from rackyard.fabric import Health, Site, simulate
from rackyard.placement import Group, Occupancy, Placement, Rejection, Request, moved_ranks, place, reseat


def placed(request: Request, site: Site, occupancy: Occupancy | None = None) -> Placement:
    answer = place(request, site, occupancy or Occupancy())
    assert isinstance(answer, Placement), answer
    return answer


def shares(answer: Placement) -> list[int]:
    """Nodes by rack, in rank order of the racks."""
    return list(Counter(segment_rack for segment_rack, _ in by_node(answer)).values())


def by_node(answer: Placement) -> list[tuple[str, str]]:
    return [(segment.rack, node) for segment in answer.segments for node in segment.nodes]


def busy(site: Site, **trays: int) -> Occupancy:
    """`r01=4`: the first four trays of rack r01 are in use."""
    used = {f"{rack}-t{slot:02d}": frozenset(range(4)) for rack, count in trays.items() for slot in range(1, count + 1)}
    return Occupancy(used, dict.fromkeys(used, ("other",)))


def test_128_nodes_are_eight_sixteens_and_not_seven_racks_and_two_nodes() -> None:
    """marin-community/marin#7217, #7225: 7 x 18 + 2 where 16 of every rack were asked for."""
    site = simulate(8)
    assert shares(placed(Request(512, segment_gpus=64), site)) == [16] * 8
    hurt = site.with_cordon({f"r{rack:02d}-t{slot:02d}": "sold as 16 of 18" for rack in range(1, 9) for slot in (1, 2)})
    assert shares(placed(Request(512, segment_gpus=64), hurt)) == [16] * 8


def test_sixteen_and_sixteen_and_not_fourteen_and_eighteen() -> None:
    site = simulate(2)
    answer = placed(Request(128, segment_gpus=64), site)
    assert [len(segment.nodes) for segment in answer.segments] == [16, 16]
    assert {len({site.node(name).domain for name in segment.nodes}) for segment in answer.segments} == {1}
    tight = busy(site, r01=4)  # 14 and 18 free: two sixteens are not there, whatever the sum
    answer = place(Request(128, segment_gpus=64), site, tight)
    assert isinstance(answer, Rejection) and answer.constraint == "busy"
    assert "r01-t01" in answer.fix and "`gpus: 64` fits now" in answer.fix


def test_twelve_times_three_and_not_seventeen_seventeen_two() -> None:
    """SchedMD/slurm#225: segments of 12 nodes were ignored."""
    site = simulate(3, trays=17)
    assert shares(placed(Request(144, segment_gpus=48), site)) == [12, 12, 12]
    small = simulate(3, trays=18)
    assert shares(placed(Request(144, segment_gpus=12), small)) == [18, 18]  # three-node segments fit whole racks


def test_a_full_rack_beside_a_free_site() -> None:
    """NVIDIA/nvcf#598: a clique was chosen that had no room, and the gang stayed pending."""
    site = simulate(4)
    answer = placed(Request(64, segment_gpus=64), site, busy(site, r01=18, r02=17, r03=3))
    assert {rack for rack, _ in by_node(answer)} == {"r04"}


def test_a_gang_is_not_split_onto_a_clique_without_room() -> None:
    site = simulate(2)
    answer = place(Request(72, segment_gpus=72), site, busy(site, r01=1, r02=1))
    assert isinstance(answer, Rejection) and answer.constraint == "busy"
    wish = placed(Request(72, segment_gpus=72, segment_required=False), site, busy(site, r01=1, r02=1))
    assert sorted(shares(wish)) == [1, 17]


def test_a_second_failure_during_a_replacement() -> None:
    """kubernetes-sigs/kueue#14244: the second lost node evicted a job of 500 nodes."""
    site = simulate(32, racks_per_block=8)
    request = Request(2000, segment_gpus=16, spares=1)
    first = placed(request, site)
    lost = {first.nodes()[7]}
    second = reseat(first, frozenset(lost), frozenset(), request, site, Occupancy())
    assert isinstance(second, Placement)
    assert len(moved_ranks(first, second)) == 4
    lost.add(second.nodes()[7])  # the replacement dies while it starts
    third = reseat(second, frozenset(lost), frozenset(), request, site, Occupancy())
    assert isinstance(third, Placement)
    assert len(moved_ranks(second, third)) == 4
    assert lost.isdisjoint(third.nodes())
    domain = site.node(first.nodes()[7]).domain
    assert site.node(third.nodes()[7]).domain == domain


def test_many_nodes_lost_at_once() -> None:
    """More than the eight unhealthy nodes that Kueue can replace."""
    site = simulate(6)
    request = Request(128, segment_gpus=16)
    first = placed(request, site)
    lost = frozenset(first.nodes()[:12])
    answer = reseat(first, lost, frozenset(), request, site, Occupancy())
    assert isinstance(answer, Placement)
    assert lost.isdisjoint(answer.nodes())
    kept = [segment for segment in first.segments if lost.isdisjoint(segment.nodes)]
    assert {segment.nodes for segment in kept} <= {segment.nodes for segment in answer.segments}


def test_a_soft_gang_stays_in_the_rack_that_holds_it() -> None:
    """volcano-sh/volcano#4343: preferring one rack, it still left the one it had started in."""
    site = simulate(3)
    answer = placed(Request(48, segment_gpus=48, segment_required=False), site, busy(site, r01=5, r02=2, r03=4))
    assert {rack for rack, _ in by_node(answer)} == {"r01"}  # 13 free: the tightest that holds all 12


def test_small_jobs_do_not_break_whole_racks() -> None:
    """volcano-sh/volcano#4368."""
    site = simulate(3)
    occupancy = busy(site, r02=9)
    for number in range(9):
        answer = placed(Request(4), site, occupancy)
        assert {rack for rack, _ in by_node(answer)} == {"r02"}
        occupancy = occupancy.with_job(f"small-{number}", answer)


def test_ranks_follow_the_racks() -> None:
    """kubernetes-sigs/kueue#3533, #8635: the order of ranks was lost."""
    site = simulate(4)
    answer = placed(Request(256, segment_gpus=32), site)
    order = [node for _, node in by_node(answer)]
    assert order == sorted(order)
    assert [seat.rank for seat in answer.seats] == list(range(256))


@pytest.mark.parametrize("health", [Health.UNKNOWN, Health.DEGRADED])
def test_domains_that_nobody_vouches_for_come_last(health: Health) -> None:
    """NVIDIA-NeMo/RL#2924: nodes of an unknown domain were sorted first, and nothing could be scheduled."""
    site = simulate(3).with_health(nvlink={"r01": health})
    assert {rack for rack, _ in by_node(placed(Request(128, segment_gpus=64), site))} == {"r02", "r03"}


def test_a_gang_that_one_block_holds_does_not_cross_blocks() -> None:
    """volcano-sh/volcano#5751, at the tier above: fewest blocks come before fewest domains."""
    site = simulate(8, racks_per_block=4)
    answer = placed(Request(64 * 3, segment_gpus=64), site, busy(site, r01=3, r02=3))
    assert {rack for rack, _ in by_node(answer)} == {"r05", "r06", "r07"}
    request = Request(64 * 4, segment_gpus=64, groups=(Group(128, "block", required=True),))
    answer = placed(request, site, busy(site, r01=3, r05=3))
    racks = [segment.rack for segment in answer.segments]
    assert racks == ["r02", "r03", "r06", "r07"]
    blocked = place(replace(request, groups=(Group(256, "block", required=True),)), site, busy(site, r01=3, r05=3))
    assert isinstance(blocked, Rejection) and blocked.constraint == "busy"
