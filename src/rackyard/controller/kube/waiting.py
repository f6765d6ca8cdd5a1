"""Gangs that wait: those whose time it is are placed, and their plans are stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import thread_time

from rackyard.controller.kube.domains import compute_domain, spread
from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.objects import GangPlan, Pod
from rackyard.controller.kube.plans import newest, plan_of
from rackyard.controller.kube.records import Records
from rackyard.controller.kube.selectors import Pinned, shut_out
from rackyard.controller.kube.steps import leftovers
from rackyard.controller.kube.turns import Start, Turns, Yards, turns
from rackyard.controller.kube.world import held
from rackyard.errors import RackyardError
from rackyard.fabric import Site
from rackyard.placement import Columns
from rackyard.placement.queue import Reservation

AVOIDED = 600.0
"""Seconds for which a gang keeps off nodes that the scheduler refused it."""
MOST_REST = 60.0
"""Seconds between two plans of a gang at most."""
RETURN = 120.0
"""Seconds for which a gang that lost its place through no fault of its own has its seats kept."""
_RETURNING = frozenset({"Fault", "NodeLost", "Refused", "Restarted", "Astray"})


@dataclass
class Waiting:
    """Whose turn it is, and where."""

    records: Records
    site: Site
    act: bool = True
    digest: str = ""
    """Of the site."""
    _reservations: tuple[Reservation, ...] = ()
    _on: Columns | None = None
    """What the reservations are of."""
    _history: dict[str, list[GangPlan]] = field(default_factory=dict)
    """Plans that have ended, by gang."""

    def place(self, gangs: list[Gang], columns: Columns) -> None:
        """Plans for those that may have one now."""
        if columns is not self._on:
            self._reservations, self._on = (), columns
        cache = self.records.cache
        latest = newest(cache.plans.values())
        self._history = {}
        for plan in cache.plans.values():
            if plan.ended:
                self._history.setdefault(plan.key, []).append(plan)
        planned = {gang.key: (gang, latest[gang.key]) for gang in gangs if _current(latest.get(gang.key))}
        known: dict[bytes, frozenset[str]] = {}
        may = [gang for gang in gangs if gang.key not in planned and self._may(gang, latest)]
        waiting = [found for gang in may if (found := self._kept_off(gang, known)) is not None]
        if not waiting:
            self._reservations = ()
            return
        keys = {gang.key for gang in gangs}
        back = {key: plan for key, plan in latest.items() if self._returns(plan)}
        began = thread_time()
        plans = tuple(plan for key, plan in latest.items() if not plan.ended or key in back)
        pods = tuple(cache.pods.values())
        queues = self._capability(waiting, planned)
        yards = Yards(columns, held(pods, plans, columns.site), pods, plans, planned, queues, back)
        made = self._turns(waiting, yards)
        took = thread_time() - began
        self._reservations = made.reservations
        if back.keys() - keys:
            self.records.again(RETURN / 4)
        for start in made.starts:
            self._start(start, latest.get(start.gang.key), took)
        for key, (word, line) in made.held.items():
            self.records.say(key, word, line)

    def _turns(self, waiting: list[Gang], yards: Yards) -> Turns:
        """Where one gang's wishes are more than placement can take, it alone is left out."""
        try:
            return turns(waiting, yards, self._reservations, self.records.now.timestamp())
        except Exception as error:  # noqa: BLE001 - it is said on the gang, and the others go on
            if len(waiting) == 1:
                return Turns(held={waiting[0].key: ("Broken", f"can't be placed: {type(error).__name__}: {error}")})
        self._reservations = ()
        alone = [self._turns([gang], yards) for gang in waiting]
        held = {key: why for each in alone for key, why in each.held.items()}
        return Turns(next((each.starts for each in alone if each.starts), ()), held)

    def _may(self, gang: Gang, latest: dict[str, GangPlan]) -> bool:
        """Whether there is anything to place: a gang that was let go without a plan that goes on is no such case."""
        records = self.records
        if any(pod.metadata.deletion_timestamp and self._holds(pod) for pod in records.cache.members(gang.key)):
            # a Job makes pods anew before those that were taken away have ended: their seats are free only then
            records.say(gang.key, "Leaving", "pods of the gang that were taken away are still on their nodes")
            return False
        if gang.waits:
            return self._rested(gang)
        released = [pod for pod in gang.pods if pod.released]
        if gang.key in latest and leftovers(latest[gang.key], gang.pods):
            return False  # its pods are on their way out
        if not released:
            records.say(gang.key, "NoPlan", "some of its pods were never held by our gate: it is left alone")
        elif (fault := self._fault_under(gang)) and self.act:
            records.say(gang.key, "Fault", fault)
            records.evict(gang.key, released)
        elif all(pod.spec.node_name for pod in gang.pods):
            records.say(gang.key, "NoPlan", "its plan was deleted; all pods are on nodes: it is left alone")
        elif self.act:
            records.say(gang.key, "NoPlan", "its plan was deleted before all pods were on nodes: it is placed again")
            records.evict(gang.key, released)
        return False

    def _fault_under(self, gang: Gang) -> str:
        """Why one of its nodes must not be used any longer; empty where all may."""
        nodes = (self.records.cache.nodes.get(pod.spec.node_name) for pod in gang.pods)
        return next((node.fault for node in nodes if node is not None and node.fault), "")

    def _capability(self, waiting: list[Gang], planned: Mapping[str, tuple[Gang, GangPlan]]) -> dict[str, int]:
        """Of the queues that keep gangs out which could displace others."""
        least = min((gang.priority for gang, _ in planned.values()), default=None)
        asked = {gang.queue for gang in waiting if gang.kept_out and least is not None and gang.priority > least}
        found: dict[str, int] = {}
        for queue in asked:
            try:
                limit = self.records.acts.capability(queue)
            except RackyardError as error:
                self.records.say("", "Trouble", str(error))
                limit = 0  # nobody is displaced for a queue that nothing is known of
            if limit is not None:
                found[queue] = limit
        return found

    def _holds(self, pod: Pod) -> bool:
        """Whether it is on a node that could take another in its place."""
        node = self.records.cache.nodes.get(pod.spec.node_name)
        return node is not None and node.ready and not pod.over

    def _rested(self, gang: Gang) -> bool:
        """Whether it is time for another try: the more plans came to nothing of late, the longer the wait."""
        ended = [plan.status.ended_at for plan in self._history.get(gang.key, ())]
        ages = [age for age in map(self.records.age, ended) if age < AVOIDED]
        wait = min(MOST_REST, 2.0 ** (len(ages) - 2)) if len(ages) > 2 else 0.0
        if not ages or min(ages) >= wait:
            return True
        self.records.again(wait - min(ages))
        told = f"{len(ages)} plans came to nothing within {AVOIDED / 60:.0f} minutes"
        self.records.say(gang.key, "Resting", told)
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
            self.records.say(gang.key, "WouldPlace", f"{size} ({where})")
            return
        try:
            plan = self.records.acts.store(plan_of(gang, seats, self.digest, start.pods, before), gang.pods[0])
        except RackyardError as error:
            self.records.trouble(gang.key, str(error))
            return
        self.records.cache.put(plan)
        self.records.say(gang.key, "Placed", line)
        self.records.again(0)

    def _kept_off(self, gang: Gang, known: dict[bytes, frozenset[str]]) -> Gang | None:
        """The gang, kept off nodes that its pods may not use, and those that the scheduler refused it of late; None
        where its pods differ in that.
        """
        out = shut_out(gang.pods, self.records.cache.nodes.values(), known)
        if isinstance(out, Pinned):
            self.records.say(gang.key, "Pinned", out.message)
            return None
        refused = {
            node
            for plan in self._history.get(gang.key, ())
            if plan.status.refused and self.records.age(plan.status.ended_at) < AVOIDED
            for node in plan.status.refused
        }
        off = frozenset(filter(self.site.has_node, out | refused)) - gang.request.exclude
        return replace(gang, off=off) if off else gang

    def _returns(self, plan: GangPlan) -> bool:
        return plan.ended and plan.status.reason in _RETURNING and self.records.age(plan.status.ended_at) < RETURN


def _current(plan: GangPlan | None) -> bool:
    return plan is not None and not plan.ended
