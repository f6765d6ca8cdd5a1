"""Where a gang goes, and why: `place(request, site, occupancy)`, pure and deterministic."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from rackyard.fabric import Health, Nic, Node, Site
from rackyard.placement.census import Census, neighbour
from rackyard.placement.columns import Columns
from rackyard.placement.cost import explained
from rackyard.placement.decide import Found, found, looks, misfits
from rackyard.placement.model import Occupancy, Placement, Rejection, Request, Seat, Segment
from rackyard.placement.reject import reject
from rackyard.placement.shape import NodeClass
from rackyard.placement.solve import solve
from rackyard.placement.unknown import mismatch
from rackyard.placement.verdicts import verdicts
from rackyard.placement.yard import Decision, Yard


def place(request: Request, site: Site, occupancy: Occupancy) -> Placement | Rejection:
    """Seats for the gang, or why there are none and the smallest change that would give it some.

    A gang sits on nodes of one class; the class with most GPUs is tried first. Nothing is random and nothing is
    remembered: the same three arguments give the same answer.
    """
    return place_on(request, Yard.open(site, occupancy), occupancy)


def place_on(request: Request, yard: Yard, occupancy: Occupancy) -> Placement | Rejection:
    """The same on a yard that stands already. `occupancy` is asked only for whose jobs are where."""
    request = keep_apart(request, yard.columns.site, occupancy)
    unknown = mismatch(request, yard)
    if unknown is not None:
        return unknown
    tried: list[Census] = []
    for looked in looks(request, yard):
        solution = solve(looked, request)
        if solution is not None:
            return placement(found(looked, solution, request, yard), request)
        tried.append(looked)
    return reject(request, yard, occupancy, tried, misfits(request, yard))


def keep_apart(request: Request, site: Site, occupancy: Occupancy) -> Request:
    """The request with `apart` put as racks to keep out of."""
    if not request.apart:
        return request
    racks = {
        site.node(node).rack
        for node, jobs in occupancy.owners.items()
        if site.has_node(node)
        and not request.apart.isdisjoint((*jobs, *(occupancy.names.get(job, job) for job in jobs)))
    }
    return replace(request, apart=frozenset(), exclude_racks=request.exclude_racks | racks)


def placement(chosen: Found, request: Request) -> Placement:
    """A decision with names, and with the reasons."""
    looked, decision = chosen.looked, chosen.decision
    pools, counts = np.unique(chosen.solution.where, return_counts=True)
    taken = dict(zip(pools.tolist(), counts.tolist(), strict=True))
    seated = named(decision, looked.columns, request.rails)
    return replace(seated, cost=explained(decision.cost), racks=verdicts(looked, request, taken))


def named(decision: Decision, columns: Columns, rails: str) -> Placement:
    """A decision with names, without cost and reasons."""
    group = columns.classes[columns.kind[decision.nodes[0]]]
    segments: list[Segment] = []
    seats: list[Seat] = []
    first = 0
    for length in decision.runs:
        mine = decision.nodes[first : first + length].tolist()
        rack = columns.rack_names[columns.pool[mine[0]]]
        names = tuple(columns.names[node] for node in mine)
        segments.append(Segment(len(segments), columns.nodes[mine[0]].domain, rack, names))
        for node, mask in zip(mine, decision.gpus[first : first + length].tolist(), strict=True):
            seats += seats_on(columns.nodes[node], indices(mask), (len(seats), len(segments) - 1), group, rails)
        first += length
    spares = tuple(columns.names[node] for node in decision.spares.tolist())
    return Placement(tuple(seats), tuple(segments), spares, (), ())


def decision_of(placement: Placement, columns: Columns) -> Decision:
    """A placement on that site as numbers, without its cost. KeyError for a node that the site does not have."""
    masks: dict[int, int] = {}
    for seat in placement.seats:
        node = columns.index[seat.node]
        masks[node] = masks.get(node, 0) | 1 << seat.gpu
    spares = np.array([columns.index[name] for name in placement.spares], np.int32)
    return Decision(
        nodes=np.array(list(masks), np.int32),
        gpus=np.array(list(masks.values()), np.uint32),
        runs=tuple(len(segment.nodes) for segment in placement.segments),
        spares=spares,
        cost=(),
        held=columns.all[spares],
    )


def seats_on(node: Node, gpus: Sequence[int], start: tuple[int, int], group: NodeClass, rails: str) -> list[Seat]:
    """The seats of consecutive ranks on one node; `start` is the first rank and the segment. Rail -1 and no NIC where
    the node has none.
    """
    rank, segment = start
    healthy = (nic for nic in reversed(node.nics) if nic.health is Health.HEALTHY)
    by_rail: dict[int | None, Nic] = {nic.rail: nic for nic in healthy}  # the first of each
    seats = []
    for local, index in enumerate(gpus):
        nic = by_rail.get(group.rail_of(index)) or (neighbour(node, index) if rails == "any" else None)
        name, rail = ("", -1) if nic is None else (nic.name, nic.rail)
        seats.append(Seat(rank + local, node.name, local, index, name, rail, segment))
    return seats


@cache
def indices(mask: int) -> tuple[int, ...]:
    """The bits of a mask, ascending."""
    return tuple(index for index in range(mask.bit_length()) if mask >> index & 1)
