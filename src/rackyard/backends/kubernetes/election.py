"""Who may lead, decided from a coordination.k8s.io/v1 Lease: the rules of client-go's leader election, without clocks.

Nobody's clock is trusted but our own, and of that only how much time has passed: a lease runs from the moment at which
we *saw* it change (client-go tools/leaderelection: `observedTime`). The holder counts from before it asked, and gives
up after `deadline`; everybody else counts from after they saw, and waits for `duration`. So no two hold at once while
their clocks' speeds differ by less than `duration / deadline`, whatever the clocks say and however slow the network is.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from rackyard.errors import UsageError

_JITTER = 1.2
"""How much longer than `retry` client-go's tries may be apart (JitterFactor)."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. A holder that could not renew for `deadline` has lost; others take over `duration` after the last
    change they saw; tries are `retry` apart. The defaults are those of client-go's users (kube-scheduler and others).
    UsageError when a holder could not give up before another takes over.
    """

    duration: int = 15
    deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration > self.deadline > self.retry * _JITTER > 0:
            raise UsageError(
                f"duration {self.duration}, deadline {self.deadline:g}, retry {self.retry:g} are no timing of a lease",
                fix=f"duration over deadline, deadline over {_JITTER:g} × retry, retry over 0",
            )


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """The `spec` of a Lease as far as it says who leads. Times are for people and other clients, and never counted."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class Lease(msgspec.Struct, frozen=True):
    """A Lease as the API server gives it. An object is known by its uid: one that was made anew is another."""

    metadata: _Meta = _Meta()
    spec: Record = Record()


@dataclass(frozen=True, slots=True)
class Seen:
    """A lease, and when on our own clock it was first seen as it is."""

    lease: Lease
    at: float


def observe(before: Seen | None, lease: Lease, now: float) -> Seen:
    """What is known after a reading. A reading that says nothing new does not start the time anew; what others change
    beside the record (labels, annotations) is nothing new.
    """
    if before and before.lease.spec == lease.spec and before.lease.metadata.uid == lease.metadata.uid:
        return Seen(lease, before.at)
    return Seen(lease, now)


@dataclass(frozen=True, slots=True)
class Acquire:
    """Take it: create it where there is none, else write it over. `transitions` is how often it changed hands."""

    transitions: int


@dataclass(frozen=True, slots=True)
class Renew:
    """It is ours by its word: say so again."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody else's, for that many seconds at least."""

    seconds: float


def decide(seen: Seen | None, me: str, now: float, duration: int) -> Acquire | Renew | Wait:
    """What a candidate called `me` does next. `duration` in seconds stands in where the lease names none."""
    if seen is None:
        return Acquire(0)
    record = seen.lease.spec
    if record.holder_identity == me:
        return Renew()
    transitions = (record.lease_transitions or 0) + 1
    if not record.holder_identity:
        return Acquire(transitions)
    left = seen.at + (record.lease_duration_seconds or duration) - now
    return Wait(left) if left > 0 else Acquire(transitions)


def spec_of(act: Acquire | Renew, before: Record, me: str, duration: int, wall: datetime) -> dict[str, Any]:
    """The fields of `spec` that an act writes; what else is in it stays. `wall` is what our clock says, for people."""
    now = micro_time(wall)
    return {
        "holderIdentity": me,
        "leaseDurationSeconds": duration,
        "renewTime": now,
        "acquireTime": now if isinstance(act, Acquire) else before.acquire_time or now,
        "leaseTransitions": act.transitions if isinstance(act, Acquire) else before.lease_transitions or 0,
    }


def released(before: Record, wall: datetime) -> dict[str, Any]:
    """The fields of `spec` of a lease that was given back, as client-go leaves it: nobody's, and old in a second."""
    now = micro_time(wall)
    return {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "renewTime": now,
        "acquireTime": now,
        "leaseTransitions": before.lease_transitions or 0,
    }


def micro_time(wall: datetime) -> str:
    """A time as meta/v1 MicroTime is written: UTC, always six digits of a second."""
    return wall.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
