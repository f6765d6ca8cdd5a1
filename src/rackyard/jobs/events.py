"""Everything that can happen to a job. The store holds these; a job's state is always their fold.

What the world did (`Observation`) and what Rackyard decided and did about it stand in one stream, in the order
in which they were stored, so that `why`, `attempts` and the incident report all read the same history.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rackyard.faults import observations as seen
from rackyard.faults.observations import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A job came in; `spec` is the checked job file as data, complete: every default is filled in."""

    job: str
    spec: Mapping[str, Any]
    workdir: str
    site: str
    """Digest of the site it was submitted against."""
    accept: tuple[str, ...] = ()
    """Rules of the site's audit whose errors do not keep it from starting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """There is no seat for the job now."""

    constraint: str
    summary: str
    fix: str
    racks: tuple[str, ...] = ()
    """One line a rack: what binds there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Attempt `attempt` has its seats; `placement` is the encoded `placement.Placement`."""

    attempt: int
    placement: Mapping[str, Any]
    moved: int
    """How many ranks sit elsewhere than in the attempt before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The attempt's ranks are being started; stored before the backend is asked, so that it is asked again
    after a crash."""

    attempt: int
    resume_step: int | None
    port: int
    damaged: tuple[str, ...] = ()
    """Checkpoints that did not verify and were passed over, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Steps that ranks completed since the last such event."""

    attempt: int
    steps: Mapping[int, int]
    """Newest completed step of each rank that moved."""
    points: tuple[tuple[int, Mapping[str, float]], ...] = ()
    """(step, metrics) as one rank reported them, for curves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRequested:
    """Somebody asked for a fault on the simulated site, at once or when the job completes `at_step`."""

    fault: int
    kind: str
    target: str
    """A rank, node or rack; empty: chosen when it strikes."""
    at_step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjected:
    """The simulated fault strikes `target`; stored first, then done."""

    fault: int
    attempt: int
    kind: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultDetected:
    """The attempt is broken, and this is the root cause found."""

    attempt: int
    cause: str
    subject: str
    summary: str
    signature: str
    """The same for the same fault, whatever the step, pid or time: what `three times in the same way` compares."""
    evidence: tuple[str, ...] = ()
    echoes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """What to do about the fault; stored before anything is done."""

    attempt: int
    action: str
    reason: str
    next_step: str
    nodes: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """The attempt's ranks are being ended."""

    attempt: int
    stacks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """No process of the attempt is left."""

    attempt: int
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Somebody asked for the job to end."""

    by: str = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The job is over: `succeeded`, `failed` or `cancelled`."""

    outcome: str
    reason: str
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordoned:
    """A node, or a rack's NVLink domain, must not be used until it is returned. In the stream `site`."""

    subject: str
    why: str
    job: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """Somebody returned a node or a rack to service. In the stream `site`."""

    subject: str


SiteEvent = Cordoned | Returned
JobEvent = (
    Submitted
    | Rejected
    | Placed
    | Launched
    | Progress
    | FaultRequested
    | FaultInjected
    | FaultDetected
    | Advised
    | Stopping
    | AttemptEnded
    | CancelRequested
    | Finished
)
Event = JobEvent | SiteEvent | Observation

KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        *(Submitted, Rejected, Placed, Launched, Progress, FaultRequested, FaultInjected, FaultDetected),
        *(Advised, Stopping, AttemptEnded, CancelRequested, Finished, Cordoned, Returned),
        *(seen.NodeUp, seen.NodeWarm, seen.NodeLost, seen.FabricDown, seen.RankStarted, seen.RankExited),
        *(seen.Resumed, seen.CheckpointDone, seen.CheckpointDamaged, seen.StacksCaptured),
    )
}
"""Every kind of event that is stored. `StepDone` is not among them: steps are stored as `Progress`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One stored event with its place in the stream and the two clocks at which it was stored."""

    stream: str
    seq: int
    wall: float
    mono: float
    event: Event


def encode(event: Event) -> bytes:
    """The event's fields as JSON; its kind is stored beside it."""
    return msgspec.json.encode(event)


def decode(kind: str, body: bytes | str) -> Event:
    """The event of `kind` back from its JSON. KeyError for an unknown kind, msgspec.ValidationError for a bad body."""
    return msgspec.json.decode(body, type=KINDS[kind])
