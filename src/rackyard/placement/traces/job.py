"""What every trace is read into: gangs with the moment they came, their GPUs and how long they ran."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

CHECKPOINT_EVERY = 1800.0
"""Seconds between checkpoints where a trace does not say, as none of the public ones does. Assumed."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One gang of a trace. Times are seconds. ValueError for values that mean nothing."""

    name: str
    submit: float
    """Seconds after the start of the trace."""
    gpus: int
    duration: float
    """Seconds on its GPUs, waiting not counted."""
    team: str = ""
    priority: int = 0
    """Higher goes first."""
    segment_gpus: int | None = None
    """GPUs that must share an NVLink domain; None: the trace does not say."""
    kind: str = ""
    """The kinds of GPU that will do, as the trace writes them (`V100M16|V100M32`); empty: any."""
    gpus_per_node: int | None = None
    """GPUs on each of its nodes; None: the trace does not say."""
    checkpoint_every: float = CHECKPOINT_EVERY

    def __post_init__(self) -> None:
        """Refuse what could never run."""
        if not (math.isfinite(self.submit) and self.submit >= 0):
            raise ValueError(f"submit is {self.submit}: expected seconds from the start of the trace")
        for name in ("gpus", "segment_gpus", "gpus_per_node"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: expected at least 1")
        for name in ("duration", "checkpoint_every"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}: expected seconds above 0")

    @property
    def gpu_seconds(self) -> float:
        """GPUs times duration."""
        return self.gpus * self.duration


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row of the trace that gives no job. `line` is None for what was read well and left out later."""

    file: str
    line: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order in which they came, what was left out, and what was assumed. Sorts the jobs it is given."""

    jobs: tuple[TraceJob, ...]
    source: str
    """What it was read or made from, for people."""
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Bring the jobs into the order of arrival; those of one moment stay in the order given."""
        object.__setattr__(self, "jobs", tuple(sorted(self.jobs, key=lambda job: job.submit)))

    @property
    def gpu_seconds(self) -> float:
        """The work of all jobs."""
        return math.fsum(job.gpu_seconds for job in self.jobs)

    @property
    def window(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.jobs[-1].submit - self.jobs[0].submit if self.jobs else 0.0

    def reasons(self) -> Mapping[str, int]:
        """Why rows were left out and how many for each reason, most first."""
        return dict(Counter(row.why for row in self.dropped).most_common())
