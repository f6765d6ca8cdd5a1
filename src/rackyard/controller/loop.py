"""The controller: reads what happened, stores it, decides what comes next, stores that, and only then acts.

Crash-only: it has no shutdown and no state of its own. Whatever was stored and not yet done is done again when
it starts, which is why every call to the backend may be repeated.
"""

import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from rackyard.backends.base import Backend
from rackyard.checkpoint import newest_valid
from rackyard.controller.nccl import audit, write_topologies
from rackyard.controller.reconcile import Append, Launch, World, fallback_nodes, next_step
from rackyard.controller.request import attempts_allowed
from rackyard.controller.seats import nodes_of, occupancy_of
from rackyard.controller.store import Store
from rackyard.controller.waiting import Turns, turns, waits
from rackyard.errors import ConflictError
from rackyard.fabric import Site
from rackyard.faults import observations as seen
from rackyard.findings import Finding, Verdict
from rackyard.jobs import events as ev
from rackyard.jobs.events import Event, Record
from rackyard.jobs.site import SITE_STREAM, cordons, with_cordons
from rackyard.jobs.state import Attempt, JobState
from rackyard.jobs.why import why
from rackyard.launch import Gang, LaunchPlan, build
from rackyard.placement import Occupancy, Placement, decode

TICK = 0.2
"""Seconds between two looks at the store when nothing happens; what happens wakes the loop at once."""

STEP_FLUSH = 0.25
"""Seconds for which step reports are gathered into one stored event."""

FAULT_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL for an attempt that is broken: nothing is left worth waiting for."""

CANCEL_GRACE = 10.0
"""The same for a job that its owner cancels: its script may want to save."""


class FaultInjector(Protocol):
    """What a backend with simulated nodes can do besides."""

    def inject(self, job: str, strike: ev.FaultInjected, placement: Placement) -> None:
        """Make the fault happen. Repeating it changes nothing."""


class Controller:
    """One controller on one store. `listen` is told every record after it is stored."""

    def __init__(
        self,
        store: Store,
        backend: Backend,
        site: Site,
        state_dir: Path,
        *,
        injector: FaultInjector | None = None,
        listen: Callable[[Record, JobState], None] | None = None,
    ) -> None:
        self._store = store
        self._backend = backend
        self._injector = injector
        self._site = site
        self._dir = state_dir
        self._listen = listen
        self._jobs: dict[str, JobState] = {}
        self._cursor = store.cursor()
        self._steps: dict[tuple[str, int], list[seen.StepDone]] = defaultdict(list)
        self._flushed = time.monotonic()
        self._stop_calls: dict[tuple[str, int], bool] = {}
        self._site_records: list[Record] = []
        self._warmed: dict[str, set[str]] = defaultdict(set)
        self._audit: tuple[Finding, ...] | None = None
        self._turns = Turns()
        self._turned: Site | None = None
        self._cordoned: tuple[int, Site] | None = None

    def tick(self, timeout: float = TICK) -> dict[str, JobState]:
        """One round; the live jobs after it. RackyardError when the store refuses."""
        self._adopt()
        self._read(timeout)
        for job in [job for job, state in self._jobs.items() if not waits(state)]:
            self._advance(job)
        self._turns = self._whose_turn()
        for job in self._turns.order:
            self._advance(job)
        return dict(self._jobs)

    def _whose_turn(self) -> Turns:
        if not any(waits(state) for state in self._jobs.values()):
            return Turns()
        site = self._site_now()
        before = self._turns.reservations if site is self._turned else ()
        self._turned = site
        return turns(self._jobs.values(), site, before, time.time())

    # --- what is there -----------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Take up jobs that others submitted, and what others stored about ours."""
        for record in self._store.records(SITE_STREAM, after=len(self._site_records)):
            self._site_records.append(record)
            if isinstance(record.event, ev.Returned):
                self._backend.revive(record.event.subject)
        # First come, first served: after a restart, too, whoever waited longest is looked at first.
        for row in reversed(self._store.jobs(live_only=True)):
            job = str(row["job"])
            if job not in self._jobs:
                state = self._store.state(job)
                # The one before us may have died between storing an event and the row that `ps` reads.
                self._store.project(state, why(state).reason)
                self._jobs[job] = state
                self._redo(state)
        for job, state in list(self._jobs.items()):
            if state.phase.over:
                del self._jobs[job]
                continue
            self._jobs[job], new = self._store.refresh(state)
            self._tell(new, self._jobs[job])

    def _redo(self, state: JobState) -> None:
        """Do again what was stored as intended: the one before us may have died before doing it."""
        attempt = state.attempt
        if attempt is None or attempt.launched is None or attempt.ended is not None:
            return
        if attempt.fault is None and attempt.symptom is None:
            self._launch(state, attempt)
            for strike in state.faults_injected:
                if strike.attempt == attempt.number:
                    self._strike(state.job, strike, attempt)
        if attempt.stopping is not None:
            self._stop(state, attempt)

    # --- what happened -----------------------------------------------------------------------------------------

    def _read(self, timeout: float) -> None:
        observations, cursor = self._backend.observe(self._cursor, timeout)
        for key in self._stop_calls:
            self._stop_calls[key] = True  # whatever the stopped ranks had to say has been read by now
        self._cursor = dict(cursor)
        batch: dict[str, list[Event]] = defaultdict(list)
        for event in observations:
            if isinstance(event, seen.StepDone):
                self._steps[event.job, event.attempt].append(event)
            else:
                for job in self._concerned(event):
                    batch[job].append(event)
                if isinstance(event, seen.NodeLost):
                    batch[SITE_STREAM].append(ev.Cordoned(subject=event.node, why=event.why))
        now = time.monotonic()
        if batch or (self._steps and now - self._flushed >= STEP_FLUSH):
            for (job, number), steps in self._steps.items():
                if job in self._jobs:
                    batch[job].insert(0, progress(number, steps))
            self._steps.clear()
            self._flushed = now
            self._commit(batch, cursor=True)

    def _concerned(self, event: seen.Observation) -> Iterable[str]:
        """The live jobs an observation is about: its own, or all that use or spare the node or rack."""
        match event:
            case seen.NodeUp(node=node) | seen.NodeLost(node=node):
                return [job for job, state in self._jobs.items() if node in nodes_of(state)]
            case seen.FabricDown(rack=rack):
                return [job for job, state in self._jobs.items() if rack in self._racks_of(state)]
            case _:
                return [event.job] if event.job in self._jobs else []

    def _racks_of(self, state: JobState) -> set[str]:
        return {self._site.node(name).rack for name in nodes_of(state)}

    def _commit(self, batch: dict[str, list[Event]], *, cursor: bool = False) -> None:
        written = self._store.commit(batch, cursor=self._cursor if cursor else None)
        for stream, records in written.items():
            if stream == SITE_STREAM:
                self._site_records += self._store.records(SITE_STREAM, after=len(self._site_records))
                continue
            # Somebody else may have stored between our last look and now: fold from the store, not from ours.
            state, new = self._store.refresh(self._jobs[stream])
            self._jobs[stream] = state
            self._store.project(state, why(state).reason)
            self._tell(new or records, state)

    def _tell(self, records: Sequence[Record], state: JobState) -> None:
        if self._listen is not None:
            for record in records:
                self._listen(record, state)

    # --- what comes next ---------------------------------------------------------------------------------------

    def _advance(self, job: str) -> None:
        while True:
            state = self._jobs[job]
            attempt = state.attempt
            quiet = attempt is not None and self._stop_calls.get((job, attempt.number), False)
            step = next_step(state, self._world(job), quiet=quiet)
            match step:
                case None:
                    return
                case Launch():
                    self._commit({job: [self._launched(state)]})
                case Append(events=events, site=site):
                    self._commit({SITE_STREAM: list(site), job: list(events)})
            self._act(job, state.seq)

    def _act(self, job: str, after: int) -> None:
        state = self._jobs[job]
        attempt = state.attempt
        for record in self._store.records(job, after=after):
            match record.event:
                case ev.Launched() if attempt is not None:
                    self._launch(state, attempt)
                case ev.Stopping() if attempt is not None:
                    self._stop(state, attempt)
                case ev.FaultInjected() as strike if attempt is not None:
                    self._strike(job, strike, attempt)
                case ev.Finished():
                    self._backend.release({*nodes_of(state), *self._warmed.pop(job, ())})
                case _:
                    pass

    def _world(self, job: str) -> World:
        others = [state for other, state in self._jobs.items() if other != job]
        world = World(self._site_now(), occupancy_of(others, self._site), time.monotonic())
        if self._jobs[job].attempt is not None:
            return world
        if self._audit is None:
            self._audit = audit(self._site)
        kept = self._turns.kept.get(job, Occupancy())
        return replace(
            world,
            occupancy=world.occupancy.joined(kept),
            audit=self._audit,
            held=self._turns.held.get(job, ""),
            reserved=self._turns.reserved(job),
        )

    def _site_now(self) -> Site:
        """The site with what has been cordoned since; the same object until that changes."""
        known = len(self._site_records)
        if self._cordoned is None or self._cordoned[0] != known:
            self._cordoned = (known, with_cordons(self._site, cordons(self._site_records)))
        return self._cordoned[1]

    # --- acting ------------------------------------------------------------------------------------------------

    def _launched(self, state: JobState) -> ev.Launched:
        attempt = state.attempt
        assert attempt is not None  # next_step asks for a launch only of a placed attempt
        folder = checkpoint_dir(state)
        found, findings = newest_valid(folder) if folder is not None and folder.is_dir() else (None, ())
        return ev.Launched(
            attempt=attempt.number,
            resume_step=found.step if found is not None else None,
            port=free_port(),
            damaged=tuple(
                f"{finding.subject}: {finding.summary}" for finding in findings if finding.verdict is not Verdict.PASS
            ),
        )

    def plan(self, state: JobState, attempt: Attempt) -> LaunchPlan:
        """The launch plan of an attempt of a job."""
        gang = Gang(
            job=state.job,
            attempt=attempt.number,
            attempts_allowed=attempts_allowed(state.spec),
            master="127.0.0.1",
            port=attempt.port,
            resume_step=attempt.resume_step,
            topology_dir=str(self._dir / "jobs" / state.job / "nccl"),
        )
        placement = decode(dict(attempt.placement))
        return build(state.spec, placement, gang, state.workdir, self._dir / "jobs" / state.job)

    def _launch(self, state: JobState, attempt: Attempt) -> None:
        plan = self.plan(state, attempt)
        write_topologies(self._dir / "jobs" / state.job / "nccl", [self._site.node(name) for name in plan.nodes()])
        try:
            self._backend.prepare(plan.nodes(), plan)
            self._backend.launch(plan)
            self._backend.prepare(self._standby(state, attempt), plan)
        except ConflictError as error:
            # A node died unused, after it was chosen and before it was reached: that is this attempt's fault.
            known = {event.node for event in attempt.lost_nodes}
            answers = self._backend.nodes()
            dead = [node for node in nodes_of(state) if node not in known and not answers.get(node, True)]
            now = {"wall": time.time(), "mono": time.monotonic()}
            self._commit({state.job: [seen.NodeLost(node=node, why=error.what, **now) for node in dead]})

    def _standby(self, state: JobState, attempt: Attempt) -> tuple[str, ...]:
        """The nodes to keep warm beside the attempt's own: its spares, and where it would move to without its racks."""
        spares = decode(dict(attempt.placement)).spares
        nodes = (*spares, *fallback_nodes(state, self._world(state.job)))
        self._warmed[state.job] |= {*nodes, *nodes_of(state)}
        return nodes

    def _stop(self, state: JobState, attempt: Attempt) -> None:
        grace = CANCEL_GRACE if attempt.fault is None else FAULT_GRACE
        stacks = attempt.fault is not None and attempt.fault.cause == "hang"
        self._backend.stop(state.job, attempt.number, grace=grace, stacks=stacks)
        self._stop_calls[state.job, attempt.number] = False

    def _strike(self, job: str, strike: ev.FaultInjected, attempt: Attempt) -> None:
        if self._injector is not None:
            self._injector.inject(job, strike, decode(dict(attempt.placement)))


def progress(number: int, steps: Sequence[seen.StepDone]) -> ev.Progress:
    """Many step reports of one attempt as one event: each rank's newest step, and the curve of the lowest rank."""
    newest: dict[int, int] = {}
    for step in steps:
        newest[step.rank] = max(newest.get(step.rank, 0), step.step)
    first = min(newest)
    points = tuple((step.step, dict(step.metrics)) for step in steps if step.rank == first and step.metrics)
    return ev.Progress(attempt=number, steps=newest, points=points)


def checkpoint_dir(state: JobState) -> Path | None:
    """The job's checkpoint folder, made absolute against its working directory; None without one."""
    folder = (state.spec.get("checkpoint") or {}).get("dir")
    return None if folder is None else Path(state.workdir) / str(folder)


def free_port() -> int:
    """A TCP port that is free on the loopback now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
