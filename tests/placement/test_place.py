"""Placement by example: literal sites, literal answers."""

from dataclasses import replace

import pytest

from rackyard.fabric import DomainKey, Health, Site, simulate
from rackyard.placement import Occupancy, Placement, Rejection, Request, decode, encode, explain, place

SITE = simulate(racks=2, trays=18)
EMPTY = Occupancy()


def placed(request: Request, site: Site = SITE, occupancy: Occupancy = EMPTY) -> Placement:
    answer = place(request, site, occupancy)
    assert isinstance(answer, Placement), explain(answer)
    return answer


def rejected(request: Request, site: Site = SITE, occupancy: Occupancy = EMPTY) -> Rejection:
    answer = place(request, site, occupancy)
    assert isinstance(answer, Rejection), explain(answer)
    return answer


def busy(*names: str, site: Site = SITE) -> Occupancy:
    used = {name: frozenset(gpu.index for gpu in site.node(name).gpus) for name in names}
    return Occupancy(used, dict.fromkeys(names, ("other-job",)))


def trays(rack: int, first: int, last: int) -> list[str]:
    return [f"r{rack:02d}-t{slot:02d}" for slot in range(first, last + 1)]


def test_two_segments_share_a_rack_when_packed() -> None:
    answer = placed(Request(16, segment_gpus=8, spares=1))
    assert [segment.nodes for segment in answer.segments] == [("r01-t01", "r01-t02"), ("r01-t03", "r01-t04")]
    assert answer.spares == ("r01-t05",)
    first = answer.seats[5]
    assert (first.rank, first.node, first.local_rank, first.gpu) == (5, "r01-t02", 1, 1)
    assert (first.nic, first.rail, first.segment) == ("mlx5_1", 1, 0)
    assert [(verdict.rack, verdict.chosen) for verdict in answer.racks] == [("r01", True), ("r02", False)]


def test_the_whole_gang_shares_a_domain_where_one_is_large_enough() -> None:
    occupancy = busy(*trays(1, 1, 10))
    answer = placed(Request(40), occupancy=occupancy)
    assert [segment.rack for segment in answer.segments] == ["r02"]


def test_the_tightest_rack_is_taken() -> None:
    answer = placed(Request(16), occupancy=busy(*trays(2, 1, 12)))
    assert [segment.rack for segment in answer.segments] == ["r02"]


def test_smaller_racks_are_taken_together_to_keep_a_whole_one() -> None:
    site = simulate(racks=3, trays=18)
    occupancy = busy(*trays(2, 1, 8), *trays(3, 1, 8), site=site)
    answer = placed(Request(80), site, occupancy)
    assert [segment.rack for segment in answer.segments] == ["r02", "r03"]


def test_spread_over_racks_is_even() -> None:
    for spread in (2, "spread"):
        answer = placed(Request(32, segment_gpus=8, spread=spread))  # type: ignore[arg-type]
        assert [segment.rack for segment in answer.segments] == ["r01", "r01", "r02", "r02"]


def test_a_small_job_fills_up_a_node_in_use() -> None:
    occupancy = Occupancy({"r01-t07": frozenset({0, 1})})
    answer = placed(Request(2), occupancy=occupancy)
    assert [(seat.node, seat.gpu, seat.local_rank, seat.rail) for seat in answer.seats] == [
        ("r01-t07", 2, 0, 2),
        ("r01-t07", 3, 1, 3),
    ]


def test_ranks_per_node_keep_to_the_same_rails_on_every_node() -> None:
    occupancy = Occupancy({name: frozenset({0}) for name in trays(1, 1, 18) + trays(2, 1, 18)})
    answer = placed(Request(8, gpus_per_node=2), occupancy=occupancy)
    assert {(seat.local_rank, seat.gpu, seat.rail) for seat in answer.seats} == {(0, 1, 1), (1, 2, 2)}


def test_swapped_rails_are_followed_by_rail_and_not_by_position() -> None:
    tray = SITE.node("r01-t01")
    crossed = (replace(tray.nics[0], rail=1), replace(tray.nics[1], rail=0), *tray.nics[2:])
    site = replace(SITE, nodes=(replace(tray, nics=crossed), *SITE.nodes[1:]))
    answer = placed(Request(8), site)
    assert [seat.nic for seat in answer.seats[:2]] == ["mlx5_1", "mlx5_0"]
    assert [seat.rail for seat in answer.seats] == [0, 1, 2, 3] * 2


def test_a_node_without_a_rail_serves_only_jobs_that_do_not_mind() -> None:
    tray = SITE.node("r01-t01")
    site = replace(SITE, nodes=(replace(tray, nics=tray.nics[:3]), *SITE.nodes[1:]))
    assert placed(Request(72), site).segments[0].nodes[0] == "r02-t01"
    seats = placed(Request(72, rails="any", exclude_racks=frozenset({"r02"})), site).seats
    assert seats[3].nic == "mlx5_2"


def test_a_gpu_without_nvlinks_is_not_used() -> None:
    tray = SITE.node("r01-t01")
    dead = replace(tray, gpus=(*tray.gpus[:3], replace(tray.gpus[3], nvlinks=0)))
    site = replace(SITE, nodes=(dead, *SITE.nodes[1:]))
    assert "r01-t01" not in placed(Request(68), site).nodes()


def test_servers_are_their_own_domain() -> None:
    site = simulate(racks=0, hgx=3)
    answer = placed(Request(16, spares=1), site)
    assert [segment.nodes for segment in answer.segments] == [("hgx-01",), ("hgx-02",)]
    assert answer.spares == ("hgx-03",)
    assert rejected(Request(16, segment_gpus=16), site).constraint == "domain-size"
    assert len(placed(Request(16, segment_gpus=16, segment_required=False), site).segments) == 2


def test_a_gang_stays_on_one_kind_of_node() -> None:
    site = simulate(racks=1, trays=2, hgx=2)
    assert {seat.node[:3] for seat in placed(Request(8, gpu_kind="H200"), site).seats} == {"hgx"}
    assert rejected(Request(24), site).constraint == "site-size"
    assert rejected(Request(8, gpu_kind="A100"), site).constraint == "gpu-kind"


def test_a_domain_over_two_racks_is_one_domain() -> None:
    site = simulate(racks=2, trays=9)
    shared = DomainKey("both", 1)
    site = replace(
        site,
        racks=tuple(replace(rack, domain=shared) for rack in site.racks),
        nodes=tuple(replace(node, domain=shared) for node in site.nodes),
    )
    answer = placed(Request(72, segment_gpus=72), site)
    assert [segment.rack for segment in answer.segments] == ["r01+r02"]
    down = site.with_health(nvlink={"r02": Health.DOWN})
    assert rejected(Request(72, segment_gpus=72), down).constraint == "nvlink"


def test_segments_are_split_only_when_unavoidable() -> None:
    wish = Request(64, segment_gpus=32, segment_required=False)
    assert len(placed(wish).segments) == 2
    tight = busy(*trays(1, 1, 12), *trays(2, 1, 8))  # 6 and 10 free
    answer = placed(wish, occupancy=tight)
    assert [(segment.rack, len(segment.nodes)) for segment in answer.segments] == [("r01", 6), ("r02", 2), ("r02", 8)]
    assert rejected(replace(wish, segment_required=True), occupancy=tight).constraint == "busy"


def test_weak_nvlink_is_used_last() -> None:
    site = SITE.with_health(nvlink={"r01": Health.UNKNOWN})
    assert placed(Request(8), site).segments[0].rack == "r02"
    assert placed(Request(8, exclude_racks=frozenset({"r02"})), site).segments[0].rack == "r01"


def test_a_segment_larger_than_any_domain() -> None:
    answer = rejected(Request(68, segment_gpus=68), simulate(racks=2, trays=16))
    assert answer.constraint == "domain-size"
    assert "17 nodes" in answer.summary and "has 16" in answer.summary
    assert "`segment: {gpus: 64}` with `gpus: 64` fits now" in answer.fix
    assert {verdict.binding for verdict in answer.racks} == {"domain-size"}
    assert {(verdict.free_nodes, verdict.needed) for verdict in answer.racks} == {(16, 17)}


def test_unhealthy_nodes_reduce_a_domain() -> None:
    site = simulate(racks=1).with_health(nodes={"r01-t03": Health.DOWN, "r01-t04": Health.UNKNOWN})
    answer = rejected(Request(68, segment_gpus=68), site)
    assert answer.constraint == "unhealthy"
    assert "r01-t03" in answer.fix and "`gpus: 64` fits now" in answer.fix


def test_cordoned_nodes_reduce_a_domain() -> None:
    answer = rejected(Request(72), simulate(racks=1).with_cordon({"r01-t05": "fan"}))
    assert answer.constraint == "cordoned"
    assert "return r01-t05 to service (cordoned: fan)" in answer.fix


def test_an_unknown_rail() -> None:
    answer = rejected(Request(8, rail=7))
    assert (answer.constraint, answer.fix) == ("rail", "rails: one of 0, 1, 2, 3")


def test_ten_times_the_site() -> None:
    answer = rejected(Request(1440))
    assert answer.constraint == "site-size"
    assert "360 nodes" in answer.summary and "36 nodes" in answer.summary
    assert "`gpus: 144`" in answer.fix


def test_gpus_that_do_not_divide() -> None:
    answer = rejected(Request(6))
    assert (answer.constraint, answer.fix) == ("node-size", "gpus: 4 or 8")
    assert len(placed(Request(3)).nodes()) == 1
    assert rejected(Request(20, segment_gpus=8)).constraint == "segment-size"
    assert rejected(Request(12, segment_gpus=6)).fix == "segment: {gpus: 4 or 12}"
    assert rejected(Request(8, gpus_per_node=5)).constraint == "node-size"


def test_everything_occupied() -> None:
    answer = rejected(Request(8), occupancy=busy(*trays(1, 1, 18), *trays(2, 1, 18)))
    assert answer.constraint == "busy"
    assert answer.fix == "busy, would fit when r01-t01, r01-t02 free (held by other-job)"
    assert {verdict.binding for verdict in answer.racks} == {"busy"}


def test_the_cheapest_nodes_to_wait_for_are_named() -> None:
    answer = rejected(Request(16, segment_gpus=16), occupancy=busy(*trays(1, 1, 16), *trays(2, 1, 15)))
    assert answer.constraint == "busy"
    assert "when r02-t01 frees" in answer.fix and "`gpus: 12` fits now" in answer.fix


def test_only_the_spares_prevent() -> None:
    answer = rejected(Request(72, segment_gpus=72, spares=1))
    assert (answer.constraint, answer.fix) == ("spares", "`spares: 0` fits now")


def test_nvlink_down() -> None:
    site = simulate(racks=1).with_health(nvlink={"r01": Health.DOWN})
    answer = rejected(Request(8), site)
    assert (answer.constraint, answer.racks[0].binding) == ("nvlink", "nvlink")
    assert "restore the NVLink of r01" in answer.fix


def test_excluded_by_the_request() -> None:
    answer = rejected(Request(144, exclude=frozenset({"r01-t01"})))
    assert answer.constraint == "excluded"
    assert "stop excluding r01-t01" in answer.fix


def test_more_racks_than_there_are() -> None:
    answer = rejected(Request(32, segment_gpus=8, spread=3))
    assert (answer.constraint, answer.fix) == ("spread", "`spread: {racks: 2}` fits now")


@pytest.mark.parametrize("wrong", [{"gpus": 0}, {"gpus": 4, "spares": -1}, {"gpus": 4, "spread": 0}])
def test_counts_that_mean_nothing(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="too small"):
        Request(**wrong)  # type: ignore[arg-type]


def test_a_placement_survives_json() -> None:
    import json

    answer = placed(Request(32, segment_gpus=8, spread=2, spares=1))
    assert decode(json.loads(json.dumps(encode(answer)))) == answer


def test_explanations() -> None:
    lines = explain(placed(Request(16, segment_gpus=8, spares=1)))
    assert lines[0] == "placed: 16 ranks on 4 nodes in 2 segments"
    assert lines[1] == "  segment 0: ranks 0-7 in r01 on r01-t01..r01-t02"
    assert "  spares kept: r01-t05" in lines
    assert "    r01: chosen: takes 4 of 18 free nodes" in lines
    assert explain(rejected(Request(6)))[0].startswith("no seat (node-size): 6 GPUs do not divide over GB300 nodes")


def test_occupancy_counts_jobs_in_and_out() -> None:
    answer = placed(Request(2))
    occupancy = EMPTY.with_job("a", answer)
    assert occupancy.busy("r01-t01") == {0, 1}
    assert occupancy.free(SITE.node("r01-t01")) == (2, 3)
    assert occupancy.owners["r01-t01"] == ("a",)
    assert occupancy.without(answer).used == {}


def test_more_pins_than_nodes_is_no_seat_also_where_the_gang_is_spread() -> None:
    pins = frozenset({"r01-t01", "r02-t01"})
    for gpus in (1, 3, 4):
        assert isinstance(place(Request(gpus, spread="spread", pin=pins), simulate(4, 4), Occupancy()), Rejection)


@pytest.mark.parametrize(("gpus", "segment"), [(256, 128), (512, 128), (384, 128), (448, 112), (480, 120)])
def test_a_preferred_segment_larger_than_any_domain_is_cut_as_seldom_as_can_be(gpus: int, segment: int) -> None:
    placed = place(Request(gpus, segment_gpus=segment, segment_required=False), simulate(8), Occupancy())
    assert isinstance(placed, Placement)
    assert placed.cost[0].value == gpus // segment  # each in two racks
