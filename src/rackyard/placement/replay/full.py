"""The queue of `placement.queue` in a replay: several reservations, elders, and preemption by priority."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rackyard.placement.queue import Gang, Policy, QueueState, Reservation, Running, plan
from rackyard.placement.replay.discipline import Ground, Waiting
from rackyard.placement.replay.policies import Place
from rackyard.placement.traces import TraceJob
from rackyard.placement.yard import Decision, Yard

_ROUNDS = 16
"""Plans at one moment, at most: preempted gangs are gone at once here, and then the plan is made anew."""
_RULES = Policy(stop=0.0)


@dataclass(slots=True)
class Full:
    """A trace says nothing of quotas, so there are none: teams only take turns."""

    place: Place
    yard: Yard
    jobs: Sequence[TraceJob]
    _waiting: dict[str, tuple[Waiting, Gang]] = field(default_factory=dict)
    _running: dict[int, Gang] = field(default_factory=dict)
    """Kept a while after their end: the site says who really runs."""
    _reservations: tuple[Reservation, ...] = ()
    _now: float = 0.0

    def add(self, gang: Waiting) -> None:
        """Put a gang into the queue. One that ran already waits from now on."""
        job = self.jobs[gang.job]
        since = self._now if gang.job in self._running else job.submit
        asks = Gang(job.name, gang.request, job.team, job.priority, since, gang.estimate)
        self._waiting[job.name] = (gang, asks)

    def freed(self, *, shaken: bool = False) -> None:
        """Plans are made from the yard as it is: nothing is remembered but reservations."""

    def starts(self, now: float, site: Ground) -> Iterator[tuple[Waiting, Decision]]:
        """The gangs of the plan; gangs that it preempts are stopped at once."""
        self._now = now
        numbers = {self.jobs[job].name: job for job in site.running}
        for _ in range(_ROUNDS):
            if not self._waiting:
                return
            running = tuple(self._run(job, now, site) for job in site.running)
            waiting = tuple(asks for _, asks in self._waiting.values())
            made = plan(now, QueueState(waiting, running, (), self._reservations), self.yard, _RULES, self.place)
            self._reservations = made.reservations
            for start in made.starts:
                gang, asks = self._waiting.pop(start.gang)
                self._running[gang.job] = asks
                numbers[start.gang] = gang.job
                self.yard.take(start.decision)
                yield gang, start.decision
            for preemption in made.preemptions:
                for victim in preemption.victims:
                    site.preempt(numbers[victim], now)
            if not made.preemptions:
                return

    def _run(self, job: int, now: float, site: Ground) -> Running:
        run = site.running[job]
        saved = run.saved(now)
        checkpointed = run.began + run.startup + saved if saved > 0 else None
        return Running(self._running[job], run.seats, run.began, checkpointed)
