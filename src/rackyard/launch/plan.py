"""What a backend is told to start: one process a rank, with everything already decided."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankPlan:
    """One rank's process."""

    rank: int
    local_rank: int
    node: str
    env: Mapping[str, str]
    """Only what differs from rank to rank; `LaunchPlan.env` is the rest."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One attempt of one job, ready to start."""

    job: str
    attempt: int
    run: str
    """The command as the user wrote it."""
    cwd: str
    env: Mapping[str, str]
    """The job's environment, the same for every rank; the warm parent is started with it."""
    warm: tuple[str, ...]
    """Modules imported before the ranks are forked; empty: every rank starts as a fresh process."""
    ranks: tuple[RankPlan, ...]
    log_dir: str
    """Logs are `<log_dir>/attempt-<attempt>/rank-<rank>.log`, stdout and stderr together."""

    def nodes(self) -> tuple[str, ...]:
        """The nodes in use, in rank order, each once."""
        return tuple(dict.fromkeys(rank.node for rank in self.ranks))
