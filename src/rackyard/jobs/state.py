"""A job's state as the fold of its events: `apply(record, state) -> state`, pure and exhaustive.

Replaying the same events on another machine gives the same state, and so the same `why`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from typing import Any, assert_never

from rackyard.faults import observations as seen
from rackyard.jobs import events as ev
from rackyard.jobs.events import Record


class Phase(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether nothing will happen to the job any more."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time on both clocks."""

    wall: float
    mono: float


@dataclass(frozen=True, slots=True)
class RankState:
    """One rank of one attempt."""

    node: str = ""
    pid: int | None = None
    forked: bool = False
    started: Moment | None = None
    step: int = 0
    exit: seen.RankExited | None = None

    @property
    def alive(self) -> bool:
        """Started, and not known to have ended."""
        return self.started is not None and self.exit is None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at running the job, from its seats to its end."""

    number: int
    placement: Mapping[str, Any]
    moved: int
    placed: Moment
    launched: Moment | None = None
    resume_step: int | None = None
    port: int = 0
    damaged: tuple[str, ...] = ()
    ranks: Mapping[int, RankState] = field(default_factory=dict)
    up: Moment | None = None
    """When the last rank's process existed."""
    loaded: Moment | None = None
    """When the last rank to report it had loaded its checkpoint."""
    first_step: Moment | None = None
    """When every rank had completed its first step of this attempt."""
    recovered: Moment | None = None
    """When the job was again as far as it had ever been."""
    progressed: Moment | None = None
    """When any rank last completed a step."""
    struck: Moment | None = None
    """When a simulated fault hit it."""
    symptom: Moment | None = None
    """When the first sign of trouble was seen."""
    lost_nodes: tuple[seen.NodeLost, ...] = ()
    lost_fabric: tuple[seen.FabricDown, ...] = ()
    stacks: tuple[seen.StacksCaptured, ...] = ()
    fault: ev.FaultDetected | None = None
    detected: Moment | None = None
    advice: ev.Advised | None = None
    advised: Moment | None = None
    stopping: Moment | None = None
    ended: Moment | None = None
    outcome: str = ""

    @property
    def step(self) -> int:
        """The newest step that every rank has completed; what it resumed from before that."""
        steps = [rank.step for rank in self.ranks.values()]
        return min(steps, default=0) or (self.resume_step or 0)

    @property
    def exits(self) -> tuple[seen.RankExited, ...]:
        """The exits seen, in the order in which they happened."""
        found = [rank.exit for rank in self.ranks.values() if rank.exit is not None]
        return tuple(sorted(found, key=lambda exit_: exit_.mono))


@dataclass(frozen=True, slots=True)
class JobState:
    """Everything known about a job."""

    job: str
    spec: Mapping[str, Any]
    workdir: str
    submitted: Moment
    phase: Phase = Phase.PENDING
    rejected: ev.Rejected | None = None
    attempts: tuple[Attempt, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The newest metrics reported; the whole curve stands in the `Progress` events."""
    metrics_step: int = 0
    """The step that they are of."""
    best_step: int = 0
    """The newest step that every rank ever completed."""
    checkpoint: seen.CheckpointDone | None = None
    damaged: tuple[seen.CheckpointDamaged, ...] = ()
    faults_requested: tuple[ev.FaultRequested, ...] = ()
    faults_injected: tuple[ev.FaultInjected, ...] = ()
    accept: tuple[str, ...] = ()
    """Rules of the site's audit whose errors do not keep it from starting."""
    cancel: bool = False
    finished: ev.Finished | None = None
    ended: Moment | None = None
    seq: int = 0

    @property
    def attempt(self) -> Attempt | None:
        """The attempt at hand."""
        return self.attempts[-1] if self.attempts else None

    @property
    def name(self) -> str:
        """The job's name as its owner gave it."""
        return str(self.spec.get("name", self.job))

    @property
    def gpus(self) -> int:
        """GPUs asked for, one rank each."""
        return int(self.spec["gpus"])


def apply(record: Record, state: JobState | None) -> JobState:
    """The state after `record`. ValueError when a stream does not begin with `Submitted`."""
    if state is None:
        if not isinstance(record.event, ev.Submitted):
            raise ValueError(f"{record.stream}: the first event is {type(record.event).__name__}, not Submitted")
        first = record.event
        return JobState(first.job, first.spec, first.workdir, _moment(record), accept=first.accept, seq=record.seq)
    return replace(_apply(record, state), seq=record.seq)


def fold(records: Iterable[Record]) -> JobState | None:
    """The state after all of `records`; None when there are none."""
    start: JobState | None = None
    return reduce(lambda state, record: apply(record, state), records, start)


def _moment(record: Record) -> Moment:
    return Moment(record.wall, record.mono)


def _apply(record: Record, state: JobState) -> JobState:
    event = record.event
    match event:
        case ev.Submitted() | ev.Cordoned() | ev.Returned():
            return state
        case ev.Rejected():
            return replace(state, rejected=event, phase=Phase.PENDING)
        case ev.Placed():
            attempt = Attempt(event.attempt, event.placement, event.moved, _moment(record))
            phase = Phase.RECOVERING if state.attempts else Phase.PENDING
            return replace(state, attempts=(*state.attempts, attempt), rejected=None, phase=phase)
        case ev.FaultRequested():
            return replace(state, faults_requested=(*state.faults_requested, event))
        case ev.CancelRequested():
            return replace(state, cancel=True)
        case ev.Finished():
            return replace(state, finished=event, phase=Phase(event.outcome), ended=_moment(record))
        case seen.CheckpointDone():
            newest = state.checkpoint
            return replace(state, checkpoint=event if newest is None or event.step >= newest.step else newest)
        case seen.CheckpointDamaged():
            return replace(state, damaged=(*state.damaged, event))
        case ev.FaultInjected():
            done = replace(state, faults_injected=(*state.faults_injected, event))
            return _on_attempt(done, event.attempt, lambda old: replace(old, struck=_moment(record)))
        case ev.Launched() | ev.Progress() | ev.FaultDetected() | ev.Advised() | ev.Stopping() | ev.AttemptEnded():
            return _decided(record, event, state)
        case (
            seen.NodeUp()
            | seen.NodeWarm()
            | seen.NodeLost()
            | seen.FabricDown()
            | seen.RankStarted()
            | seen.RankExited()
            | seen.StepDone()
            | seen.Resumed()
            | seen.StacksCaptured()
        ):
            return _observed(event, state)
        case _:
            assert_never(event)


AttemptChange = Callable[[Attempt], Attempt]
_AttemptEvent = ev.Launched | ev.Progress | ev.FaultDetected | ev.Advised | ev.Stopping | ev.AttemptEnded


def _decided(record: Record, event: _AttemptEvent, state: JobState) -> JobState:
    now = _moment(record)
    number = event.attempt
    match event:
        case ev.Launched():
            state = replace(state, phase=Phase.STARTING if number == 1 else Phase.RECOVERING)
            return _on_attempt(
                state,
                number,
                lambda old: replace(
                    old, launched=now, resume_step=event.resume_step, port=event.port, damaged=event.damaged
                ),
            )
        case ev.Progress():
            return _progress(now, event, state)
        case ev.FaultDetected():
            state = replace(state, phase=Phase.RECOVERING)
            return _on_attempt(state, number, lambda old: replace(old, fault=event, detected=now))
        case ev.Advised():
            return _on_attempt(state, number, lambda old: replace(old, advice=event, advised=now))
        case ev.Stopping():
            return _on_attempt(state, number, lambda old: replace(old, stopping=now))
        case ev.AttemptEnded():
            return _on_attempt(state, number, lambda old: replace(old, ended=now, outcome=event.outcome))


def _progress(now: Moment, event: ev.Progress, state: JobState) -> JobState:
    old = next((attempt for attempt in state.attempts if attempt.number == event.attempt), None)
    if old is None:
        return state
    ranks = dict(old.ranks)
    for rank, step in event.steps.items():
        known = ranks.get(rank, RankState())
        ranks[rank] = replace(known, step=max(known.step, step))
    new = replace(old, ranks=ranks, progressed=now)
    started = all(rank.step > 0 for rank in ranks.values()) and len(ranks) == state.gpus
    if started and new.first_step is None:
        new = replace(new, first_step=now)
    if started and new.recovered is None and new.step >= state.best_step:
        new = replace(new, recovered=now)
    step, metrics = event.points[-1] if event.points else (state.metrics_step, state.metrics)
    best = max(state.best_step, new.step if started else 0)
    phase = Phase.RUNNING if started and new.fault is None else state.phase
    state = replace(state, metrics=metrics, metrics_step=step, best_step=best, phase=phase)
    return _on_attempt(state, event.attempt, lambda _: new)


_JobObservation = (
    seen.NodeUp
    | seen.NodeWarm
    | seen.NodeLost
    | seen.FabricDown
    | seen.RankStarted
    | seen.RankExited
    | seen.StepDone
    | seen.Resumed
    | seen.StacksCaptured
)


def _observed(event: _JobObservation, state: JobState) -> JobState:
    now = Moment(event.wall, event.mono)
    match event:
        case seen.NodeUp() | seen.NodeWarm() | seen.StepDone():
            return state  # shown in the log of events; steps count through Progress
        case seen.NodeLost():
            return _on_current(state, lambda old: replace(_sign(old, now), lost_nodes=(*old.lost_nodes, event)))
        case seen.FabricDown():
            return _on_current(state, lambda old: replace(_sign(old, now), lost_fabric=(*old.lost_fabric, event)))
        case seen.StacksCaptured():
            return _on_attempt(state, event.attempt, lambda old: replace(old, stacks=(*old.stacks, event)))
        case seen.Resumed():
            return _on_attempt(state, event.attempt, lambda old: replace(old, loaded=now))
        case seen.RankStarted():
            started = RankState(event.node, event.pid, event.forked, now)
            return _on_attempt(state, event.attempt, lambda old: _up(old, event.rank, started, state.gpus))
        case seen.RankExited():
            return _on_attempt(state, event.attempt, lambda old: _exited(old, event, now))


def _sign(attempt: Attempt, now: Moment) -> Attempt:
    return attempt if attempt.symptom is not None else replace(attempt, symptom=now)


def _up(attempt: Attempt, rank: int, started: RankState, world: int) -> Attempt:
    ranks = {**attempt.ranks, rank: replace(started, step=attempt.ranks.get(rank, RankState()).step)}
    full = sum(1 for known in ranks.values() if known.started is not None) == world
    return replace(attempt, ranks=ranks, up=started.started if full and attempt.up is None else attempt.up)


def _exited(attempt: Attempt, event: seen.RankExited, now: Moment) -> Attempt:
    known = attempt.ranks.get(event.rank, RankState(event.node))
    if known.exit is not None:
        return attempt
    bad = event.code != 0
    attempt = _sign(attempt, now) if bad and attempt.stopping is None else attempt
    return replace(attempt, ranks={**attempt.ranks, event.rank: replace(known, exit=event)})


def _on_attempt(state: JobState, number: int, change: AttemptChange) -> JobState:
    return replace(state, attempts=tuple(change(old) if old.number == number else old for old in state.attempts))


def _on_current(state: JobState, change: AttemptChange) -> JobState:
    """Apply to the attempt at hand, unless it is over: what happens to a node then is not its business."""
    current = state.attempt
    if current is None or current.ended is not None:
        return state
    return _on_attempt(state, current.number, change)
