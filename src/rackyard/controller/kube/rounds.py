"""One look at all gangs: what has a plan goes on, what lost its place is taken off, what waits is placed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import thread_time

import msgspec

from rackyard.backends.kubernetes.client import ApiError
from rackyard.backends.kubernetes.watch import Key
from rackyard.controller.kube.acts import Acts, Taken
from rackyard.controller.kube.cache import Cache
from rackyard.controller.kube.domains import compute_domain, spread
from rackyard.controller.kube.gangs import Gang, Unready
from rackyard.controller.kube.kinds import gang_name
from rackyard.controller.kube.leaving import Leaving
from rackyard.controller.kube.objects import GangPlan, PlanStatus, Pod
from rackyard.controller.kube.plans import master_of, newest, plan_of, stamp, surplus
from rackyard.controller.kube.selectors import Pinned, shut_out
from rackyard.controller.kube.steps import Again, Bound, Patch, Preempt, Release, World, leftovers, next_step
from rackyard.controller.kube.turns import Start, Turns, Yards, turns
from rackyard.controller.kube.voice import Voice
from rackyard.controller.kube.world import by_node, held, lost, out_of_use, topology_of
from rackyard.errors import RackyardError
from rackyard.fabric import Site
from rackyard.placement import Columns
from rackyard.placement.queue import Reservation

RETRY = 2.0
"""Seconds after which a write that failed is tried again; the client has tried several times by then."""
IDLE = 30.0
"""Seconds after which everything is looked at though nothing happened."""
REFUSED_AFTER = 15.0
"""Seconds after a release from which on a scheduler's refusal is believed: what it waits for may just be going."""
AVOIDED = 600.0
"""Seconds for which a gang keeps off nodes that the scheduler refused it."""
MOST_REST = 60.0
"""Seconds between two plans of a gang at most."""
MOST_WORDS = 4096
"""Characters of a message that a plan takes (deploy/crd.yaml)."""
KEPT_OUT = 300.0
"""Seconds for which seats are held for a gang that others had to go for, and whose queue does not let it in."""
RETURN = 120.0
"""Seconds for which a gang that lost its place through no fault of its own has its seats kept."""
_RETURNING = frozenset({"Fault", "NodeLost", "Refused", "Restarted", "Astray"})


@dataclass
class Round:
    """The gangs of a cluster. `tell` is told what happens to them, once for each change."""

    acts: Acts
    site: Site
    cache: Cache
    tell: Callable[[str, str, str], None]
    act: bool = True
    _joined: set[str] = field(default_factory=set)
    """Plans, by uid, whose ComputeDomain was seen to."""
    _reservations: tuple[Reservation, ...] = ()
    _columns: tuple[dict[str, str], Columns] | None = None
    _owing: set[str] = field(default_factory=set)
    """Gangs that something could not be written for: they are looked at anew."""
    _history: dict[str, list[GangPlan]] = field(default_factory=dict)
    """Plans that have ended, by gang."""
    _soon: float = IDLE
    _now: datetime = datetime.min
    _digest: str = ""
    _voice: Voice = field(init=False)
    _leaving: Leaving = field(init=False)

    def __post_init__(self) -> None:
        """What takes long and is always the same is done before a gang waits for it."""
        self._voice = Voice(self.acts, self.cache, self.tell, self.act)
        self._leaving = Leaving(self.acts, self.cache, RETRY)
        self._digest = self.site.digest()
        self._yard()

    def look(self, now: datetime) -> float:
        """One round; in how many seconds to look again though nothing happens."""
        self._now, self._soon = now, IDLE
        columns = self._yard()  # before anybody waits for it
        changed = self.cache.changed() | self._owing
        self._owing = set()
        found = self.cache.gangs()
        latest = newest(self.cache.plans.values())
        for key, gang in found.items():
            if isinstance(gang, Unready) and key in changed and gang.reason != "Ended":
                self._say(key, gang.reason, gang.message)
        if self.act:
            self._go_on(latest, changed)
            self._tidy(latest)
        self._place([gang for gang in found.values() if isinstance(gang, Gang)], columns)
        return self._soon

    # --- gangs that have a plan -------------------------------------------------------------------------------

    def _go_on(self, latest: dict[str, GangPlan], changed: frozenset[str]) -> None:
        faulty = {name: node.fault for name, node in self.cache.nodes.items() if node.fault}
        gangs = self.cache.gangs()
        steps = []
        for key, plan in latest.items():
            hit = bool(faulty) and any(member.node in faulty for member in plan.spec.members)
            alone = not plan.ended and key not in gangs  # its pods went while nobody watched
            if hit or alone or key in changed or plan.status.phase not in ("Bound", "Ended"):
                steps.append(plan)
        if not steps:
            return
        load = by_node(self.cache.pods.values())
        there = {pod.metadata.uid for pod in self.cache.pods.values() if not pod.over and not pod.gated}
        for plan in steps:
            try:
                places = topology_of(plan, self.site) if plan.status.phase in ("Planned", "Preempting") else {}
                world = World(lost(plan, self.cache.nodes, load), faulty, there, places, self._refused(plan))
                self._step(plan, world)
            except RackyardError as error:
                self._trouble(plan.key, str(error))
            except Exception as error:  # noqa: BLE001 - it is said on the gang, and the others go on
                self._trouble(plan.key, f"its plan can't be followed: {type(error).__name__}: {error}")

    def _step(self, plan: GangPlan, world: World) -> None:
        gang = self.cache.gangs().get(plan.key)
        pods = self.cache.members(plan.key)
        if plan.ended:
            self._evict(plan.key, leftovers(plan, pods))
            return
        if gang is None or (isinstance(gang, Unready) and gang.reason == "Ended"):
            self._end(plan, "Ended", "its pods have ended" if pods else "its pods are gone")
            return
        if isinstance(gang, Unready):
            on = next((member.node for member in plan.spec.members if member.node in world.faulty), None)
            if on is not None:
                self._end(plan, "Fault", world.faulty[on])
            return
        if not plan.spec.members:
            self._end(plan, "Astray", "its plan has no members")
            return
        first = next((pod for pod in gang.pods if pod.metadata.uid == plan.spec.members[0].uid), gang.pods[0])
        match next_step(gang, plan, world, master_of(plan, first, self.cache.nodes)):
            case Again(reason=reason, message=message, refused=refused):
                self._end(plan, reason, message, refused)
            case Preempt(victims=victims):
                self._preempt(plan, [Taken(each.namespace, each.pod, each.uid) for each in victims])
            case Release(patches=patches):
                self._domain(gang, plan)
                self._release(plan, patches)
            case Bound():
                if plan.status.phase != "Bound":
                    self._mark(plan, "Bound", f"all {len(gang.pods)} pods are on their nodes")
            case None:
                self._wait(gang, plan)

    def _wait(self, gang: Gang, plan: GangPlan) -> None:
        """For the scheduler, or for the queue of a gang that others had to go for."""
        if not gang.waits and plan.status.phase in ("Planned", "Preempting"):
            self._mark(plan, "Released", f"{len(gang.pods)} pods are let go to their nodes")
        elif gang.waits and self._age(plan.metadata.creation_timestamp) > KEPT_OUT:
            self._end(plan, "NotInqueue", gang.kept_out)
        self._again(REFUSED_AFTER / 3)

    def _refused(self, plan: GangPlan) -> dict[str, str]:
        if plan.status.phase != "Released" or self._age(plan.status.released_at) < REFUSED_AFTER:
            return {}
        pods = {pod.metadata.uid: pod for pod in self.cache.members(plan.key)}
        told = {member.node: pods[member.uid].refused for member in plan.spec.members if member.uid in pods}
        return {node: condition.message for node, condition in told.items() if condition is not None}

    def _release(self, plan: GangPlan, patches: tuple[Patch, ...]) -> None:
        pods, errors = self.acts.release(patches)
        for pod in pods:
            self.cache.put(pod)
        never = [error for error in errors if isinstance(error, ApiError) and error.status.code in (400, 422)]
        if never:
            self._end(plan, "Refused", f"the API server refuses what {len(never)} of its pods would become: {never[0]}")
        elif errors:
            self._trouble(plan.key, f"{len(errors)} of {len(patches)} pods could not be written: {errors[0]}")
        else:
            self._again(0)  # go on at once

    def _domain(self, gang: Gang, plan: GangPlan) -> None:
        """Its ComputeDomain is there before any pod that claims from it is let go."""
        wanted = None if plan.metadata.uid in self._joined else compute_domain(gang.pods)
        if wanted is not None:
            self.acts.domain(wanted)
        self._joined.add(plan.metadata.uid)

    def _preempt(self, plan: GangPlan, victims: list[Taken]) -> None:
        """Gangs that give way end their plans first, so that all of their pods go, whoever sees to it."""
        latest = newest(self.cache.plans.values())
        uids = {victim.uid for victim in victims}
        for pod in [pod for pod in self.cache.pods.values() if pod.metadata.uid in uids]:
            theirs = latest.get(f"{pod.metadata.namespace}/{gang_name(pod)}")
            if theirs is not None and not theirs.ended:
                latest[theirs.key] = self._end(theirs, "Preempted", f"gives way to gang {plan.key}")
        if plan.status.phase == "Planned":
            self._mark(plan, "Preempting", f"{len(victims)} pods of lower priority have to go first")
        gated = {pod.metadata.uid for pod in self.cache.pods.values() if pod.gated}
        self._evict_all(plan.key, [victim for victim in victims if victim.uid not in gated])
        self._again(RETRY)

    def _evict(self, key: str, pods: Iterable[Pod]) -> None:
        """Take a gang's pods away."""
        self._evict_all(key, self._leaving.of(pods))

    def _evict_all(self, key: str, pods: list[Taken]) -> None:
        errors, later = self._leaving.take(pods, self._now)
        if later:
            self._owing.add(key)
            self._again(RETRY)
        if errors:
            self._trouble(key, f"{len(errors)} of {len(pods)} pods could not be evicted: {errors[0]}")

    # --- gangs that wait ----------------------------------------------------------------------------------------

    def _place(self, gangs: list[Gang], columns: Columns) -> None:
        latest = newest(self.cache.plans.values())
        self._history = {}
        for plan in self.cache.plans.values():
            if plan.ended:
                self._history.setdefault(plan.key, []).append(plan)
        planned = {gang.key: (gang, latest[gang.key]) for gang in gangs if _current(latest.get(gang.key))}
        may = [self._avoiding(gang) for gang in gangs if gang.key not in planned and self._may(gang, latest)]
        known: dict[bytes, frozenset[str]] = {}
        waiting = [found for gang in may if (found := self._within(gang, known)) is not None]
        if not waiting:
            self._reservations = ()
            return
        keys = {gang.key for gang in gangs}
        back = {key: plan for key, plan in latest.items() if self._returns(plan)}
        began = thread_time()
        plans = tuple(plan for key, plan in latest.items() if not plan.ended or key in back)
        pods = tuple(self.cache.pods.values())
        queues = self._capability(waiting, planned)
        yards = Yards(columns, held(pods, plans, columns.site), pods, plans, planned, queues, back)
        made = self._turns(waiting, yards)
        took = thread_time() - began
        self._reservations = made.reservations
        if back.keys() - keys:
            self._again(RETURN / 4)
        for key, (word, line) in made.held.items():
            self._say(key, word, line)
        for start in made.starts:
            self._start(start, latest.get(start.gang.key), took)

    def _turns(self, waiting: list[Gang], yards: Yards) -> Turns:
        """Where one gang's wishes are more than placement can take, it alone is left out."""
        try:
            return turns(waiting, yards, self._reservations, self._now.timestamp())
        except Exception as error:  # noqa: BLE001 - it is said on the gang, and the others go on
            if len(waiting) == 1:
                return Turns(held={waiting[0].key: ("Broken", f"can't be placed: {type(error).__name__}: {error}")})
        self._reservations = ()
        alone = [self._turns([gang], yards) for gang in waiting]
        held = {key: why for each in alone for key, why in each.held.items()}
        return Turns(next((each.starts for each in alone if each.starts), ()), held)

    def _may(self, gang: Gang, latest: dict[str, GangPlan]) -> bool:
        """Whether there is anything to place: a gang that was let go without a plan that goes on is no such case."""
        if any(pod.metadata.deletion_timestamp and self._holds(pod) for pod in self.cache.members(gang.key)):
            # a Job makes pods anew before those that were taken away have ended: their seats are free only then
            self._say(gang.key, "Leaving", "pods of the gang that were taken away are still on their nodes")
            return False
        if gang.waits:
            return self._rested(gang)
        released = [pod for pod in gang.pods if pod.released]
        if gang.key in latest and leftovers(latest[gang.key], gang.pods):
            return False  # its pods are on their way out
        if not released:
            self._say(gang.key, "NoPlan", "some of its pods were never held by our gate: it is left alone")
        elif (fault := self._fault_under(gang)) and self.act:
            self._say(gang.key, "Fault", fault)
            self._evict(gang.key, released)
        elif all(pod.spec.node_name for pod in gang.pods):
            self._say(gang.key, "NoPlan", "its plan was deleted; all pods are on nodes: it is left alone")
        elif self.act:
            self._say(gang.key, "NoPlan", "its plan was deleted before all pods were on nodes: it is placed again")
            self._evict(gang.key, released)
        return False

    def _fault_under(self, gang: Gang) -> str:
        """Why one of its nodes must not be used any longer; empty where all may."""
        nodes = (self.cache.nodes.get(pod.spec.node_name) for pod in gang.pods)
        return next((node.fault for node in nodes if node is not None and node.fault), "")

    def _capability(self, waiting: list[Gang], planned: Mapping[str, tuple[Gang, GangPlan]]) -> dict[str, int]:
        """Of the queues that keep gangs out which could displace others."""
        least = min((gang.priority for gang, _ in planned.values()), default=None)
        asked = {gang.queue for gang in waiting if gang.kept_out and least is not None and gang.priority > least}
        found: dict[str, int] = {}
        for queue in asked:
            try:
                limit = self.acts.capability(queue)
            except RackyardError as error:
                self.tell("", "Trouble", str(error))
                limit = 0  # nobody is displaced for a queue that nothing is known of
            if limit is not None:
                found[queue] = limit
        return found

    def _holds(self, pod: Pod) -> bool:
        """Whether it is on a node that could take another in its place."""
        node = self.cache.nodes.get(pod.spec.node_name)
        return node is not None and node.ready and not pod.over

    def _rested(self, gang: Gang) -> bool:
        """Whether it is time for another try: the more plans came to nothing of late, the longer the wait."""
        ended = [plan.status.ended_at for plan in self._history.get(gang.key, ())]
        ages = [age for age in map(self._age, ended) if age < AVOIDED]
        wait = min(MOST_REST, 2.0 ** (len(ages) - 2)) if len(ages) > 2 else 0.0
        if not ages or min(ages) >= wait:
            return True
        self._again(wait - min(ages))
        self._say(gang.key, "Resting", f"{len(ages)} plans came to nothing within {AVOIDED / 60:.0f} minutes")
        return False

    def _start(self, start: Start, before: GangPlan | None, took: float) -> None:
        gang, seats = start.gang, start.seats
        size = f"{len(gang.pods)} pods in {len(seats.segments)} segments"
        line = f"{size}, {took * 1e3:.0f} ms"
        if start.pods:
            line += f"; {len(start.pods)} pods of lower priority have to go first"
        if compute_domain(gang.pods) is not None and (told := spread(seats.nodes(), self.site)):
            line += f"; {told}"
        if not self.act:
            where = ", ".join(f"{part.rack}: {len(part.nodes)}" for part in seats.segments)
            self._say(gang.key, "WouldPlace", f"{size} ({where})")
            return
        try:
            plan = self.acts.store(plan_of(gang, seats, self._digest, start.pods, before), gang.pods[0])
        except RackyardError as error:
            self._trouble(gang.key, str(error))
            return
        self.cache.put(plan)
        self._say(gang.key, "Placed", line)
        self._again(0)

    def _avoiding(self, gang: Gang) -> Gang:
        """The gang, kept off nodes that the scheduler refused it of late."""
        refused = {
            node
            for plan in self._history.get(gang.key, ())
            if plan.status.refused and self._age(plan.status.ended_at) < AVOIDED
            for node in plan.status.refused
        }
        if not refused:
            return gang
        return replace(gang, request=replace(gang.request, exclude=gang.request.exclude | refused))

    def _within(self, gang: Gang, known: dict[bytes, frozenset[str]]) -> Gang | None:
        """The gang, kept off nodes that its pods may not use; None where they differ in that."""
        out = shut_out(gang.pods, self.cache.nodes.values(), known)
        if isinstance(out, Pinned):
            self._say(gang.key, "Pinned", out.message)
            return None
        ours = frozenset(filter(self.site.has_node, out))
        return replace(gang, request=replace(gang.request, exclude=gang.request.exclude | ours)) if ours else gang

    def _returns(self, plan: GangPlan) -> bool:
        return plan.ended and plan.status.reason in _RETURNING and self._age(plan.status.ended_at) < RETURN

    def _yard(self) -> Columns:
        """The columns of the site, made anew only when a node's state has changed."""
        out = out_of_use(self.site, self.cache.nodes)
        if self._columns is None or self._columns[0] != out:
            self._columns = (out, Columns.of(self.site.with_cordon(out)))
            self._reservations = ()
        return self._columns[1]

    # --- what is written and said --------------------------------------------------------------------------------

    def _end(self, plan: GangPlan, reason: str, message: str, refused: tuple[str, ...] = ()) -> GangPlan:
        """End a plan, and evict what it let go."""
        status = msgspec.structs.replace(
            plan.status,
            phase="Ended",
            reason=reason,
            message=message[:MOST_WORDS],
            refused=refused,
            ended_at=stamp(self._now),
        )
        plan = self.acts.mark(plan, status)
        self.cache.put(plan)
        self._say(plan.key, reason, message)
        self._evict(plan.key, leftovers(plan, self.cache.members(plan.key)))
        return plan

    def _mark(self, plan: GangPlan, phase: str, message: str) -> None:
        at = stamp(self._now)
        times = {"Released": {"released_at": at}, "Bound": {"bound_at": at}}.get(phase, {})
        if phase == "Bound" and not plan.status.released_at:
            times["released_at"] = at
        status: PlanStatus = msgspec.structs.replace(plan.status, phase=phase, message=message, **times)
        self.cache.put(self.acts.mark(plan, status))
        self._say(plan.key, phase, message)

    def _tidy(self, latest: dict[str, GangPlan]) -> None:
        for plan in surplus(self.cache.plans.values()):
            try:
                self.acts.forget(plan)
                self.cache.plans.pop(Key(plan.metadata.namespace, plan.metadata.name), None)
            except RackyardError as error:
                self._trouble(plan.key, str(error))
        self._joined &= {plan.metadata.uid for plan in latest.values()}
        self._voice.forget_all_but(latest.keys() | self.cache.gangs().keys())

    def _age(self, time: str) -> float:
        """Seconds since an RFC 3339 time; none for no time, and for ever for what is no time."""
        try:
            return (self._now - datetime.fromisoformat(time)).total_seconds() if time else 0.0
        except (ValueError, TypeError):
            return float("inf")

    def _again(self, seconds: float) -> None:
        self._soon = min(self._soon, seconds)

    def _trouble(self, gang: str, line: str) -> None:
        self._owing.add(gang)
        self._say(gang, "Trouble", line)
        self._again(RETRY)

    def _say(self, gang: str, word: str, line: str) -> None:
        self._voice.say(gang, word, line, self._now)


def _current(plan: GangPlan | None) -> bool:
    return plan is not None and not plan.ended
