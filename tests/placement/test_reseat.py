"""Reseating by example."""

from dataclasses import replace

import pytest

from rackyard.fabric import Health, Site, simulate
from rackyard.placement import (
    Group,
    Occupancy,
    Placement,
    Rejection,
    Request,
    decode,
    encode,
    explain,
    moved_ranks,
    place,
    reseat,
)

SITE = simulate(racks=2, trays=6)
NONE: frozenset[str] = frozenset()


def start(request: Request, site: Site = SITE, occupancy: Occupancy | None = None) -> Placement:
    answer = place(request, site, occupancy or Occupancy())
    assert isinstance(answer, Placement)
    return answer


def busy(*names: str) -> Occupancy:
    return Occupancy({name: frozenset(range(4)) for name in names})


def again(
    old: Placement,
    request: Request,
    lost: set[str] | None = None,
    racks: set[str] | None = None,
    occupancy: Occupancy | None = None,
    site: Site = SITE,
) -> Placement:
    answer = reseat(old, frozenset(lost or ()), frozenset(racks or ()), request, site, occupancy or Occupancy())
    assert isinstance(answer, Placement), answer
    return answer


def test_a_spare_takes_the_lost_trays_place() -> None:
    request = Request(16, segment_gpus=8, spares=1)
    old = start(request)
    new = again(old, request, {"r01-t02"})
    assert [segment.nodes for segment in new.segments] == [("r01-t01", "r01-t05"), ("r01-t03", "r01-t04")]
    assert moved_ranks(old, new) == (4, 5, 6, 7)
    assert new.spares == ("r01-t06",)
    assert [seat.rank for seat in new.seats] == list(range(16))


def test_a_lost_rack_moves_its_segments_and_no_other() -> None:
    request = Request(16, segment_gpus=8, spread=2)
    old = start(request)
    new = again(old, request, racks={"r01"})
    assert [segment.nodes for segment in new.segments] == [("r02-t03", "r02-t04"), ("r02-t01", "r02-t02")]
    assert moved_ranks(old, new) == tuple(range(8))


def test_a_segment_moves_whole_when_its_domain_has_no_node_left() -> None:
    request = Request(16, segment_gpus=8)
    others = busy("r01-t05", "r01-t06")
    old = start(request, occupancy=busy("r02-t01"))
    assert old.segments[0].rack == "r02"
    old = start(request, occupancy=Occupancy({**others.used, **busy("r02-t01", "r02-t02", "r02-t03").used}))
    assert {segment.rack for segment in old.segments} == {"r01"}
    new = again(old, request, {"r01-t03"}, occupancy=others)
    assert [segment.nodes for segment in new.segments] == [("r01-t01", "r01-t02"), ("r02-t01", "r02-t02")]
    assert moved_ranks(old, new) == tuple(range(8, 16))


def test_a_gang_without_segments_may_come_apart() -> None:
    request = Request(24)
    old = start(request)
    new = again(old, request, {"r01-t03"}, occupancy=busy("r02-t01", "r02-t03"))
    assert moved_ranks(old, new) == (8, 9, 10, 11)
    assert [(segment.index, segment.nodes) for segment in new.segments] == [
        (0, ("r01-t01", "r01-t02")),
        (1, ("r02-t02",)),
        (2, ("r01-t04", "r01-t05", "r01-t06")),
    ]
    assert {seat.segment for seat in new.seats if seat.node == "r02-t02"} == {1}


def test_no_node_left_anywhere() -> None:
    request = Request(24, segment_gpus=24)
    old = start(request)
    answer = reseat(old, frozenset({"r01-t03"}), NONE, request, SITE, busy("r02-t01"))
    assert isinstance(answer, Rejection)
    assert answer.constraint == "no-spare"
    assert "r01-t03" in answer.summary


def test_nothing_lost_nothing_moved() -> None:
    request = Request(16, spares=1)
    old = start(request)
    assert again(old, request, {"r02-t01"}) == old
    assert again(old, request, {old.spares[0]}).seats == old.seats


def test_the_jobs_own_seats_in_the_occupancy_do_not_matter() -> None:
    request = Request(16, segment_gpus=8)
    old = start(request)
    mine = Occupancy().with_job("me", old)
    assert again(old, request, {"r01-t01"}, occupancy=mine) == again(old, request, {"r01-t01"})


def test_part_of_a_node_moves_to_free_gpus() -> None:
    request = Request(2)
    old = start(request)
    new = again(old, request, {"r01-t01"}, occupancy=Occupancy({"r01-t02": frozenset({0, 1})}))
    assert [(seat.node, seat.gpu, seat.rail) for seat in new.seats] == [("r01-t02", 2, 2), ("r01-t02", 3, 3)]


def test_a_server_is_replaced_by_another() -> None:
    site = simulate(racks=0, hgx=3)
    request = Request(16, spares=1)
    old = start(request, site)
    new = again(old, request, {"hgx-01"}, site=site)
    assert new.nodes() == ("hgx-03", "hgx-02")
    assert [segment.domain for segment in new.segments] == [site.node(name).domain for name in new.nodes()]


def test_unhealthy_nodes_are_no_replacement() -> None:
    request = Request(16, segment_gpus=8, spares=1)
    old = start(request)
    site = SITE.with_health(nodes={"r01-t05": Health.DOWN})
    assert "r01-t06" in again(old, request, {"r01-t02"}, site=site).nodes()


def test_a_request_of_another_gang_is_refused() -> None:
    old = start(Request(16))
    with pytest.raises(ValueError, match="does not belong"):
        reseat(old, frozenset({"r01-t01"}), NONE, Request(8), SITE, Occupancy())


def test_each_way_to_mend_says_what_it_would_move() -> None:
    site = simulate(3)
    request = Request(64, segment_gpus=64, spares=1)
    old = place(request, site, Occupancy())
    assert isinstance(old, Placement)
    new = reseat(old, frozenset({"r01-t03"}), frozenset(), request, site, Occupancy())
    assert isinstance(new, Placement)
    assert [(choice.way, choice.chosen, choice.ranks) for choice in new.choices] == [
        ("same-domain", True, 4),
        ("other-domain", False, 64),
        ("split", False, 0),
    ]
    assert new.cost[0].name == "ranks-moved" and new.cost[0].value == 4
    assert any("other-domain: not taken: 64 ranks move, to r02" in line for line in explain(new))
    assert decode(encode(new)) == new


def test_a_required_group_stays_in_its_block() -> None:
    site = simulate(4, racks_per_block=2)
    request = Request(128, segment_gpus=64, groups=(Group(128, "block", required=True),))
    old = place(request, site, Occupancy())
    assert isinstance(old, Placement)
    assert [segment.rack for segment in old.segments] == ["r01", "r02"]
    answer = reseat(old, frozenset(), frozenset({"r01"}), request, site, Occupancy())
    assert isinstance(answer, Rejection) and answer.constraint == "no-spare"
    wish = replace(request, groups=(Group(128, "block"),))
    answer = reseat(old, frozenset(), frozenset({"r01"}), wish, site, Occupancy())
    assert isinstance(answer, Placement)
    assert [segment.rack for segment in answer.segments] == ["r03", "r02"]


def test_copies_stay_apart_when_a_segment_moves() -> None:
    site = simulate(3)
    request = Request(64, segment_gpus=32, copies=2)
    old = place(request, site, Occupancy())
    assert isinstance(old, Placement)
    assert [segment.rack for segment in old.segments] == ["r01", "r02"]
    answer = reseat(old, frozenset(), frozenset({"r01"}), request, site, Occupancy())
    assert isinstance(answer, Placement)
    assert {segment.rack for segment in answer.segments} == {"r02", "r03"}


ALL = frozenset(range(4))


def test_a_gang_is_not_mended_onto_the_rack_of_a_job_it_keeps_apart_from() -> None:
    site = simulate(3, 4)
    held = Occupancy(dict.fromkeys(("r01-t01", "r02-t03", "r02-t04"), ALL), {"r01-t01": ("a",)})
    request = Request(8, segment_gpus=8, apart=frozenset({"a"}))
    old = place(request, site, held)
    assert isinstance(old, Placement) and {segment.rack for segment in old.segments} == {"r02"}
    new = reseat(old, frozenset({old.nodes()[0]}), frozenset(), request, site, held)
    assert isinstance(new, Placement) and {segment.rack for segment in new.segments} == {"r03"}


@pytest.mark.parametrize(("copies", "racks"), [(2, 2), (3, 5)])
def test_copies_stay_apart_or_the_gang_waits(copies: int, racks: int) -> None:
    site = simulate(racks, 6)
    request = Request(16, copies=copies)
    old = place(request, site, Occupancy())
    assert isinstance(old, Placement)
    full = {node.name: ALL for node in site.nodes if node.name not in old.nodes() and node.rack != "r02"}
    answer = reseat(old, frozenset({old.nodes()[0]}), frozenset(), request, site, Occupancy(full))
    assert isinstance(answer, Rejection) and "copies of its checkpoint" in answer.summary
    back = reseat(old, frozenset({old.nodes()[0]}), frozenset(), request, site, Occupancy())
    assert isinstance(back, Placement)
    counts = [sum(len(s.nodes) for s in back.segments if s.rack == rack) for rack in {s.rack for s in back.segments}]
    assert max(counts) <= 4 // copies
