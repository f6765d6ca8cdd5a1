"""Whose turn it is among the jobs that wait for their first seats: `placement.queue` on what is known here. Pure.

Nobody is stopped for another job here, and queues have no quotas: jobs go by priority, then by age, and reservations
keep room for those that have waited.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rackyard.controller.request import request_of
from rackyard.controller.seats import occupancy_of
from rackyard.fabric import Site
from rackyard.jobs.state import JobState
from rackyard.placement import Columns, Decision, Occupancy, Yard, decode
from rackyard.placement.engine import decision_of, indices, keep_apart
from rackyard.placement.queue import Gang, Policy, QueueState, Reason, Reservation, Running, plan

RULES = Policy(preemptions=0)


@dataclass(frozen=True, slots=True)
class Turns:
    """The waiting jobs in the order in which to look at them, and what keeps some of them back."""

    order: tuple[str, ...] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    """Why a job has to wait though there may be room for it."""
    kept: Mapping[str, Occupancy] = field(default_factory=dict)
    """What is reserved for others while the job would run."""
    reservations: tuple[Reservation, ...] = ()
    """For the next round, on the same site."""

    def reserved(self, job: str) -> bool:
        """Whether seats are kept for the job, to be had when those on them have ended."""
        return any(each.gang == job for each in self.reservations)


def waits(state: JobState) -> bool:
    """Whether the job stands in the queue."""
    return state.attempt is None and not state.cancel and not state.phase.over


def turns(jobs: Iterable[JobState], site: Site, before: tuple[Reservation, ...], now: float) -> Turns:
    """The turns at `now` (wall-clock seconds); `before` are the reservations of the round before."""
    jobs = list(jobs)
    occupancy = occupancy_of(jobs, site)
    columns = Columns.of(site)
    waiting = tuple(_gang(state, site, occupancy) for state in jobs if waits(state))
    running = tuple(_running(state, columns) for state in jobs if state.attempt is not None)
    yard = Yard.on(columns, occupancy)
    made = plan(now, QueueState(waiting, running, reservations=before), yard, RULES)
    starts = {start.gang: start.decision for start in made.starts}
    return Turns(
        order=(*starts, *(gang.name for gang in waiting if gang.name not in starts)),
        held={name: text for name, reason in made.reasons.items() if (text := _held(reason))},
        kept={gang.name: _kept(gang, starts.get(gang.name), made.reservations, (columns, now)) for gang in waiting},
        reservations=made.reservations,
    )


def _gang(state: JobState, site: Site, occupancy: Occupancy) -> Gang:
    spec = state.spec
    estimate = spec.get("estimate")  # jobs stored before the key was known don't have it
    return Gang(
        name=state.job,
        request=keep_apart(request_of(spec), site, occupancy),
        team=str(spec["queue"]),
        priority=int(spec["priority"]),
        submitted=state.submitted.wall,
        estimate=None if estimate is None else float(estimate),
    )


def _running(state: JobState, columns: Columns) -> Running:
    attempt = state.attempts[-1]
    gang = _gang(state, columns.site, Occupancy())
    seats = decision_of(decode(dict(attempt.placement)), columns)
    return Running(gang, seats, state.attempts[0].placed.wall, stopping=state.cancel)


def _held(reason: Reason) -> str:
    """Without times: they change from round to round, and what is told is stored whenever it changes."""
    match reason.kind:
        case "reserved":
            return f"it would run past its estimate into the seats that are reserved for {reason.holder}"
        case "behind":
            return f"it has no estimate, and what is free is reserved for {reason.holder}"
        case "untried":
            return "too many jobs before it were looked at in this round"
        case _:
            return ""


def _kept(
    gang: Gang, seats: Decision | None, reservations: Iterable[Reservation], at: tuple[Columns, float]
) -> Occupancy:
    """Seats of others that the gang would still sit on when they start; of one that starts, off its own `seats`."""
    columns, now = at
    end = float("inf") if gang.estimate is None else now + gang.estimate
    own = Yard.on(columns)
    if seats is not None:
        own.take(seats)
    used: dict[str, int] = {}
    owners: dict[str, tuple[str, ...]] = {}
    for each in reservations:
        if each.gang == gang.name or each.start >= end:
            continue
        yard = Yard.on(columns)
        yard.take(each.decision)
        kept = yard.busy & ~own.busy
        for node in kept.nonzero()[0].tolist():
            name = columns.names[node]
            used[name] = used.get(name, 0) | int(kept[node])
            owners[name] = (*owners.get(name, ()), f"a reservation of {each.gang}")
    return Occupancy({name: frozenset(indices(mask)) for name, mask in used.items()}, owners)
