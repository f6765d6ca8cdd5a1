"""What came to nothing, and for how long it is left alone."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rackyard.controller.kube.objects import GangPlan

MOST_REST = 60.0
"""Seconds between two plans of a gang at most."""
_DAY = 86400.0
_NO_FAULT = frozenset({"Ended", "Preempted"})

Lately = Callable[[str, float], bool]
"""Whether an RFC 3339 time lies within so many seconds before now."""


@dataclass
class Backoff:
    """Keys that failed are left alone: `first` seconds, doubled with each failure in a row, `most` at most."""

    first: float
    most: float
    _failed: dict[str, tuple[datetime, int]] = field(default_factory=dict)

    def failed(self, key: str, now: datetime) -> None:
        """It failed, once more."""
        self._failed[key] = (now, self._failed.get(key, (now, 0))[1] + 1)

    def worked(self, key: str) -> None:
        """It did not."""
        self._failed.pop(key, None)

    def left(self, key: str, now: datetime) -> float:
        """Seconds for which it is still left alone; 0 for none. A clock that was set back is no reason to wait."""
        at, times = self._failed.get(key, (now, 0))
        wait = min(self.most, self.first * 2.0 ** (times - 1))
        return max(0.0, wait - past) if times and (past := (now - at).total_seconds()) >= 0 else 0.0

    def keep(self, keys: Collection[str]) -> None:
        """Forget all others."""
        self._failed = {key: each for key, each in self._failed.items() if key in keys}

    def waiting(self, now: datetime) -> frozenset[str]:
        """All that are left alone; the others are forgotten."""
        self._failed = {key: each for key, each in self._failed.items() if self.left(key, now)}
        return frozenset(self._failed)


def fruitless(plans: Iterable[GangPlan]) -> list[GangPlan]:
    """Plans that have ended without their pods ever having been on their nodes, oldest first."""
    ended = [plan for plan in plans if plan.ended and not plan.status.bound_at and plan.status.reason not in _NO_FAULT]
    return sorted(ended, key=lambda plan: plan.spec.attempt)


def pause(times: int) -> float:
    """Seconds from one fruitless plan to the next, the more there were of late."""
    return min(MOST_REST, 2.0 ** (times - 2)) if times > 2 else 0.0


def displaced_in_vain(plans: Sequence[GangPlan], lately: Lately) -> int:
    """How many fruitless plans had others go first, where that is to be left for a while: a minute after the first,
    then four times as long with each, up to a day. 0 where it may be done.
    """
    vain = [plan for plan in fruitless(plans) if plan.spec.victims]
    wait = min(_DAY, 60.0 * 4.0 ** (len(vain) - 1)) if vain else 0.0
    return len(vain) if vain and lately(vain[-1].status.ended_at, wait) else 0
