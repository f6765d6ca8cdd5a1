"""The rules of a replay, and what came of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.replay.ledger import Account, Timeline


@dataclass(frozen=True, slots=True)
class Rules:
    """What is assumed beside the trace."""

    queue: Literal["easy", "full"] = "easy"
    """The plain queue (`easy.py`), or that of `placement.queue`, with reservations, elders and preemption."""
    estimate: float = 1.5
    """What a job says it needs, as a multiple of what it will need."""
    restart: float = 300.0
    """Seconds from the seats after a fault to the first new step: start, load the checkpoint, warm up. Assumed."""
    depth: int = 500
    """Gangs that the plain queue's backfill looks at in one pass, as in Slurm (`bf_max_job_test`, slurm.conf(5))."""
    clock: Callable[[], float] = time.process_time
    """CPU seconds, for the time that decisions take."""


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What came of it."""

    policy: str
    accounts: tuple[Account, ...]
    never: tuple[str, ...]
    """Jobs that the policy can't seat even on the empty site."""
    stuck: tuple[str, ...]
    """Jobs that were still waiting when nothing more could happen, for nodes that did not come back, or were given up
    after a thousand faults.
    """
    timeline: Timeline
    decisions: NDArray[np.float64]
    """CPU seconds of every call of the policy, those that found nothing and those for reservations included."""
    failures: int
    """Nodes that failed before the last job ended."""
