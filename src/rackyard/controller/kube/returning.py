"""Gangs that lost their places through no fault of their own, and come back. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.objects import GangPlan
from rackyard.controller.kube.world import placement_of
from rackyard.controller.kube.yards import Start, Yards, order
from rackyard.placement import Placement, Rejection, reseat_on
from rackyard.placement.engine import keep_apart


def come_back(waiting: Sequence[Gang], yards: Yards) -> tuple[tuple[Start, ...], Yards]:
    """Gangs that lost their places, one after the other: as many of their ranks as can be stay where they were (spares
    first, else the segment moves), on seats that were kept for them. For those that can't, nothing is kept any more in
    this round, as the second of the answers has it. Into other NVLink domains nobody passes a gang of higher priority.
    """
    starts: list[Start] = []
    first = max((gang.priority for gang in waiting if gang.key not in yards.returning), default=None)
    for gang in sorted(waiting, key=order):
        plan = yards.returning.get(gang.key)
        if plan is None:
            continue
        yards = yards.without(gang.key)
        seats = _reseated(plan, gang, yards)
        if isinstance(seats, Placement) and (first is None or first <= gang.priority or _stays(seats, plan, yards)):
            starts.append(Start(gang, seats))
            yards = replace(yards, held=yards.held.and_of(gang.key, seats, yards.columns.site))
    return tuple(starts), yards


def _stays(seats: Placement, plan: GangPlan, yards: Yards) -> bool:
    """Whether it stays in the NVLink domains that it had."""
    site = yards.columns.site
    had = {site.node(member.node).domain for member in plan.spec.members if site.has_node(member.node)}
    return all(site.node(name).domain in had for name in seats.nodes())


def _reseated(plan: GangPlan, gang: Gang, yards: Yards) -> Placement | Rejection | None:
    site, others = yards.columns.site, yards.occupancy
    old = placement_of(plan, site)
    if old is None or len(old.seats) != gang.request.gpus:
        return None
    taken = {seat.node for seat in old.seats if seat.gpu in others.busy(seat.node)}
    out = {name for name in (*old.nodes(), *old.spares) if site.node(name).cordoned} | gang.wish.exclude
    return reseat_on(old, frozenset(out | taken), keep_apart(gang.wish, site, others), yards.yard())
