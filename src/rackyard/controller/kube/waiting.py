"""Gangs that wait: those whose time it is are placed, and their plans are stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import thread_time

from rackyard.controller.kube.acts import Taken
from rackyard.controller.kube.domains import compute_domain, spread
from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.held import held
from rackyard.controller.kube.objects import GangPlan, Pod
from rackyard.controller.kube.plans import newest, plan_of
from rackyard.controller.kube.preempting import party_of
from rackyard.controller.kube.records import RETRY, Records
from rackyard.controller.kube.selectors import Pinned, shut_out
from rackyard.controller.kube.setbacks import Backoff, displaced_in_vain, fruitless, pause
from rackyard.controller.kube.steps import leftovers
from rackyard.controller.kube.turns import Turns, turns
from rackyard.controller.kube.yards import Start, Yards
from rackyard.errors import RackyardError
from rackyard.fabric import Site
from rackyard.placement import Columns

AVOIDED = 600.0
"""Seconds for which a gang keeps off nodes that the scheduler refused it."""
UNSTORED = (2.0, 60.0)
"""Seconds between two tries to store a plan that the API server does not take, at first and at most."""
SPARED = 30.0
"""Seconds for which nobody asks again pods to go that a disruption budget protects."""
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
    _before: Turns = field(default_factory=Turns)
    """The last round's, on the same columns."""
    _on: Columns | None = None
    _unstored: Backoff = field(default_factory=lambda: Backoff(*UNSTORED))
    """Gangs."""
    _spared: Backoff = field(default_factory=lambda: Backoff(SPARED, SPARED))
    """Parties that can't be made to give way."""
    _barred: dict[str, str] = field(default_factory=dict)
    """What was said when they were asked, by the gang that it was for."""
    _history: dict[str, list[GangPlan]] = field(default_factory=dict)
    """Plans that have ended, by gang, oldest first."""

    def place(self, gangs: list[Gang], columns: Columns) -> None:
        """Plans for those that may have one now."""
        if columns is not self._on:
            self._before, self._on = Turns(), columns
        cache = self.records.cache
        latest = newest(cache.plans.values())
        self._history = {}
        for plan in sorted(cache.plans.values(), key=lambda plan: plan.spec.attempt):
            if plan.ended:
                self._history.setdefault(plan.key, []).append(plan)
        keys = {gang.key for gang in gangs}
        self._unstored.keep(keys)
        self._barred = {key: line for key, line in self._barred.items() if key in keys}
        planned = {gang.key: (gang, latest[gang.key]) for gang in gangs if _current(latest.get(gang.key))}
        known: dict[bytes, frozenset[str]] = {}
        may = [gang for gang in gangs if gang.key not in planned and self._may(gang, latest)]
        waiting = [found for gang in may if (found := self._kept_off(gang, known)) is not None]
        if not waiting:
            self._before = Turns()
            return
        back = {key: plan for key, plan in latest.items() if self._returns(plan)}
        began = thread_time()
        plans = [plan for key, plan in latest.items() if not plan.ended or key in back]
        queues = self._capability(waiting, planned)
        spared = self._spared.waiting(self.records.now)
        in_use = held(cache.pods.values(), plans, columns.site, cache.nodes)
        made = self._turns(waiting, Yards(columns, in_use, planned, queues, back, spared))
        took = thread_time() - began
        self._before = made
        if back.keys() - keys:
            self.records.again(RETURN / 4)
        if made.searched:
            self.records.again(RETRY)
        for start in made.starts:
            self._start(start, latest, took)
        for key, (word, line) in made.held.items():
            self.records.say(key, word, line)

    def _turns(self, waiting: list[Gang], yards: Yards) -> Turns:
        """Where one gang's wishes are more than placement can take, it alone is left out."""
        try:
            return turns(waiting, yards, self._before, self.records.now.timestamp())
        except Exception as error:  # noqa: BLE001 - it is said on the gang, and the others go on
            if len(waiting) == 1:
                return Turns(held={waiting[0].key: ("Broken", f"can't be placed: {type(error).__name__}: {error}")})
        self._before = Turns()
        alone = [self._turns([gang], yards) for gang in waiting]
        held = {key: why for each in alone for key, why in each.held.items()}
        return Turns(next((each.starts for each in alone if each.starts), ()), held)

    def _may(self, gang: Gang, latest: dict[str, GangPlan]) -> bool:
        """Whether there is anything to place: a gang that was let go without a plan that goes on is no such case."""
        records = self.records
        if left := self._unstored.left(gang.key, records.now):
            records.again(left)
            return False
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
        return node is not None and not (node.trouble or node.fault or pod.over)

    def _rested(self, gang: Gang) -> bool:
        """Whether it is time for another try: the more plans came to nothing of late, the longer the wait."""
        records = self.records
        ended = fruitless(self._history.get(gang.key, ()))
        late = [plan for plan in ended if records.lately(plan.status.ended_at, AVOIDED)]
        wait = pause(len(late))
        if not late or not records.lately(late[-1].status.ended_at, wait):
            return True
        records.again(wait)
        told = f"{len(late)} plans came to nothing within {AVOIDED / 60:.0f} minutes, the last one because"
        records.say(gang.key, "Resting", f"{told} {late[-1].status.message}")
        return False

    def _start(self, start: Start, latest: Mapping[str, GangPlan], took: float) -> None:
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
        victims = self._victims(start, latest)
        if start.pods and not self._give_way(start, victims, latest):
            return
        try:
            spec = plan_of(gang, seats, self.digest, victims, latest.get(gang.key))
            plan = self.records.acts.store(spec, gang.pods[0])
        except RackyardError as error:
            self._unstored.failed(gang.key, self.records.now)
            self.records.trouble(gang.key, f"its plan can't be stored: {error}")
            return
        self._unstored.worked(gang.key)
        self._barred.pop(gang.key, None)
        self.records.cache.put(plan)
        self.records.say(gang.key, "Placed", line)
        self.records.again(0)

    def _victims(self, start: Start, latest: Mapping[str, GangPlan]) -> list[Pod]:
        """The pods that have to go, those that a victim was itself still waiting for among them."""
        theirs = {victim.uid for key in start.victims for victim in latest[key].spec.victims}
        pods = {pod.metadata.uid: pod for pod in start.pods}
        if theirs:
            pods |= {pod.metadata.uid: pod for pod in self.records.cache.pods.values() if pod.metadata.uid in theirs}
        return list(pods.values())

    def _give_way(self, start: Start, victims: list[Pod], latest: Mapping[str, GangPlan]) -> bool:
        """Whether no disruption budget forbids it. The parties that one protects are not asked again for a while."""
        on_nodes = [pod for pod in victims if pod.spec.node_name and not pod.metadata.deletion_timestamp]
        asked = [Taken(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid) for pod in on_nodes]
        errors = self.records.acts.evict(asked, try_only=True)
        barred = [(pod, error) for pod, error in zip(on_nodes, errors, strict=True) if error is not None]
        planned = {key for key, plan in latest.items() if not plan.ended}
        for pod, _ in barred:
            self._spared.failed(party_of(pod, planned), self.records.now)
        if barred:
            pod, error = barred[0]
            self._barred[start.gang.key] = f"pod {pod.key} would have to go first, and may not: {error}"
            self.records.again(RETRY)
        return not barred

    def _kept_off(self, gang: Gang, known: dict[bytes, frozenset[str]]) -> Gang | None:
        """The gang, kept off nodes that its pods may not use, and those that the scheduler refused it of late; None
        where its pods differ in that.
        """
        out = shut_out(gang.pods, self.records.cache.nodes.values(), known)
        if isinstance(out, Pinned):
            self.records.say(gang.key, "Pinned", out.message)
            return None
        history = self._history.get(gang.key, [])
        refusals = [
            plan for plan in history if plan.status.refused and self.records.lately(plan.status.ended_at, AVOIDED)
        ]
        refused = {node for plan in refusals for node in plan.status.refused}
        off = frozenset(filter(self.site.has_node, out | refused)) - gang.request.exclude
        vain = displaced_in_vain(history, self.records.lately)
        setbacks = [f"the last time {refusals[-1].status.message}"] if refusals else []
        setbacks += [f"others made room for it {vain} times in vain of late"] if vain else []
        setbacks += [self._barred[gang.key]] if gang.key in self._barred else []
        return replace(gang, off=off, displaces=not vain, setback="; ".join(setbacks))

    def _returns(self, plan: GangPlan) -> bool:
        return plan.ended and plan.status.reason in _RETURNING and self.records.lately(plan.status.ended_at, RETURN)


def _current(plan: GangPlan | None) -> bool:
    return plan is not None and not plan.ended
