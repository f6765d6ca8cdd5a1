"""What the queue looks at: gangs that wait and gangs that run, whose they are, and the rules. Plain frozen values.

All times are seconds on one clock, whichever the caller keeps; all sizes are GPUs.
"""

from dataclasses import dataclass, replace
from typing import Literal

from rackyard.placement.model import Request
from rackyard.placement.yard import Decision


@dataclass(frozen=True, slots=True)
class Team:
    """Who shares the site. ValueError for numbers that mean nothing."""

    name: str
    quota: int = 0
    """GPUs that are the team's own: lent out while it leaves them idle, and taken back when it doesn't."""
    ceiling: int | None = None
    """GPUs that it may have at most, borrowed ones included; None: no limit."""
    weight: float = 1.0
    """Its share, against other teams' weights, of what is borrowed."""

    def __post_init__(self) -> None:
        """Refuse what can't be kept."""
        if self.quota < 0:
            raise ValueError(f"team {self.name}: quota is {self.quota} GPUs: expected 0 or more")
        if self.ceiling is not None and self.ceiling < self.quota:
            raise ValueError(
                f"team {self.name}: its ceiling, {self.ceiling} GPUs, is below its quota, {self.quota} GPUs"
            )
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"team {self.name}: weight is {self.weight}: expected more than 0")


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang that wants seats. Its team is charged for `request.gpus`; spares are the site's insurance."""

    name: str
    request: Request
    team: str = ""
    priority: int = 0
    """More comes first."""
    submitted: float = 0.0
    """When it began to wait: its submission, or its last preemption (`requeued`)."""
    estimate: float | None = None
    """Seconds that it will run; None: nobody said."""
    preemptible: bool = True
    """Whether it may be stopped for others. One that may not never borrows: it could not be asked to give back."""

    def __post_init__(self) -> None:
        """Refuse an estimate that ends before it starts."""
        if self.estimate is not None and not self.estimate > 0:
            raise ValueError(f"gang {self.name}: estimate is {self.estimate} s: expected more than 0 s")

    @property
    def gpus(self) -> int:
        """GPUs asked for."""
        return self.request.gpus


@dataclass(frozen=True, slots=True)
class Running:
    """A gang in its seats."""

    gang: Gang
    decision: Decision
    started: float
    checkpointed: float | None = None
    """When its last checkpoint was complete; None: there is none since it started."""
    stopping: bool = False
    """Told to stop and not gone yet: it is not asked again, and its seats are as good as free."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Seats kept for a waiting gang. Whoever acts on a plan hands its reservations back with the next state."""

    gang: str
    start: float
    """When all its seats are expected to be free."""
    decision: Decision
    firm: bool = False
    """Kept for an elder: neither seats nor start change any more unless a node is lost."""
    cleared: bool = False
    """Others were told to stop for it: it comes before all but elders, for else they were stopped in vain."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """All that a plan depends on beside the clock, the yard and the policy. ValueError for a name that comes twice."""

    waiting: tuple[Gang, ...] = ()
    running: tuple[Running, ...] = ()
    teams: tuple[Team, ...] = ()
    """Without any there are no quotas; with some, a team that isn't listed owns nothing and borrows with weight 1."""
    reservations: tuple[Reservation, ...] = ()
    """Those of the plan before, on the same columns; leave them out when the columns were made anew."""

    def __post_init__(self) -> None:
        """Names are keys."""
        names = [gang.name for gang in self.waiting] + [run.gang.name for run in self.running]
        for what, seen in (("gang", names), ("team", [team.name for team in self.teams])):
            if len(set(seen)) < len(seen):
                twice = min(name for name in seen if seen.count(name) > 1)
                raise ValueError(f"{what} {twice} is there twice")


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules' numbers, in seconds unless said otherwise. The defaults are our choice, for jobs of hours to days.

    ValueError for numbers below 0, and for fewer than one elder or reservation: without these, gangs would starve.
    """

    patience: float = 86_400.0
    """How long a gang waits by its rank alone; after that it can become an elder."""
    elders: int = 1
    """Gangs that may stand before all others at a time because they waited longest beyond their patience."""
    reservations: int = 4
    """Waiting gangs that seats are kept for at a time, those of preemptions aside."""
    overrun: float = 600.0
    """A gang that runs past its estimate is taken to end so long from now."""
    unknown: float = 86_400.0
    """A gang without an estimate is taken to run so long, and then to have run past an estimate."""
    restart: float = 300.0
    """What stopping a gang costs each of its GPUs beyond the work since its last checkpoint."""
    exempt: float = 600.0
    """A gang that was just started is not preempted for so long."""
    worth: float = 300.0
    """Nothing is preempted for a gang that has a reservation within so long."""
    stop: float = 120.0
    """A gang told to stop is taken to be gone so long from now."""
    reclaim: Literal["any", "lower"] = "any"
    """Which borrowers give way to a team's own gangs: those of any priority, or only of a lower one."""
    preemptions: int = 8
    """Kinds of gangs (form, size, team, priority) for which victims are looked for, in one round."""
    preemption_trials: int = 96
    """Decisions made in one round to find whom to preempt."""
    small: int = 36
    """GPUs of the largest gang that advice would move: half an NVL72 domain."""
    consolidation_trials: int = 128
    """Decisions made for one piece of such advice."""
    trials: int = 512
    """Decisions made in one round before gangs further back are left for the next."""

    def __post_init__(self) -> None:
        """Refuse what breaks the promises of the queue."""
        for name in ("elders", "reservations", "trials"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 1 or more")
        for name in ("patience", "overrun", "unknown", "restart", "exempt", "worth", "stop"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)} s: expected 0 s or more")
        for name in ("preemptions", "preemption_trials", "small", "consolidation_trials"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 0 or more")


def requeued(run: Running, now: float) -> Gang:
    """A gang that was preempted, as it waits again: from now on, and with what is left since its last checkpoint, a
    second at least: less would be lost in the digits of the clock, and a run that takes no time crosses no other.
    """
    estimate = run.gang.estimate
    if estimate is not None and run.checkpointed is not None:
        saved = run.checkpointed - run.started
        estimate = max(min(1.0, estimate), estimate - saved) if saved < estimate else estimate
    return replace(run.gang, submitted=now, estimate=estimate)
