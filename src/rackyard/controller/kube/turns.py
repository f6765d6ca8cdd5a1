"""Whose turn it is among the gangs that wait: `placement.queue` on what the cluster's objects say. Pure.

Priority is that of the pods' PriorityClass, age that of the first pod, an estimate `activeDeadlineSeconds`. A gang that
finds no seat may displace pods of lower priority, as the scheduler would, unless its `preemptionPolicy` is Never; of
Volcano's, only those of its own queue, as Volcano's `preempt` does. Reservations keep large gangs from starving.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.kinds import gang_name
from rackyard.controller.kube.objects import GangPlan, Pod
from rackyard.controller.kube.world import Held, gpus_in, held, placement_of
from rackyard.fabric import Site
from rackyard.placement import Columns, Decision, Occupancy, Placement, Rejection, Request, Yard, place_on, reseat
from rackyard.placement.cost import explained
from rackyard.placement.engine import keep_apart, named
from rackyard.placement.queue import Gang as Waiting
from rackyard.placement.queue import Policy, QueuePlan, QueueState, Reservation, Running
from rackyard.placement.queue import plan as queue_plan

RULES = Policy(preemptions=0)
"""Seats and reservations; whom to preempt is asked for one gang at a time, as who may be depends on the gang."""
PREEMPTING = Policy(exempt=0, worth=0)
"""As the cluster's scheduler does it: at once, whenever a lower priority is in the way."""
TOLD = 8
"""Gangs that are told in full why there is no seat, in one round: it takes 20 to 40 ms each."""
SEARCHES = 4
"""Gangs that victims are looked for, in one round."""


@dataclass(frozen=True, slots=True)
class Yards:
    """The cluster as placement sees it."""

    columns: Columns
    held: Held
    """All that is in use, by gangs and by others."""
    pods: tuple[Pod, ...]
    """All pods, and"""
    plans: tuple[GangPlan, ...]
    """all plans that hold seats: what `held` was made of."""
    planned: Mapping[str, tuple[Gang, GangPlan]]
    """Gangs that have a plan, by key."""
    capability: Mapping[str, int] = field(default_factory=dict)
    """GPUs that queues of Volcano may have at most, where they have a limit."""
    returning: Mapping[str, GangPlan] = field(default_factory=dict)
    """Plans that ended through no fault of the gang's, whose seats are kept for it for a while, by key."""

    @property
    def occupancy(self) -> Occupancy:
        """GPUs in use."""
        return self.held.occupancy

    def without(self, gang: str) -> Occupancy:
        """GPUs in use, as if the gang had no plan."""
        plans = [plan for plan in self.plans if plan.key != gang]
        return held(self.pods, plans, self.columns.site).occupancy

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


@dataclass(frozen=True, slots=True)
class Turns:
    """What a round decides."""

    starts: tuple[Start, ...] = ()
    held: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Why gangs wait: a word and a line, by key."""
    reservations: tuple[Reservation, ...] = ()
    """For the next round, on the same columns."""


def turns(waiting: Sequence[Gang], yards: Yards, before: tuple[Reservation, ...], now: float) -> Turns:
    """The turns at `now` (wall-clock seconds); `before` are the reservations of the round before."""
    out = {gang.key: ("NotInqueue", gang.kept_out) for gang in waiting if gang.kept_out}
    back = [start for gang in waiting if not gang.kept_out and (start := _returns(gang, yards)) is not None]
    if back:  # one round later, the others see what is left
        return Turns(tuple(back), out, before)
    gangs = {gang.key: gang for gang in waiting if not gang.kept_out}
    asked = {gang.key: _asked(gang, yards) for gang in gangs.values()}
    running = _running(yards, None)
    state = QueueState(tuple(asked.values()), tuple(each.run for each in running), reservations=before)
    made = queue_plan(now, state, yards.yard(), RULES)
    starts = [Start(gangs[each.gang], _seats(each.decision, gangs[each.gang], yards)) for each in made.starts]
    begun = {each.gang.key for each in starts}
    later = sorted((g for g in waiting if g.key not in begun), key=lambda gang: (-gang.priority, gang.since, gang.key))
    left = [gang for gang in later if not gang.kept_out]
    if not starts:  # what starts takes seats that victims would be looked for without
        found = _preemption([gang for gang in later if _preempts(gang)][:SEARCHES], yards, now)
        starts += [found] if found is not None else []
    told = {gang.key for gang in left[:TOLD]}
    held = {
        gang.key: _held(gang, made, yards if gang.key in told else None, now)
        for gang in left
        if gang.key not in {each.gang.key for each in starts}
    }
    out = {key: why for key, why in out.items() if key not in {each.gang.key for each in starts}}
    return Turns(tuple(starts), out | held, made.reservations)


@dataclass(frozen=True, slots=True)
class _Run:
    """Somebody on seats, and the pods that would have to go."""

    run: Running
    pods: tuple[Pod, ...]


def _asked(gang: Gang, yards: Yards) -> Waiting:
    deadline = gang.pods[0].spec.active_deadline_seconds
    return Waiting(
        name=gang.key,
        request=keep_apart(gang.wish, yards.columns.site, yards.occupancy),
        priority=gang.priority,
        submitted=_seconds(gang.since),
        estimate=None if deadline is None else float(deadline),
    )


def _running(yards: Yards, above: Gang | None) -> list[_Run]:
    """Gangs on their seats; with `above`, others' pods too, and of all only those that may give way to it."""
    found = []
    for key, (gang, plan) in sorted(yards.planned.items()):
        decision = _decision(plan, yards.columns)
        if decision is None or (above is not None and not _yields(gang.priority, gang.queue, above)):
            continue
        run = Running(replace(_asked(gang, yards), name=key), decision, _seconds(plan.metadata.creation_timestamp))
        found.append(_Run(run, gang.pods))
    return found if above is None else found + _strangers(yards, above)


def _strangers(yards: Yards, above: Gang) -> list[_Run]:
    """Pods of no plan that may give way: one by one, but those of a gang that is left alone all together."""
    parties: dict[str, list[tuple[Pod, tuple[int, ...]]]] = {}
    for pod, gpus in yards.held.alone.values():
        gang = gang_name(pod)
        name = f"pods of {pod.metadata.namespace}/{gang}" if gang else f"pod {pod.key}"
        parties.setdefault(name, []).append((pod, gpus))
    found = []
    for name, party in parties.items():
        pods, count = tuple(pod for pod, _ in party), sum(len(gpus) for _, gpus in party)
        priority = max(pod.spec.priority for pod in pods)
        if not count or not _yields(priority, "", above):
            continue
        waiting = Waiting(name, Request(gpus=count), priority=priority)
        since = min(pod.metadata.creation_timestamp for pod in pods)
        found.append(_Run(Running(waiting, _alone(party, yards.columns), _seconds(since)), pods))
    return found


def _yields(priority: int, queue: str, to: Gang) -> bool:
    return priority < to.priority and (not queue or not to.queue or queue == to.queue)


def _preempts(gang: Gang) -> bool:
    return gang.pods[0].spec.preemption_policy != "Never"


def _preemption(gangs: Sequence[Gang], yards: Yards, now: float) -> Start | None:
    """Seats for the first of the gangs that finds enough that may give way. One that Volcano's queue keeps out is among
    them: to Volcano the cluster is full, and it lets nobody in for whom others would have to go.
    """
    for gang in gangs:
        runs = {each.run.gang.name: each for each in _running(yards, gang)}
        if not runs or not _may_enter(gang, yards):
            continue
        state = QueueState((_asked(gang, yards),), tuple(each.run for each in runs.values()))
        free = Yard.on(yards.columns, yards.without(gang.key)) if gang.key in yards.returning else yards.yard()
        made = queue_plan(now, state, free, PREEMPTING)
        for found in made.preemptions:
            pods = tuple(pod for name in found.victims for pod in runs[name].pods)
            victims = tuple(name for name in found.victims if name in yards.planned)
            return Start(gang, _seats(found.decision, gang, yards), victims, pods)
    return None


def _may_enter(gang: Gang, yards: Yards) -> bool:
    """Whether its queue could let it in once all that yield to it are gone: nobody is displaced in vain."""
    most = yards.capability.get(gang.queue)
    if not gang.kept_out or most is None:
        return True
    firm = [each for each, _ in yards.planned.values() if each.queue == gang.queue and each.priority >= gang.priority]
    return sum(each.request.gpus for each in firm) + gang.request.gpus <= most


def _held(gang: Gang, made: QueuePlan, yards: Yards | None, now: float) -> tuple[str, str]:
    """Without times: they change from round to round, and what is said is written whenever it changes."""
    reason = made.reasons[gang.key]
    match reason.kind:
        case "reserved":
            return "Behind", f"it would run past its deadline into seats that are reserved for {reason.holder}"
        case "behind":
            return "Behind", f"it has no deadline, and what is free is reserved for {reason.holder}"
        case "untried":
            return "Behind", "too many gangs before it were looked at in this round"
    if yards is not None:
        answer = place_on(gang.wish, yards.yard(), yards.occupancy)
        if isinstance(answer, Rejection):
            return "NoSeat", _no_seat(gang, answer, yards)
        return "Behind", f"what is free is kept for {reason.holder or 'others that come first'}"
    return "NoSeat", replace(reason, until=None).text(now)


def _no_seat(gang: Gang, answer: Rejection, yards: Yards) -> str:
    """What is to blame: the nodes that it is kept off, where it has a seat without that."""
    anywhere = place_on(gang.request, yards.yard(), yards.occupancy) if gang.off else answer
    if isinstance(anywhere, Rejection):
        return f"{anywhere.summary}; fix: {anywhere.fix}"
    some = ", ".join(sorted(gang.off)[:3]) + (", ..." if len(gang.off) > 3 else "")
    told = f"it would have a seat, but {len(gang.off)} nodes ({some}) are not for its pods"
    why = "by their nodeSelector, node affinity or tolerations, or because the scheduler refused them of late"
    return f"{told}, {why}; fix: change those in the pod template, or the labels and taints of the nodes"


def _returns(gang: Gang, yards: Yards) -> Start | None:
    """A gang that lost its place: as many of its ranks as can be stay where they were (spares first, else the segment
    moves), on seats that were kept for it. Where none can, what is kept for it is at least not in its own way.
    """
    plan = yards.returning.get(gang.key)
    if plan is None:
        return None
    others = yards.without(gang.key)
    seats = _reseated(plan, gang, others, yards.columns.site)
    if not isinstance(seats, Placement):
        seats = place_on(gang.wish, Yard.on(yards.columns, others), others)
    return Start(gang, seats) if isinstance(seats, Placement) else None


def _reseated(plan: GangPlan, gang: Gang, others: Occupancy, site: Site) -> Placement | Rejection | None:
    old = placement_of(plan, site)
    if old is None or len(old.seats) != gang.request.gpus:
        return None
    taken = {seat.node for seat in old.seats if seat.gpu in others.busy(seat.node)}
    out = {name for name in (*old.nodes(), *old.spares) if site.node(name).cordoned} | gang.wish.exclude
    return reseat(old, frozenset(out | taken), frozenset(), gang.wish, site, others)


def _seats(decision: Decision, gang: Gang, yards: Yards) -> Placement:
    return replace(named(decision, yards.columns, gang.request.rails), cost=explained(decision.cost))


def _decision(plan: GangPlan, columns: Columns) -> Decision | None:
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


def _alone(party: Sequence[tuple[Pod, tuple[int, ...]]], columns: Columns) -> Decision:
    """Pods of no plan as numbers, each of their nodes a segment of its own."""
    masks: dict[int, int] = {}
    for pod, gpus in party:
        if not gpus:  # more was promised on its node than there is
            continue
        node = columns.index[pod.spec.node_name]
        masks[node] = masks.get(node, 0) | sum(1 << gpu for gpu in gpus)
    nodes, taken = np.array([*masks], np.int32), np.array([*masks.values()], np.uint32)
    return Decision(nodes, taken, (1,) * len(masks), np.zeros(0, np.int32), (), np.zeros(0, np.uint32))


def _seconds(time: str) -> float:
    """Seconds since the epoch of an RFC 3339 time; 0 for none."""
    return datetime.fromisoformat(time).timestamp() if time else 0.0
