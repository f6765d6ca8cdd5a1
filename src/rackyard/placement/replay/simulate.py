"""A trace replayed on a site: arrivals, ends, failures and repairs, one after the other, in made-up time."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from rackyard.placement.columns import Columns
from rackyard.placement.model import Request
from rackyard.placement.replay.discipline import Discipline, Release, Run, Waiting
from rackyard.placement.replay.easy import Easy
from rackyard.placement.replay.events import Failure
from rackyard.placement.replay.free import Scales
from rackyard.placement.replay.full import Full
from rackyard.placement.replay.ledger import Account, Timeline
from rackyard.placement.replay.outcome import Replay, Rules
from rackyard.placement.replay.policies import Policy
from rackyard.placement.replay.requests import request_of
from rackyard.placement.replay.spans import span_of
from rackyard.placement.traces import TraceJob
from rackyard.placement.yard import Decision, Yard

_END, _REPAIR, _FAIL, _ARRIVE = range(4)
"""Kinds of event, in the order in which those of one moment happen."""
MOST_FAULTS = 1000
"""Faults after which a gang is given up: with checkpoints further apart than faults it would never end."""


@dataclass(slots=True, eq=False)
class _Timed:
    """A policy that is timed."""

    policy: Policy
    clock: Callable[[], float]
    seconds: list[float] = field(default_factory=list)

    def __call__(self, request: Request, yard: Yard) -> Decision | None:
        began = self.clock()
        seats = self.policy.place(request, yard)
        self.seconds.append(self.clock() - began)
        return seats


def simulate(
    jobs: Sequence[TraceJob],
    columns: Columns,
    policy: Policy,
    rules: Rules | None = None,
    failures: Iterable[Failure] = (),
    watch: Callable[[int], None] | None = None,
) -> Replay:
    """Replay `jobs` (sorted by submission) on an idle site. Deterministic but for the times that decisions take.

    `failures` must be sorted by time and may be endless; `watch` is told how many jobs have ended.
    """
    replay = _Replay(jobs, columns, policy, rules or Rules())
    replay.run(iter(failures), watch)
    return replay.result()


class _Replay:
    def __init__(self, jobs: Sequence[TraceJob], columns: Columns, policy: Policy, rules: Rules) -> None:
        self.jobs, self.policy, self.rules = jobs, policy, rules
        self.yard = Yard.on(columns)
        self.scales = Scales.of(columns)
        self.place = _Timed(policy, rules.clock)
        self.queue: Discipline
        if rules.queue == "full":
            self.queue = Full(self.place, self.yard, jobs)
        else:
            self.queue = Easy(self.place, self.yard, self.scales, rules.depth)
        self.accounts = [Account(job.name, job.gpus, job.submit, job.duration, remaining=job.duration) for job in jobs]
        self.requests = [request_of(job) for job in jobs]
        numbers: dict[Request, int] = {}
        self.kinds = [numbers.setdefault(request, len(numbers)) for request in self.requests]
        self.hopeless = {kind for request, kind in numbers.items() if policy.place(request, self.yard) is None}
        self.running: dict[int, Run] = {}
        self.away: dict[int, float] = {}
        """Failed nodes and when they are back."""
        self.events: list[tuple[float, int, int, object]] = []
        self.pushed = self.busy = self.ended = self.given_up = self.failed = 0
        submits = [job.submit for job in jobs]
        self.timeline = Timeline(submits[0], submits[-1]) if submits else Timeline(0.0, 0.0)

    def push(self, moment: float, kind: int, what: object) -> None:
        self.pushed += 1
        heappush(self.events, (moment, kind, self.pushed, what))

    def run(self, failures: Iterator[Failure], watch: Callable[[int], None] | None) -> None:
        left = 0
        for job, kind in enumerate(self.kinds):
            if kind not in self.hopeless:
                self.push(self.jobs[job].submit, _ARRIVE, job)
                left += 1
        self.next_failure(failures)
        while self.events and self.ended + self.given_up < left:
            now = self.events[0][0]
            self.timeline.pass_time(now, self.yard, self.scales, self.busy)
            alive = False
            while self.events and self.events[0][0] == now:
                _, kind, _, what = heappop(self.events)
                alive |= self.happen(now, kind, what, failures)
            for gang, seats in self.queue.starts(now, self):
                self.start(gang.job, seats, now)
            if not alive and not self.running and all(kind == _FAIL for _, kind, _, _ in self.events):
                break  # more failures would bring nothing back
            if watch is not None:
                watch(self.ended)
        self.timeline.pass_time(max(self.timeline.end, self.timeline.now), self.yard, self.scales, self.busy)

    def happen(self, now: float, kind: int, what: object, failures: Iterator[Failure]) -> bool:
        """One event; whether it could let a gang start."""
        if kind == _FAIL:
            assert isinstance(what, Failure)
            self.fail(now, what)
            self.next_failure(failures)
            return False
        if kind == _END:
            assert isinstance(what, tuple)
            job, run = what
            if self.running.get(job) is run:
                self.end(now, job)
            return True
        assert isinstance(what, int)
        if kind == _REPAIR:
            del self.away[what]
            self.yard.restore([what])
            self.queue.freed(shaken=True)
        else:
            self.wait(what)
        return True

    def next_failure(self, failures: Iterator[Failure]) -> None:
        failure = next(failures, None)
        if failure is not None:
            self.push(failure.time, _FAIL, failure)

    def wait(self, job: int) -> None:
        trace, account = self.jobs[job], self.accounts[job]
        startup = self.rules.restart if account.faults or account.preempted else 0.0
        estimate = account.remaining * self.rules.estimate + startup
        self.queue.add(Waiting(-trace.priority, trace.submit, job, self.requests[job], self.kinds[job], estimate))

    def start(self, job: int, seats: Decision, now: float) -> None:
        account = self.accounts[job]
        startup = self.rules.restart if account.faults or account.preempted else 0.0
        if account.started is None:
            account.started = now
        account.spans.append(span_of(seats, self.requests[job], self.yard.columns))
        run = Run(
            seats,
            now,
            startup,
            now + startup + account.remaining * self.rules.estimate,
            self.jobs[job].checkpoint_every,
        )
        self.running[job] = run
        self.busy += account.gpus
        self.push(now + startup + account.remaining, _END, (job, run))

    def end(self, now: float, job: int) -> None:
        run, account = self.running.pop(job), self.accounts[job]
        self.yard.give(run.seats)
        self.queue.freed()
        self.busy -= account.gpus
        self.ended += 1
        account.used += account.gpus * (now - run.began)
        account.useful += account.gpus * account.remaining
        account.remaining, account.ended = 0.0, now

    def fail(self, now: float, failure: Failure) -> None:
        node = failure.node
        if node in self.away:
            return
        self.failed += 1
        self.away[node] = now + failure.repair
        self.yard.retire([node])
        if math.isfinite(failure.repair):
            self.push(now + failure.repair, _REPAIR, node)
        for job in [job for job, run in self.running.items() if (run.seats.nodes == node).any()]:
            self.hit(now, job, node)
        self.queue.freed(shaken=True)

    def hit(self, now: float, job: int, node: int) -> None:
        """A gang lost a node: what was saved stays, the rest is done again."""
        account = self.accounts[job]
        run, lost = self.interrupt(now, job)
        account.lost += lost
        account.faults += 1
        if account.faults >= MOST_FAULTS:
            self.given_up += 1
            self.yard.give(run.seats)
            return
        seats = None
        if self.policy.replace is not None:
            seats = self.policy.replace(self.requests[job], run.seats, np.array([node], np.int32), self.yard)
        self.yard.give(run.seats)
        if seats is None:
            self.wait(job)
            return
        self.yard.take(seats)
        account.moved += 1
        self.start(job, seats, now)

    def preempt(self, job: int, now: float) -> None:
        """Stop a gang for another one: it waits again, with what it has saved."""
        run, lost = self.interrupt(now, job)
        self.accounts[job].cut += lost
        self.accounts[job].preempted += 1
        self.yard.give(run.seats)
        self.queue.freed()
        self.wait(job)

    def interrupt(self, now: float, job: int) -> tuple[Run, float]:
        """Take a gang out of the running ones, its seats still in use; the GPU-seconds of work that are lost."""
        run, account = self.running.pop(job), self.accounts[job]
        done = max(0.0, now - run.began - run.startup)
        saved = min(run.saved(now), account.remaining)
        account.remaining -= saved
        account.used += account.gpus * (now - run.began)
        account.useful += account.gpus * saved
        self.busy -= account.gpus
        return run, account.gpus * (done - saved)

    def releases(self) -> list[Release]:
        ends = [Release(run.until, run.seats) for run in self.running.values()]
        return ends + [Release(back, None, (node,)) for node, back in self.away.items() if math.isfinite(back)]

    def result(self) -> Replay:
        never = {job for job, kind in enumerate(self.kinds) if kind in self.hopeless}
        stuck = [account for job, account in enumerate(self.accounts) if account.ended is None and job not in never]
        return Replay(
            policy=self.policy.name,
            accounts=tuple(self.accounts),
            never=tuple(self.accounts[job].name for job in sorted(never)),
            stuck=tuple(account.name for account in stuck),
            timeline=self.timeline,
            decisions=np.array(self.place.seconds),
            failures=self.failed,
        )
