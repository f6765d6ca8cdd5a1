"""Where a gang goes: `place(request, site, occupancy)`, pure and deterministic."""

from collections.abc import Iterable, Sequence

from rackyard.fabric import Node, Site
from rackyard.placement.census import Census, View, census, nic_for, windows
from rackyard.placement.cost import cost_terms
from rackyard.placement.model import Occupancy, Placement, Rejection, Request, Seat, Segment
from rackyard.placement.reject import mismatch, reject
from rackyard.placement.shape import Misfit, NodeClass, node_classes, shape_of
from rackyard.placement.solve import Piece, solve
from rackyard.placement.verdicts import verdicts


def place(request: Request, site: Site, occupancy: Occupancy) -> Placement | Rejection:
    """Seats for the gang, or why there are none and the smallest change that would give it some.

    A gang sits on nodes of one class; the class with most GPUs is tried first. Nothing is random and nothing is
    remembered: the same three arguments give the same answer.
    """
    classes = [group for group in node_classes(site) if request.gpu_kind in (None, group.gpu)]
    unknown = mismatch(request, site, classes)
    if unknown is not None:
        return unknown
    misfits: list[Misfit] = []
    tried: list[Census] = []
    for group in classes:
        shape = shape_of(request, group)
        if isinstance(shape, Misfit):
            misfits.append(shape)
            continue
        for window in windows(request, group, shape):
            looked = census(request, site, occupancy, group, shape, window)
            pieces = solve(looked, request)
            if pieces is not None:
                return _placement(looked, pieces, request, site)
            tried.append(looked)
    return reject(request, site, occupancy, tried, misfits)


def seats_on(
    node: Node, gpus: Sequence[int], first_rank: int, segment: int, group: NodeClass, rails: str
) -> tuple[Seat, ...]:
    """The seats of consecutive ranks on one node; rail -1 and no NIC where the node has none."""
    by_index = {gpu.index: gpu for gpu in node.gpus}
    seats = []
    for local, index in enumerate(gpus):
        nic = nic_for(by_index[index], node, group, rails)
        name, rail = ("", -1) if nic is None else (nic.name, nic.rail)
        seats.append(Seat(first_rank + local, node.name, local, index, name, rail, segment))
    return tuple(seats)


def _placement(looked: Census, pieces: list[Piece], request: Request, site: Site) -> Placement:
    queues = {piece.pool: looked.pools[piece.pool].usable() for piece in pieces}
    order = {node.name: number for number, node in enumerate(site.nodes)}
    wanted: dict[int, int] = {}
    for piece in pieces:
        wanted[piece.pool] = wanted.get(piece.pool, 0) + piece.nodes
    taken = {pool: _in_order(queues[pool][:count], order) for pool, count in wanted.items()}
    segments: list[Segment] = []
    seats: list[Seat] = []
    for piece in pieces:
        views, taken[piece.pool] = taken[piece.pool][: piece.nodes], taken[piece.pool][piece.nodes :]
        names = tuple(view.node.name for view in views)
        segments.append(Segment(len(segments), views[0].node.domain, looked.pools[piece.pool].rack, names))
        for view in views:
            seats += seats_on(view.node, view.gpus, len(seats), segments[-1].index, looked.group, request.rails)
    spares = [view.node.name for pool, count in wanted.items() for view in queues[pool][count : count + request.spares]]
    return Placement(
        seats=tuple(seats),
        segments=tuple(segments),
        spares=tuple(spares),
        cost=cost_terms(looked, wanted, segments),
        racks=verdicts(looked, request, site, wanted),
    )


def _in_order(views: Iterable[View], order: dict[str, int]) -> list[View]:
    """Site order, so that neighbours in rank are neighbours in the rack."""
    return sorted(views, key=lambda view: order[view.node.name])
