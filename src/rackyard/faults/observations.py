"""What the acting rooms see, as plain data: the input of attribution and recovery.

Every observation carries two clocks. `wall` (seconds since the epoch) is for people; `mono` (seconds of the
machine's monotonic clock) is for durations, so that a clock that jumps moves no timeout and no measurement.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """When something was seen."""

    wall: float
    mono: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUp(Seen):
    """The agent of a node answers."""

    node: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWarm(Seen):
    """The node's parent process has done the job's imports; `seconds` is how long they took."""

    node: str
    job: str
    seconds: float
    modules: tuple[str, ...]
    problem: str = ""
    """Why ranks of this job will be started fresh here instead of forked; empty when warm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost(Seen):
    """The node's agent is gone or silent: every process on the node is taken for dead."""

    node: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricDown(Seen):
    """A rack's NVLink domain, or one of its switch trays, reports that it is not operational."""

    rack: str
    part: str
    """`nvlink` for the whole domain, else the switch tray's name."""
    text: str
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStarted(Seen):
    """A rank's process exists."""

    job: str
    attempt: int
    rank: int
    node: str
    pid: int
    forked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExited(Seen):
    """A rank's process ended; exactly one of `code` and `signal` is set."""

    job: str
    attempt: int
    rank: int
    node: str
    code: int | None
    signal: int | None
    tail: str = ""
    """The last lines of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone(Seen):
    """A rank finished an optimizer step (counted from 1)."""

    job: str
    attempt: int
    rank: int
    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(Seen):
    """A rank loaded the checkpoint of `step` and goes on from there."""

    job: str
    attempt: int
    rank: int
    step: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDone(Seen):
    """The checkpoint of `step` is published."""

    job: str
    attempt: int
    step: int
    path: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDamaged(Seen):
    """A checkpoint failed its verification and is not used."""

    job: str
    attempt: int
    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksCaptured(Seen):
    """The stacks of a rank that no longer moved."""

    job: str
    attempt: int
    rank: int
    node: str
    text: str


Observation = (
    NodeUp
    | NodeWarm
    | NodeLost
    | FabricDown
    | RankStarted
    | RankExited
    | StepDone
    | Resumed
    | CheckpointDone
    | CheckpointDamaged
    | StacksCaptured
)
