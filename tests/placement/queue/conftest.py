"""A small world for the queue: jobs that arrive, run as long as they really do, and end."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import combinations

import pytest

from rackyard.fabric import simulate
from rackyard.placement.columns import Columns
from rackyard.placement.decide import decide
from rackyard.placement.model import Request
from rackyard.placement.queue import (
    Gang,
    Policy,
    QueuePlan,
    QueueState,
    Reservation,
    Running,
    Team,
    plan,
    requeued,
)
from rackyard.placement.queue.holdings import seats, spread_out
from rackyard.placement.yard import Decision, Yard


@dataclass
class World:
    """Plans are made, checked and acted on at every arrival and at every end."""

    yard: Yard
    teams: tuple[Team, ...] = ()
    policy: Policy = field(default_factory=Policy)
    stop: float = 0.0
    """Seconds that a preempted gang takes to stop."""
    now: float = 0.0
    waiting: dict[str, Gang] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    lasts: dict[str, float] = field(default_factory=dict)
    """How long each gang really runs."""
    ends: dict[str, float] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    said: dict[str, float] = field(default_factory=dict)
    """The start of the first reservation of each gang."""
    started: dict[str, float] = field(default_factory=dict)
    """The first start of each gang."""
    preempted: list[tuple[str, str]] = field(default_factory=list)
    last: QueuePlan | None = None

    def submit(self, gang: Gang, lasts: float) -> None:
        self.waiting[gang.name] = replace(gang, submitted=self.now)
        self.lasts[gang.name] = lasts

    def state(self) -> QueueState:
        return QueueState(tuple(self.waiting.values()), tuple(self.running.values()), self.teams, self.reservations)

    def plan(self) -> QueuePlan:
        """Plan, check the plan, act on it; again when somebody was stopped at once."""
        state, before = self.state(), (self.yard.busy.copy(), self.yard.out.copy())
        made = plan(self.now, state, self.yard, self.policy)
        assert (self.yard.busy == before[0]).all() and (self.yard.out == before[1]).all(), "the yard was changed"
        self.check(state, made)
        self.last = made
        self.reservations = made.reservations
        for each in made.reservations:
            self.said.setdefault(each.gang, each.start)
        for start in made.starts:
            self._start(self.waiting.pop(start.gang), start.decision)
        for preemption in made.preemptions:
            self.preempted += [(preemption.gang, victim) for victim in preemption.victims]
            for victim in preemption.victims:
                self._tell_to_stop(victim)
        return made if not (made.preemptions and self.stop == 0) else self.plan()

    def _start(self, gang: Gang, decision: Decision) -> None:
        self.yard.take(decision)
        self.running[gang.name] = Running(gang, decision, self.now)
        self.ends[gang.name] = self.now + self.lasts[gang.name]
        self.started.setdefault(gang.name, self.now)

    def _tell_to_stop(self, name: str) -> None:
        self.running[name] = replace(self.running[name], stopping=True)
        if self.stop:
            self.ends[name] = min(self.ends[name], self.now + self.stop)
        else:
            self._gone(name)

    def _gone(self, name: str) -> None:
        run = self.running.pop(name)
        self.yard.give(run.decision)
        if run.stopping and self.now < run.started + self.lasts[name]:
            self.waiting[name] = requeued(run, self.now)
        del self.ends[name]

    def finish(self, name: str) -> None:
        """It ends now, whatever it was meant to last."""
        self.lasts[name] = 0.0
        self._gone(name)

    def lose(self, node: int) -> None:
        """A node fails: the gangs on it end there and then, and wait anew; reservations on it are dropped."""
        self.yard.retire([node])
        for name in [name for name, run in self.running.items() if node in seats(run.decision)[0]]:
            run = self.running.pop(name)
            self.yard.give(run.decision)
            del self.ends[name]
            self.waiting[name] = requeued(run, self.now)
        made = self.plan()
        assert all(node not in seats(each.decision)[0] for each in made.reservations)

    def save(self, step: int) -> None:
        """Every third gang has just written a checkpoint."""
        for number, name in enumerate(sorted(self.running)):
            if (number + step) % 3 == 0:
                self.running[name] = replace(self.running[name], checkpointed=self.now)

    def run_until(self, time: float) -> None:
        """Let gangs end, planning after each moment at which some do."""
        while self.ends and min(self.ends.values()) <= time:
            self.now = min(self.ends.values())
            for name in [name for name, end in self.ends.items() if end <= self.now]:
                self._gone(name)
            self.plan()
        self.now = time

    def check(self, state: QueueState, made: QueuePlan) -> None:
        """What holds for every plan."""
        starts = [start.gang for start in made.starts]
        assert sorted([*starts, *made.reasons]) == sorted(gang.name for gang in state.waiting)
        self._check_seats(made)
        self._check_limits(state, starts)
        self._check_reservations(state, made)
        for preemption in made.preemptions:
            self._check_preemption(state, made, preemption.gang, preemption.victims)
        assert all(reason.text(self.now) for reason in made.reasons.values())

    def _check_seats(self, made: QueuePlan) -> None:
        busy = self.yard.busy.copy()
        bad = self.yard.out | self.yard.columns.bad | self.yard.columns.cordoned
        for start in made.starts:
            held = spread_out(start.decision, self.yard.columns)
            assert not (busy & held).any(), f"{start.gang} sits on somebody"
            assert not bad[held != 0].any(), f"{start.gang} sits on a lost node"
            busy |= held

    def _check_limits(self, state: QueueState, starts: list[str]) -> None:
        ceilings = {team.name: team.ceiling for team in state.teams if team.ceiling is not None}
        quotas = {team.name: team.quota for team in state.teams}
        used: dict[str, int] = {}
        fixed: dict[str, int] = {}
        gangs = [run.gang for run in state.running] + [gang for gang in state.waiting if gang.name in starts]
        for gang in gangs:
            used[gang.team] = used.get(gang.team, 0) + gang.gpus
            fixed[gang.team] = fixed.get(gang.team, 0) + gang.gpus * (not gang.preemptible)
        assert all(used.get(team, 0) <= ceiling for team, ceiling in ceilings.items())
        assert not quotas or all(gpus <= quotas.get(team, 0) for team, gpus in fixed.items())

    def _check_reservations(self, state: QueueState, made: QueuePlan) -> None:
        gangs = {gang.name: gang for gang in state.waiting}
        kept = [(each, spread_out(each.decision, self.yard.columns)) for each in made.reservations]
        for (one, held), (other, theirs) in combinations(kept, 2):
            if (held & theirs).any():
                first, second = sorted((one, other), key=lambda each: each.start)
                lasts = gangs[first.gang].estimate
                assert lasts is not None and first.start + lasts <= second.start, f"{one.gang} and {other.gang} cross"
        for start in made.starts:
            gang, seats = gangs[start.gang], spread_out(start.decision, self.yard.columns)
            ends = self.now + (self.policy.unknown if gang.estimate is None else gang.estimate)
            for each, held in kept:
                if {start.gang, each.gang} <= set(made.elders) and gang.submitted <= gangs[each.gang].submitted:
                    continue  # the first of two elders started late: the second one's start stays as it was said
                assert ends <= each.start or not (seats & held).any(), f"{start.gang} delays {each.gang}"

    def _check_preemption(self, state: QueueState, made: QueuePlan, gang: str, victims: tuple[str, ...]) -> None:
        running = {run.gang.name: run for run in state.running}
        wanted = next(other for other in state.waiting if other.name == gang)
        borrowing = bool(self.teams)
        for victim in victims:
            run = running[victim]
            assert run.gang.preemptible and not run.stopping
            assert self.now - run.started >= self.policy.exempt
            assert run.gang.priority < wanted.priority or borrowing
        yard = self.yard.copy()
        for victim in victims:
            yard.give(running[victim].decision)
        decision = next(each.decision for each in made.reservations if each.gang == gang)
        held = spread_out(decision, yard.columns)
        assert not (yard.busy & held).any(), "the victims' end is not enough"
        for victim in victims:
            assert (spread_out(running[victim].decision, yard.columns) & held).any(), f"{victim} is stopped in vain"


@pytest.fixture(scope="session")
def columns() -> Columns:
    """Two NVL72 racks of four trays each: 32 GPUs in two NVLink domains."""
    return Columns.of(simulate(2, 4))


@pytest.fixture(scope="session")
def world(columns: Columns) -> Callable[..., World]:
    """`world(policy, teams, stop)`, on `columns`."""

    def make(policy: Policy, teams: Iterable[Team] = (), stop: float = 0.0) -> World:
        return World(Yard.on(columns), tuple(teams), policy, stop)

    return make


@pytest.fixture(scope="session")
def seated() -> Callable[[Yard, str, Request], Running]:
    """`seated(yard, name, request)`: a gang put on the yard where `decide` has it, started at 0 s."""

    def seat(yard: Yard, name: str, request: Request) -> Running:
        decision = decide(request, yard)
        assert decision is not None
        yard.take(decision)
        return Running(Gang(name, request), decision, started=0.0)

    return seat
