"""Who may be preempted for a gang, and what that would lose."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rackyard.placement.columns import Flags
from rackyard.placement.queue.model import Gang, Policy, Running
from rackyard.placement.queue.teams import Ledger


@dataclass(frozen=True, slots=True)
class Victim:
    """A gang that may be preempted."""

    owner: int
    """Its position among the running."""
    name: str
    gpus: int
    loss: float
    """GPU-seconds: what it did since its last checkpoint or its start, and its restart."""
    over: float | None
    """GPUs that its team would borrow beyond its fair share, for a gang that its team's quota doesn't cover, or would
    no longer; else None."""


def loss(run: Running, now: float, policy: Policy) -> float:
    """GPU-seconds that stopping the gang costs."""
    saved = run.started if run.checkpointed is None else max(run.started, run.checkpointed)
    return run.gang.gpus * (max(0.0, now - saved) + policy.restart)


class Preemptible:
    """The running gangs with their ranks, as they were when the round began."""

    def __init__(self, running: Sequence[Running], ledger: Ledger, now: float, policy: Policy) -> None:
        self._ledger = ledger
        self._policy = policy
        self._running = running
        ranks = ledger.ranks()
        self._covered = np.array([covered for covered, _ in ranks], np.int64)
        self._priority = np.array([priority for _, priority in ranks], np.int64)
        self._gpus = np.array([run.gang.gpus for run in running], np.int64)
        self._open = np.array([_open(run, now, policy) for run in running], np.bool_)
        self._losses = [loss(run, now, policy) for run in running]
        self._team: dict[str, Flags] = {}

    def stop(self, victim: Victim) -> None:
        """It is a victim already: nobody else's."""
        self._open[victim.owner] = False

    def gpus(self, gang: Gang) -> int:
        """GPUs of all that may be preempted for the gang."""
        return int(self._gpus[self._below(gang)].sum())

    def of(self, gang: Gang) -> list[Victim]:
        """Those that rank below the gang; in its own team, those of lower priority. Lowest loss per GPU first."""
        reclaims = self._ledger.quotas and self._ledger.rank(gang)[0] == 1
        displaced = self._ledger.uncovered(gang) if reclaims else set()
        shares: dict[str, float] = {}
        found = []
        for owner in np.flatnonzero(self._below(gang)).tolist():
            run = self._running[owner]
            team = run.gang.team
            if team not in shares:
                shares[team] = self._ledger.over_share(team, gang)
            over = shares[team] if reclaims and (not self._covered[owner] or owner in displaced) else None
            found.append(Victim(owner, run.gang.name, run.gang.gpus, self._losses[owner], over))
        return sorted(found, key=lambda victim: (victim.loss / victim.gpus, victim.name))

    def _below(self, gang: Gang) -> Flags:
        covered, priority = self._ledger.rank(gang)
        if gang.team not in self._team:
            self._team[gang.team] = np.array([run.gang.team == gang.team for run in self._running], np.bool_)
        lower = (self._priority < priority) & ((self._covered <= covered) | self._team[gang.team])
        if self._policy.reclaim == "any":
            lower |= self._covered < covered
        below: Flags = lower & self._open
        return below


def _open(run: Running, now: float, policy: Policy) -> bool:
    return run.gang.preemptible and not run.stopping and now - run.started >= policy.exempt


def courts(victims: Sequence[Victim]) -> Iterator[list[Victim]]:
    """Ever larger sets to choose from: gangs of the team that borrows most beyond its fair share, then with those of
    the next team, and at last all that rank lower.
    """
    shares = sorted({victim.over for victim in victims if victim.over is not None}, reverse=True)
    sizes = set()
    for share in shares:
        court = [victim for victim in victims if victim.over is not None and victim.over >= share]
        sizes.add(len(court))
        yield court
    if len(victims) not in sizes:
        yield list(victims)
