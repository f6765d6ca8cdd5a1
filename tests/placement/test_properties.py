"""What holds for every request on every site."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from rackyard.fabric import Health, Site, simulate
from rackyard.placement import (
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
from rackyard.placement.tries import fits
from rackyard.placement.yard import Yard

BASES = [simulate(2, 18), simulate(3, 5), simulate(2, 4, 5), simulate(1, 16), simulate(0, hgx=6)]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Site, Occupancy]:
    site = draw(st.sampled_from(BASES))
    names = [node.name for node in site.nodes]
    some = st.sets(st.sampled_from(names), max_size=len(names) // 2)
    site = site.with_health(
        nodes=dict.fromkeys(draw(some), draw(st.sampled_from(Health))),
        nvlink={rack.name: draw(st.sampled_from([*Health, Health.HEALTHY, Health.HEALTHY])) for rack in site.racks},
    ).with_cordon(dict.fromkeys(draw(some), "drawn"))
    used = {name: frozenset(draw(st.sets(st.integers(0, 3), max_size=4))) for name in draw(some)}
    return site, Occupancy(used)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    return Request(
        gpus=draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 72, 144])),
        segment_gpus=draw(st.sampled_from([None, None, 2, 4, 8, 12, 16, 32, 72])),
        segment_required=draw(st.booleans()),
        spread=draw(st.sampled_from(["pack", "pack", "spread", 1, 2, 3])),
        rails=draw(st.sampled_from(["aligned", "any"])),
        rail=draw(st.sampled_from([None, None, 0, 3, 9])),
        spares=draw(st.integers(0, 2)),
        exclude=frozenset(draw(st.sets(st.sampled_from(["r01-t01", "r02-t03", "hgx-02"])))),
        exclude_racks=frozenset(draw(st.sets(st.sampled_from(["r03", "h01"]), max_size=1))),
        gpu_kind=draw(st.sampled_from([None, None, None, "GB300", "H200"])),
        gpus_per_node=draw(st.sampled_from([None, None, None, 1, 2, 4])),
    )


def check(placement: Placement, request: Request, site: Site, occupancy: Occupancy) -> None:
    """Every constraint, read from the request and not from the engine."""
    assert [seat.rank for seat in placement.seats] == list(range(request.gpus))
    assert len({(seat.node, seat.gpu) for seat in placement.seats}) == request.gpus
    per_node = Counter(seat.node for seat in placement.seats)
    assert len(set(per_node.values())) == 1
    by_index = {segment.index: segment for segment in placement.segments}
    assert len(by_index) == len(placement.segments)
    assert sorted(name for segment in placement.segments for name in segment.nodes) == sorted(per_node)
    assert len({(site.node(name).gpus[0].kind, len(site.node(name).gpus)) for name in per_node}) == 1
    down = {rack.name for rack in site.racks if rack.nvlink is Health.DOWN}
    for seat in placement.seats:
        node = site.node(seat.node)
        assert node.health is Health.HEALTHY and not node.cordoned
        assert node.name not in request.exclude and node.rack not in request.exclude_racks
        assert node.rack not in down
        assert seat.gpu in occupancy.free(node)
        assert request.gpu_kind in (None, node.gpus[0].kind)
        nic = next(nic for nic in node.nics if nic.name == seat.nic)
        assert nic.rail == seat.rail
        segment = by_index[seat.segment]
        assert node.name in segment.nodes
        assert node.domain == segment.domain
        if request.rails == "aligned":
            assert seat.rail == seat.gpu
    if request.rails == "aligned":
        assert len({(seat.local_rank, seat.rail) for seat in placement.seats}) == len(
            {seat.local_rank for seat in placement.seats}
        )
    for segment in placement.segments:
        ranks = [seat.rank for seat in placement.seats if seat.segment == segment.index]
        assert ranks == list(range(ranks[0], ranks[0] + len(ranks)))
    for name in placement.spares:
        assert name not in per_node


def check_segments(placement: Placement, request: Request, site: Site) -> None:
    """Ranks of one segment as asked for share a domain, and racks are used evenly."""
    if request.segment_gpus and request.segment_required:
        size = min(request.segment_gpus, request.gpus)
        for first in range(0, request.gpus, size):
            assert len({site.node(seat.node).domain for seat in placement.seats[first : first + size]}) == 1
    if isinstance(request.spread, int):
        assert len({site.node(name).rack for name in placement.nodes()}) == request.spread


@settings(max_examples=150, deadline=None)
@given(worlds(), requests())
def test_a_placement_breaks_no_constraint(world: tuple[Site, Occupancy], request: Request) -> None:
    site, occupancy = world
    answer = place(request, site, occupancy)
    assert answer == place(request, site, occupancy)
    assert explain(answer)
    if isinstance(answer, Placement):
        check(answer, request, site, occupancy)
        check_segments(answer, request, site)
        assert decode(encode(answer)) == answer
        spare_domains = Counter(site.node(name).domain for name in answer.spares)
        if request.spares and not any(node.kind == "hgx" for node in site.nodes):
            assert spare_domains == dict.fromkeys({segment.domain for segment in answer.segments}, request.spares)
    else:
        assert answer.constraint and answer.summary and answer.fix
        assert {verdict.chosen for verdict in answer.racks} <= {False}
        assert not fits(request, Yard.open(site, occupancy)) or answer.constraint in ("rail", "gpu-kind", "exclude")


@settings(max_examples=50, deadline=None)
@given(worlds(), st.integers(1, 40))
def test_whatever_has_enough_free_nodes_in_sound_domains_is_placed(world: tuple[Site, Occupancy], nodes: int) -> None:
    site, occupancy = world
    down = {rack.name for rack in site.racks if rack.nvlink is Health.DOWN}
    free = Counter(
        (node.gpus[0].kind, len(node.gpus))
        for node in site.nodes
        if node.health is Health.HEALTHY
        and not node.cordoned
        and node.rack not in down
        and len(occupancy.free(node)) == len(node.gpus)
    )
    for (kind, size), count in free.items():
        answer = place(Request(nodes * size, gpu_kind=kind), site, occupancy)
        assert isinstance(answer, Placement) == (nodes <= count)


@settings(max_examples=120, deadline=None)
@given(worlds(), requests(), st.data())
def test_reseating_moves_only_what_it_must(
    world: tuple[Site, Occupancy], request: Request, data: st.DataObject
) -> None:
    site, occupancy = world
    old = place(request, site, occupancy)
    if isinstance(old, Rejection):
        return
    lost = data.draw(st.sets(st.sampled_from(old.nodes()), max_size=3))
    racks = data.draw(st.sets(st.sampled_from([rack.name for rack in site.racks]), max_size=1))
    dead = {rack.domain for rack in site.racks if rack.name in racks} | {
        node.domain for node in site.nodes if node.rack in racks
    }
    gone = lost | {node.name for node in site.nodes if node.domain in dead}
    new = reseat(old, frozenset(lost), frozenset(racks), request, site, occupancy)
    assert new == reseat(old, frozenset(lost), frozenset(racks), request, site, occupancy)
    if isinstance(new, Rejection):
        assert new.constraint == "no-spare"
        assert explain(new)
        return
    assert gone.isdisjoint(new.nodes()) and gone.isdisjoint(new.spares)
    check(new, request, site, occupancy)
    if request.segment_required and request.segment_gpus:
        size = min(request.segment_gpus, request.gpus)
        for first in range(0, request.gpus, size):
            assert len({site.node(seat.node).domain for seat in new.seats[first : first + size]}) == 1
    moved = set(moved_ranks(old, new))
    for segment in old.segments:
        ranks = {seat.rank for seat in old.seats if seat.segment == segment.index}
        if gone.isdisjoint(segment.nodes):
            assert moved.isdisjoint(ranks)
            assert segment in new.segments
    assert moved >= {seat.rank for seat in old.seats if seat.node in gone}
