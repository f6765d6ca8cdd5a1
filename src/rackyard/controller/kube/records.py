"""What a round writes of plans and says of gangs, and when it wants to look again."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from rackyard.backends.kubernetes.watch import Key
from rackyard.controller.kube.acts import Acts, Taken
from rackyard.controller.kube.cache import Cache
from rackyard.controller.kube.leaving import Leaving
from rackyard.controller.kube.objects import GangPlan, Pod
from rackyard.controller.kube.plans import stamp, surplus
from rackyard.controller.kube.steps import leftovers
from rackyard.controller.kube.voice import Voice
from rackyard.errors import RackyardError

RETRY = 2.0
"""Seconds after which a write that failed is tried again; the client has tried several times by then."""
IDLE = 30.0
"""Seconds after which everything is looked at though nothing happened."""
SKEW = 60.0
"""Seconds that clocks may differ."""
MOST_WORDS = 4096
"""Characters of a message that a plan takes (deploy/crd.yaml)."""


@dataclass
class Records:
    """The writing side of one round after the other: `open` begins one."""

    acts: Acts
    cache: Cache
    voice: Voice
    now: datetime = datetime.min
    soon: float = IDLE
    """Seconds until the next round though nothing happens."""
    _owing: set[str] = field(default_factory=set)
    """Gangs that something could not be written for: they are looked at anew."""
    _leaving: Leaving = field(init=False)

    def __post_init__(self) -> None:
        self._leaving = Leaving(self.acts, self.cache, RETRY)

    def open(self, now: datetime) -> frozenset[str]:
        """The gangs that the round has to look at: those that changed, and those that something is owed."""
        self.now, self.soon = now, IDLE
        changed = self.cache.changed() | self._owing
        self._owing = set()
        return changed

    def end(self, plan: GangPlan, reason: str, message: str, refused: tuple[str, ...] = ()) -> GangPlan:
        """End a plan, and evict what it let go."""
        status = msgspec.structs.replace(
            plan.status,
            phase="Ended",
            reason=reason,
            message=message[:MOST_WORDS],
            refused=refused,
            ended_at=stamp(self.now),
        )
        plan = self.acts.mark(plan, status)
        self.cache.put(plan)
        self.say(plan.key, reason, message)
        self.evict(plan.key, leftovers(plan, self.cache.members(plan.key)))
        return plan

    def mark(self, plan: GangPlan, phase: str, message: str) -> GangPlan:
        """The plan once it is written how far it is."""
        at = stamp(self.now)
        times = {"Released": {"released_at": at}, "Bound": {"bound_at": at}}.get(phase, {})
        if phase == "Bound" and not plan.status.released_at:
            times["released_at"] = at
        status = msgspec.structs.replace(plan.status, phase=phase, message=message, **times)
        plan = self.acts.mark(plan, status)
        self.cache.put(plan)
        self.say(plan.key, phase, message)
        return plan

    def tidy(self, gangs: Collection[str]) -> None:
        """Forget plans that are history for long enough, and all gangs but those."""
        for plan in surplus(self.cache.plans.values()):
            try:
                self.acts.forget(plan)
                self.cache.plans.pop(Key(plan.metadata.namespace, plan.metadata.name), None)
            except RackyardError as error:
                self.trouble(plan.key, str(error))
        self.voice.forget_all_but(gangs)

    def evict(self, gang: str, pods: Iterable[Pod]) -> None:
        """Take a gang's pods away."""
        self.evict_all(gang, self._leaving.of(pods))

    def evict_all(self, gang: str, pods: list[Taken]) -> None:
        """The same for pods of which no more is known; what is left for later is looked at again."""
        errors, later = self._leaving.take(pods, self.now)
        if later:
            self._owing.add(gang)
            self.again(RETRY)
        if errors:
            self.trouble(gang, f"{len(errors)} of {len(pods)} pods could not be evicted: {errors[0]}")

    def age(self, time: str) -> float:
        """Seconds since an RFC 3339 time; none for no time or one to come, and for ever for what is no time."""
        return max(0.0, self._since(time)) if time else 0.0

    def lately(self, time: str, within: float) -> bool:
        """Whether that was within so many seconds. A time well in the future is none: some clock was wrong."""
        return -SKEW <= self._since(time) < within

    def _since(self, time: str) -> float:
        try:
            return (self.now - datetime.fromisoformat(time)).total_seconds()
        except (ValueError, TypeError):
            return float("inf")

    def again(self, seconds: float) -> None:
        """Look again in so many seconds at most."""
        self.soon = min(self.soon, seconds)

    def trouble(self, gang: str, line: str) -> None:
        """Say what went wrong, and try again."""
        self._owing.add(gang)
        self.say(gang, "Trouble", line)
        self.again(RETRY)

    def say(self, gang: str, word: str, line: str) -> None:
        """Say what happens to a gang."""
        self.voice.say(gang, word, line, self.now)
