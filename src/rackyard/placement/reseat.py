"""New seats after a fault, moving as few ranks as possible."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import numpy as np

from rackyard.fabric import DomainKey, Site
from rackyard.placement.census import pick
from rackyard.placement.cost import cost_of, explained, wish_of
from rackyard.placement.engine import indices, keep_apart, seats_on
from rackyard.placement.mend import Mending, open_mending
from rackyard.placement.model import (
    Choice,
    CostTerm,
    Occupancy,
    Placement,
    RackVerdict,
    Rejection,
    Request,
    Seat,
    Segment,
)
from rackyard.placement.rooms import rooms
from rackyard.placement.spread import grid
from rackyard.placement.verdicts import Pools, verdicts
from rackyard.placement.yard import Yard


def reseat(
    placement: Placement,
    lost: frozenset[str],
    lost_racks: frozenset[str],
    request: Request,
    site: Site,
    occupancy: Occupancy,
) -> Placement | Rejection:
    """Replace `lost` nodes and the whole NVLink domains that have a part in `lost_racks`.

    A segment takes healthy free nodes of its own domain, spares first; where there are not enough it moves as a whole
    to another domain; where that is impossible and a split is allowed, only the lost nodes move. Everything else stays
    and every rank keeps its number. Two wishes give way, for a running job is worth more: spares are there to be used,
    and `spread` is kept as far as it goes. `occupancy` may or may not contain the placement's own seats.
    """
    request = keep_apart(request, site, occupancy)
    dead = domains_down(site, lost_racks)
    gone = lost | {node.name for node in site.nodes if node.domain in dead}
    return reseat_on(placement, gone, request, Yard.open(site, occupancy.without(placement)), lost_racks)


def reseat_on(
    placement: Placement,
    gone: frozenset[str],
    request: Request,
    around: Yard,
    lost_racks: frozenset[str] = frozenset(),
) -> Placement | Rejection:
    """The same on a yard that stands already, without the placement on it; `gone` are all the nodes to replace."""
    if gone.isdisjoint(placement.nodes()):
        return replace(placement, spares=tuple(name for name in placement.spares if name not in gone))
    yard = open_mending(placement, gone, request, around)
    broken = [segment for segment in placement.segments if not gone.isdisjoint(segment.nodes)]
    nodes: dict[int, tuple[int, ...]] = {}
    choices: list[Choice] = []
    # the least hurt first: they are the likeliest to be mended in place, which moves fewest ranks
    for segment in sorted(broken, key=lambda hurt: len(gone.intersection(hurt.nodes))):
        new, ways = yard.mend(segment)
        choices += ways
        if new is None:
            return _stranded(segment, yard, request, lost_racks)
        nodes[segment.index] = new
    ordered = sorted(choices, key=lambda choice: choice.segment)
    return replace(_rebuilt(placement, nodes, yard), choices=tuple(ordered))


def domains_down(site: Site, racks: Iterable[str]) -> frozenset[DomainKey]:
    """The NVLink domains that have any part in those racks."""
    names = set(racks)
    found = {rack.domain for rack in site.racks if rack.name in names and rack.domain is not None}
    return frozenset(found | {node.domain for node in site.nodes if node.rack in names})


def moved_ranks(old: Placement, new: Placement) -> tuple[int, ...]:
    """The ranks that sit on another node or GPU than before, ascending; ranks that only one of them has count too."""
    before = {seat.rank: (seat.node, seat.gpu) for seat in old.seats}
    after = {seat.rank: (seat.node, seat.gpu) for seat in new.seats}
    return tuple(sorted(rank for rank in before.keys() | after.keys() if before.get(rank) != after.get(rank)))


def _rebuilt(placement: Placement, nodes: dict[int, tuple[int, ...]], yard: Mending) -> Placement:
    """The placement with new nodes for some segments, by index; a segment may have come apart into several."""
    segments: list[Segment] = []
    pieces: list[Segment] = []
    for segment in placement.segments:
        first, *others = _cut(segment, nodes[segment.index], yard) if segment.index in nodes else [segment]
        segments.append(first)
        pieces += others
    start = max(segment.index for segment in segments) + 1
    segments += [replace(piece, index=start + number) for number, piece in enumerate(pieces)]
    new_node = {
        old: node
        for segment in placement.segments
        if segment.index in nodes
        for old, node in zip(segment.nodes, nodes[segment.index], strict=True)
    }
    home = {name: segment.index for segment in segments for name in segment.nodes}
    held: dict[str, list[Seat]] = {}
    for seat in placement.seats:
        held.setdefault(seat.node, []).append(seat)
    seats: list[Seat] = []
    order: list[int] = []
    for old in placement.nodes():
        node = new_node.get(old, yard.node(old))
        name = yard.name(node)
        order.append(node)
        if name == old:
            seats += [msgspec.structs.replace(seat, segment=home[old]) for seat in held[old]]
        else:
            seats += _seats(node, held[old][0].rank, home[name], yard)
    return _priced(placement, tuple(seats), tuple(segments), order, yard)


def _seats(node: int, rank: int, segment: int, yard: Mending) -> list[Seat]:
    looked = yard.looked
    part = looked.columns.nodes[node]
    mask = looked.window or pick(part, int(looked.free[node - looked.first_node]), looked.shape.per_node)
    return seats_on(part, indices(mask), (rank, segment), looked.group, yard.request.rails)


def _priced(
    old: Placement, seats: tuple[Seat, ...], segments: tuple[Segment, ...], order: list[int], yard: Mending
) -> Placement:
    """The new placement with what it costs; the first figure is what the move itself does."""
    looked, request = yard.looked, yard.request
    where = np.array([yard.pool_of(node) for node in order], np.int32)
    room = rooms(looked, replace(request, pin=frozenset()), 0, 0)
    length = {group.within: min(group.gpus, request.gpus) // looked.shape.per_node for group in request.groups}
    groups = [(nodes, room.tier[scope]) for scope, nodes in length.items()]
    cost = cost_of(where, room, wish_of(looked.shape, groups, grid(request, looked.shape)))
    pools, counts = np.unique(where, return_counts=True)
    new = Placement(
        seats=seats,
        segments=segments,
        spares=yard.spares(order),
        cost=explained(cost),
        racks=verdicts(looked, request, dict(zip(pools.tolist(), counts.tolist(), strict=True))),
    )
    moved = CostTerm("ranks-moved", float(len(moved_ranks(old, new))), "ranks that sit elsewhere than before")
    return replace(new, cost=(moved, *new.cost))


def _cut(segment: Segment, nodes: Iterable[int], yard: Mending) -> list[Segment]:
    """One segment for each run of nodes in the same domain; they share the old index for now."""
    columns = yard.looked.columns
    cut: list[list[int]] = []
    for node in nodes:
        if cut and columns.nodes[cut[-1][-1]].domain == columns.nodes[node].domain:
            cut[-1].append(node)
        else:
            cut.append([node])
    return [
        Segment(
            segment.index,
            columns.nodes[run[0]].domain,
            columns.rack_names[columns.pool[run[0]]],
            tuple(columns.names[node] for node in run),
        )
        for run in cut
    ]


def _stranded(segment: Segment, yard: Mending, request: Request, down: frozenset[str]) -> Rejection:
    lost = [name for name in segment.nodes if name in yard.gone]
    pools, columns = Pools(yard.looked), yard.looked.columns
    racks = []
    for number, name in enumerate(pools.names):
        free = len(yard.free[number])
        needed = len(lost) if number == yard.pool_of(yard.node(segment.nodes[0])) else len(segment.nodes)
        out = pools.out(number)
        worst = max(out, key=lambda problem: out[problem])
        span = yard.looked.of_pool(number)
        inside = columns.names[span.start + yard.looked.first_node : span.stop + yard.looked.first_node]
        binding = "lost" if all(node in yard.gone for node in inside) else worst
        binding = binding if out[worst] or binding == "lost" else "busy"
        detail = f"{free} nodes free beside this job ({pools.offer(number)} without it); {needed} needed"
        racks.append(RackVerdict(name, False, binding, detail, free, needed))
    whole = len(segment.nodes)
    dark = segment.rack in down
    summary = (
        f"segment {segment.index} in {segment.rack} lost "
        + ("the rack's NVLink domain" if dark else f"{len(lost)} of {whole} nodes ({', '.join(lost[:4])}")
        + ("" if dark else " ...)" if len(lost) > 4 else ")")
        + "; its domain has too few healthy free nodes and no other domain has "
        + ("one" if whole == 1 else f"{whole}")
        + (" in a rack without the copies of its checkpoint" if request.copies > 1 else "")
    )
    back = f"{len(lost)} node{'s' if len(lost) > 1 else ''} of {segment.rack} (`rackyard nodes return NAME`)"
    if dark:
        back = f"the domain, once it is repaired (`rackyard racks return {segment.rack}`)"
    fix = f"return {back}, or free {whole} in another NVLink domain"
    if not dark and request.segment_gpus is not None and request.segment_required:
        fix += ", or allow a split with `required: false`"
    return Rejection("no-spare", summary, tuple(racks), fix)
