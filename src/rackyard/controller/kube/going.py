"""Gangs that have a plan: they are let go, bound, and taken off when they lose their place."""

from dataclasses import dataclass, field
from datetime import datetime

from rackyard.backends.kubernetes.client import ApiError
from rackyard.controller.kube.acts import Taken, of_another
from rackyard.controller.kube.domains import compute_domain
from rackyard.controller.kube.gangs import Gang, Unready
from rackyard.controller.kube.kinds import gang_name
from rackyard.controller.kube.objects import GangPlan
from rackyard.controller.kube.plans import master_of, newest
from rackyard.controller.kube.records import RETRY, Records
from rackyard.controller.kube.steps import Again, Bound, Patch, Preempt, Release, World, leftovers, next_step
from rackyard.controller.kube.world import by_node, lost, topology_of
from rackyard.errors import RackyardError
from rackyard.fabric import Site

REFUSED_AFTER = 15.0
"""Seconds after a release from which on a scheduler's refusal is believed: what it waits for may just be going."""
UNANSWERED = 60.0
"""Seconds after a release from which on it is said that the scheduler says nothing."""
KEPT_OUT = 300.0
"""Seconds for which seats are held for a gang that can't have them yet: others had to go for it and don't, its queue
does not let it in, or pods of it are missing.
"""
HALF = 120.0
"""Seconds for which a gang may be let go in part because the API server refuses changes of its pods."""


@dataclass
class Going:
    """What comes next for each of them."""

    records: Records
    site: Site
    _joined: set[str] = field(default_factory=set)
    """Plans, by uid, whose ComputeDomain was seen to."""
    _failing: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)
    """Plans, by uid, whose pods can't be let go: since when, and when that was tried last."""

    def on(self, latest: dict[str, GangPlan], changed: frozenset[str]) -> None:
        """One step for each of the newest plans that may have one to make."""
        cache = self.records.cache
        uids = {plan.metadata.uid for plan in latest.values()}
        self._joined &= uids
        self._failing = {uid: times for uid, times in self._failing.items() if uid in uids}
        faulty = {name: node.fault for name, node in cache.nodes.items() if node.fault}
        gangs = cache.gangs()
        steps = []
        for key, plan in latest.items():
            hit = bool(faulty) and any(member.node in faulty for member in plan.spec.members)
            alone = not plan.ended and key not in gangs  # its pods went while nobody watched
            if hit or alone or key in changed or plan.status.phase not in ("Bound", "Ended"):
                steps.append(plan)
        if not steps:
            return
        load = by_node(cache.pods.values())
        there = {pod.metadata.uid for pod in cache.pods.values() if not pod.over and not pod.gated}
        for plan in steps:
            try:
                places = topology_of(plan, self.site) if plan.status.phase in ("Planned", "Preempting") else {}
                world = World(lost(plan, cache.nodes, load), faulty, there, places, self._refused(plan))
                self._step(plan, world)
            except RackyardError as error:
                self.records.trouble(plan.key, str(error))
            except Exception as error:  # noqa: BLE001 - it is said on the gang, and the others go on
                line = f"its plan can't be followed: {type(error).__name__}: {error}"
                self.records.trouble(plan.key, line)

    def _step(self, plan: GangPlan, world: World) -> None:
        cache, records = self.records.cache, self.records
        gang = cache.gangs().get(plan.key)
        pods = cache.members(plan.key)
        if plan.ended:
            records.evict(plan.key, leftovers(plan, pods))
            return
        if gang is None or (isinstance(gang, Unready) and gang.reason == "Ended"):
            records.end(plan, "Ended", "its pods have ended" if pods else "its pods are gone")
            return
        if isinstance(gang, Unready):
            on = next((member.node for member in plan.spec.members if member.node in world.faulty), None)
            if on is not None:
                records.end(plan, "Fault", world.faulty[on])
            elif plan.status.phase != "Bound" and self._overdue(plan):
                records.end(plan, "Incomplete", gang.message)
            return
        if not plan.spec.members:
            records.end(plan, "Astray", "its plan has no members")
            return
        if plan.spec.victims and plan.status.phase == "Planned":
            plan = self._displace(plan)
        first = next((pod for pod in gang.pods if pod.metadata.uid == plan.spec.members[0].uid), gang.pods[0])
        match next_step(gang, plan, world, master_of(plan, first, cache.nodes)):
            case Again(reason=reason, message=message, refused=refused):
                records.end(plan, reason, message, refused)
            case Preempt(victims=victims) if self._overdue(plan):
                names = ", ".join(f"{each.namespace}/{each.pod}" for each in victims[:3])
                told = f"{len(victims)} pods that have to go first are still there ({names})"
                records.end(plan, "VictimsStay", told)
            case Preempt(victims=victims):
                records.evict_all(plan.key, [Taken(each.namespace, each.pod, each.uid) for each in victims])
                records.again(RETRY)
            case Release(patches=patches):
                self._domain(gang, plan)
                self._release(plan, patches)
            case Bound():
                if plan.status.phase != "Bound":
                    records.mark(plan, "Bound", f"all {len(gang.pods)} pods are on their nodes")
            case None:
                self._wait(gang, plan)

    def _wait(self, gang: Gang, plan: GangPlan) -> None:
        """For the scheduler, or for the queue of a gang that others had to go for."""
        records = self.records
        if gang.waits:
            if self._overdue(plan):
                records.end(plan, "NotInqueue", gang.kept_out)
        elif plan.status.phase in ("Planned", "Preempting"):
            records.mark(plan, "Released", f"{len(gang.pods)} pods are let go to their nodes")
        elif plan.status.phase == "Released" and records.age(plan.status.released_at) > UNANSWERED:
            unseen = [pod for pod in gang.pods if not pod.spec.node_name and pod.refused is None]
            if unseen:
                who = unseen[0].spec.scheduler_name
                line = f"scheduler {who} has said nothing of {len(unseen)} of its pods for {UNANSWERED:.0f} s"
                records.say(plan.key, "Unanswered", f"{line}; fix: see whether {who} runs")
        records.again(REFUSED_AFTER / 3)

    def _overdue(self, plan: GangPlan) -> bool:
        """Whether its seats were held for long enough; looks again when not."""
        if plan.status.phase != "Bound":
            self.records.again(KEPT_OUT / 10)
        return self.records.age(plan.metadata.creation_timestamp) > KEPT_OUT

    def _refused(self, plan: GangPlan) -> dict[str, str]:
        if plan.status.phase != "Released" or self.records.age(plan.status.released_at) < REFUSED_AFTER:
            return {}
        pods = {pod.metadata.uid: pod for pod in self.records.cache.members(plan.key)}
        told = {member.node: pods[member.uid].refused for member in plan.spec.members if member.uid in pods}
        return {node: condition.message for node, condition in told.items() if condition is not None}

    def _release(self, plan: GangPlan, patches: tuple[Patch, ...]) -> None:
        since, last = self._failing.get(plan.metadata.uid, (self.records.now, None))
        if last is not None and 0 <= (self.records.now - last).total_seconds() < RETRY:
            self.records.again(RETRY)  # its own writes are events, too
            return
        pods, errors = self.records.acts.release(patches)
        for pod in pods:
            self.records.cache.put(pod)
        stuck = [] if patches[0].status else [pod for pod in pods if pod.gated]
        if errors:
            told = f"{len(errors)} of {len(patches)} pods could not be written: {errors[0]}"
        elif stuck:
            told = f"our gate is back on {len(stuck)} pods that were let go; fix: see which webhook puts it there"
        else:
            self._failing.pop(plan.metadata.uid, None)
            self.records.again(0)  # go on at once
            return
        last_words = [error for error in errors if isinstance(error, ApiError) and not of_another(error)]
        never = any(error.status.code in (400, 422) for error in last_words)
        self._failing[plan.metadata.uid] = (since, self.records.now)
        if never or (self.records.now - since).total_seconds() > HALF:
            self.records.end(plan, "Refused", told)
        else:
            self.records.trouble(plan.key, told)

    def _domain(self, gang: Gang, plan: GangPlan) -> None:
        """Its ComputeDomain is there before any pod that claims from it is let go."""
        wanted = None if plan.metadata.uid in self._joined else compute_domain(gang.pods)
        if wanted is not None:
            self.records.acts.domain(wanted)
        self._joined.add(plan.metadata.uid)

    def _displace(self, plan: GangPlan) -> GangPlan:
        """Gangs that give way end their plans first, so that all of their pods go, whoever sees to it."""
        cache, records = self.records.cache, self.records
        latest = newest(cache.plans.values())
        uids = {victim.uid for victim in plan.spec.victims}
        for pod in [pod for pod in cache.pods.values() if pod.metadata.uid in uids]:
            theirs = latest.get(f"{pod.metadata.namespace}/{gang_name(pod)}")
            if theirs is not None and not theirs.ended:
                latest[theirs.key] = records.end(theirs, "Preempted", f"gives way to gang {plan.key}")
        return records.mark(plan, "Preempting", f"{len(uids)} pods of lower priority have to go first")
