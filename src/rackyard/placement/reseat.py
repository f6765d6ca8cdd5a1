"""New seats after a fault, moving as few ranks as possible."""

from collections.abc import Iterable
from dataclasses import replace

from rackyard.fabric import Site
from rackyard.placement.census import View, domains_down
from rackyard.placement.cost import cost_terms
from rackyard.placement.engine import seats_on
from rackyard.placement.model import Occupancy, Placement, RackVerdict, Rejection, Request, Seat, Segment
from rackyard.placement.verdicts import counts, offer, verdicts
from rackyard.placement.yard import Yard, open_yard


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
    dead = domains_down(site, lost_racks)
    gone = lost | {node.name for node in site.nodes if node.domain in dead}
    if gone.isdisjoint(placement.nodes()):
        return replace(placement, spares=tuple(name for name in placement.spares if name not in gone))
    yard = open_yard(placement, gone, request, site, occupancy)
    broken = [segment for segment in placement.segments if not gone.isdisjoint(segment.nodes)]
    nodes: dict[int, tuple[View, ...]] = {}
    # the least hurt first: they are the likeliest to be mended in place, which moves fewest ranks
    for segment in sorted(broken, key=lambda hurt: len(gone.intersection(hurt.nodes))):
        new = yard.in_place(segment) or yard.elsewhere(segment) or yard.scattered(segment)
        if new is None:
            return _stranded(segment, yard, request, lost_racks)
        nodes[segment.index] = new
    return _rebuilt(placement, nodes, yard, request, site)


def moved_ranks(old: Placement, new: Placement) -> tuple[int, ...]:
    """The ranks that sit on another node or GPU than before, ascending; ranks that only one of them has count too."""
    before = {seat.rank: (seat.node, seat.gpu) for seat in old.seats}
    after = {seat.rank: (seat.node, seat.gpu) for seat in new.seats}
    return tuple(sorted(rank for rank in before.keys() | after.keys() if before.get(rank) != after.get(rank)))


def _rebuilt(
    placement: Placement, nodes: dict[int, tuple[View, ...]], yard: Yard, request: Request, site: Site
) -> Placement:
    """The placement with new nodes for some segments, by index; a segment may have come apart into several."""
    segments: list[Segment] = []
    pieces: list[Segment] = []
    for segment in placement.segments:
        first, *others = _cut(segment, nodes[segment.index], yard) if segment.index in nodes else [segment]
        segments.append(first)
        pieces += others
    start = max(segment.index for segment in segments) + 1
    segments += [replace(piece, index=start + number) for number, piece in enumerate(pieces)]
    old_nodes = placement.nodes()
    new_name = {
        old: view.node.name
        for segment in placement.segments
        if segment.index in nodes
        for old, view in zip(segment.nodes, nodes[segment.index], strict=True)
    }
    home = {name: segment.index for segment in segments for name in segment.nodes}
    held: dict[str, list[Seat]] = {}
    for seat in placement.seats:
        held.setdefault(seat.node, []).append(seat)
    seats: list[Seat] = []
    for old in old_nodes:
        name = new_name.get(old, old)
        if name == old:
            seats += [replace(seat, segment=home[old]) for seat in held[old]]
        else:
            view, rank = yard.view(name), held[old][0].rank
            seats += seats_on(view.node, view.gpus, rank, home[name], yard.looked.group, request.rails)
    taken = yard.taken(home)
    return Placement(
        seats=tuple(seats),
        segments=tuple(segments),
        spares=yard.spares(taken, request.spares),
        cost=cost_terms(yard.looked, taken, segments),
        racks=verdicts(yard.looked, request, site, taken),
    )


def _cut(segment: Segment, views: Iterable[View], yard: Yard) -> list[Segment]:
    """One segment for each run of nodes in the same domain; they share the old index for now."""
    runs: list[list[View]] = []
    for view in views:
        if runs and runs[-1][-1].node.domain == view.node.domain:
            runs[-1].append(view)
        else:
            runs.append([view])
    return [
        Segment(
            segment.index,
            run[0].node.domain,
            yard.looked.pools[yard.pool_of(run[0].node.name)].rack,
            tuple(view.node.name for view in run),
        )
        for run in runs
    ]


def _stranded(segment: Segment, yard: Yard, request: Request, down: frozenset[str]) -> Rejection:
    lost = [name for name in segment.nodes if name in yard.gone]
    racks = []
    for number, pool in enumerate(yard.looked.pools):
        free = len(yard.free[number])
        needed = len(lost) if number == yard.pool_of(segment.nodes[0]) else len(segment.nodes)
        out = counts(pool)
        worst = max(out, key=lambda problem: out[problem])
        binding = "lost" if all(view.node.name in yard.gone for view in pool.views) else worst
        binding = binding if out[worst] or binding == "lost" else "busy"
        detail = f"{free} nodes free beside this job ({offer(pool)} without it); {needed} needed"
        racks.append(RackVerdict(pool.rack, False, binding, detail, free, needed))
    whole = len(segment.nodes)
    dark = segment.rack in down
    summary = (
        f"segment {segment.index} in {segment.rack} lost "
        + ("the rack's NVLink domain" if dark else f"{len(lost)} of {whole} nodes ({', '.join(lost[:4])}")
        + ("" if dark else " ...)" if len(lost) > 4 else ")")
        + "; its domain has too few healthy free nodes and no other domain has "
        + ("one" if whole == 1 else f"{whole}")
    )
    back = f"{len(lost)} node{'s' if len(lost) > 1 else ''} of {segment.rack} (`rackyard nodes return NAME`)"
    if dark:
        back = f"the domain, once it is repaired (`rackyard racks return {segment.rack}`)"
    fix = f"return {back}, or free {whole} in another NVLink domain"
    if not dark and request.segment_gpus is not None and request.segment_required:
        fix += ", or allow a split with `required: false`"
    return Rejection("no-spare", summary, tuple(racks), fix)
