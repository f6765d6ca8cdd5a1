"""The cluster as placement sees it, and gangs as its queue does. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.held import Held
from rackyard.controller.kube.objects import GangPlan, Pod
from rackyard.controller.kube.world import gpus_in
from rackyard.placement import Columns, Decision, Occupancy, Placement, Yard
from rackyard.placement.cost import explained
from rackyard.placement.engine import keep_apart, named
from rackyard.placement.queue import Gang as Waiting


@dataclass(frozen=True, slots=True)
class Yards:
    """The cluster as placement sees it."""

    columns: Columns
    held: Held
    """All that is in use, by gangs and by others."""
    planned: Mapping[str, tuple[Gang, GangPlan]]
    """Gangs that have a plan, by key."""
    capability: Mapping[str, int] = field(default_factory=dict)
    """GPUs that queues of Volcano may have at most, where they have a limit."""
    returning: Mapping[str, GangPlan] = field(default_factory=dict)
    """Plans that ended through no fault of the gang's, whose seats are kept for it for a while, by key."""
    spared: Collection[str] = frozenset()
    """Parties that can't be made to give way, by name (`party_of`)."""

    @property
    def occupancy(self) -> Occupancy:
        """GPUs in use."""
        return self.held.occupancy

    def without(self, gang: str) -> "Yards":
        """As if nothing was kept for the gang."""
        return replace(self, held=self.held.without(gang))

    def yard(self) -> Yard:
        """What is free."""
        return Yard.on(self.columns, self.occupancy)


@dataclass(frozen=True, slots=True)
class Start:
    """Seats for a gang, to be had at once, or when the victims are gone."""

    gang: Gang
    seats: Placement
    victims: tuple[str, ...] = ()
    """Keys of gangs that give way."""
    pods: tuple[Pod, ...] = ()
    """Pods that have to go: those of the victims, and others of lower priority."""


def order(gang: Gang) -> tuple[int, str, str]:
    """The higher priority comes first, and among equals the older gang."""
    return (-gang.priority, gang.since, gang.key)


def asked(gang: Gang, yards: Yards) -> Waiting:
    """The gang as placement's queue knows it."""
    deadline = gang.pods[0].spec.active_deadline_seconds
    return Waiting(
        name=gang.key,
        request=keep_apart(gang.wish, yards.columns.site, yards.occupancy),
        priority=gang.priority,
        submitted=seconds(gang.since),
        estimate=None if deadline is None else float(deadline),
    )


def seats_of(decision: Decision, gang: Gang, yards: Yards) -> Placement:
    """A decision with names and costs."""
    return replace(named(decision, yards.columns, gang.request.rails), cost=explained(decision.cost))


def decision_of(plan: GangPlan, columns: Columns) -> Decision | None:
    """A plan as numbers; None where the site has not all of its nodes."""
    names = [member.node for member in plan.spec.members]
    if not all(name in columns.index for name in (*names, *plan.spec.spares)):
        return None
    segments = [member.segment for member in plan.spec.members]
    runs = tuple(segments.count(segment) for segment in dict.fromkeys(segments))
    spares = np.array([columns.index[name] for name in plan.spec.spares], np.int32)
    masks = [sum(1 << gpu for gpu in gpus_in(member.seats)) for member in plan.spec.members]
    nodes = np.array([columns.index[name] for name in names], np.int32)
    return Decision(nodes, np.array(masks, np.uint32), runs, spares, (), columns.all[spares])


def seconds(time: str) -> float:
    """Seconds since the epoch of an RFC 3339 time; 0 for none."""
    return datetime.fromisoformat(time).timestamp() if time else 0.0
