"""What teams have and may have: quotas, ceilings, standing, and which gangs their quotas cover."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rackyard.placement.queue.model import Gang, Running, Team

Rank = tuple[int, int]
"""Whether the team's quota covers the gang, and its priority. Only what ranks lower may be preempted for a gang; what
its team borrows ranks below all that is covered. Ranks fall with every preemption, so none ever runs in a circle."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a gang would break."""

    kind: Literal["ceiling", "quota"]
    gpus: int
    holder: str | None
    """The gang that the team's last GPUs are kept for; None where they are in use."""


class Ledger:
    """GPUs in use by team. Kept up to date while a round starts gangs."""

    def __init__(self, teams: Iterable[Team], running: Sequence[Running]) -> None:
        self._teams = {team.name: team for team in teams}
        self.quotas = bool(self._teams)
        """Without teams there are no quotas: everything is covered."""
        self._used: dict[str, int] = {}
        self._going: dict[str, int] = {}  # of gangs that were told to stop in this round
        self._sizes: dict[str, dict[tuple[bool, int], int]] = {}  # team -> (preemptible, priority) -> GPUs
        self._kept: dict[str, list[tuple[float, Gang]]] = {}  # room for gangs that start later, and when
        self._running = running
        for run in running:
            self.start(run.gang)

    def team(self, name: str) -> Team:
        """The team; one that nobody listed owns nothing."""
        return self._teams.get(name) or Team(name)

    def start(self, gang: Gang) -> None:
        """Charge the gang to its team: it starts, or others were told to stop for it."""
        self._used[gang.team] = self._used.get(gang.team, 0) + gang.gpus
        sizes = self._sizes.setdefault(gang.team, {})
        key = (gang.preemptible, gang.priority)
        sizes[key] = sizes.get(key, 0) + gang.gpus

    def leave(self, gang: Gang) -> None:
        """The gang was told to stop: borrowed GPUs are counted without it. Limits hold till it is gone."""
        self._going[gang.team] = self._going.get(gang.team, 0) + gang.gpus

    def keep(self, gang: Gang, start: float) -> None:
        """From here on, leave the gang's team so much below its limits at that time that the gang can start."""
        self._kept.setdefault(gang.team, []).append((start, gang))

    def standing(self, name: str) -> tuple[bool, float]:
        """Teams below their quota come first, the one with the lowest share of it before others; then those that
        borrow, by what they borrow against their weight."""
        if not self.quotas:
            return (False, 0.0)
        team, used = self.team(name), self._used.get(name, 0)
        if used < team.quota:
            return (False, used / team.quota)
        return (True, (used - team.quota) / team.weight)

    def limit(self, gang: Gang, end: float) -> Limit | None:
        """The limit that the gang would break if it started now and ended at `end`."""
        team, used = self.team(gang.team), self._used.get(gang.team, 0)
        kept = [other for start, other in self._kept.get(gang.team, ()) if start < end]
        if team.ceiling is not None:
            room = team.ceiling - used - gang.gpus
            if sum(other.gpus for other in kept) > room or room < 0:
                return Limit("ceiling", team.ceiling, kept[0].name if room >= 0 else None)
        if self.quotas and not gang.preemptible:
            kept = [other for other in kept if not other.preemptible]
            sizes = self._sizes.get(gang.team, {}).items()
            room = team.quota - sum(gpus for (preemptible, _), gpus in sizes if not preemptible) - gang.gpus
            if sum(other.gpus for other in kept) > room or room < 0:
                return Limit("quota", team.quota, kept[0].name if room >= 0 else None)
        return None

    def ever(self, gang: Gang) -> bool:
        """Whether its team's limits would let it start if the team had nothing else."""
        team = self.team(gang.team)
        within = team.ceiling is None or gang.gpus <= team.ceiling
        return within and (gang.preemptible or not self.quotas or gang.gpus <= team.quota)

    def over_share(self, name: str, gang: Gang) -> float:
        """GPUs that the team would borrow, if the gang ran, beyond its fair share of all that is borrowed; shares go
        by weight.
        """
        used = {**self._used, gang.team: self._used.get(gang.team, 0) + gang.gpus}
        borrowed = {team: gpus - self._going.get(team, 0) - self.team(team).quota for team, gpus in used.items()}
        borrowed = {team: gpus for team, gpus in borrowed.items() if gpus > 0}
        if name not in borrowed:
            return 0.0
        weights = {team: self.team(team).weight for team in borrowed}
        return borrowed[name] - sum(borrowed.values()) * weights[name] / sum(weights.values())

    def ranks(self) -> list[Rank]:
        """The rank of every running gang. A quota covers gangs that may not be preempted, then by priority, then by
        age, for as long as it lasts."""
        covered = [1] * len(self._running)
        if self.quotas:
            used: dict[str, int] = {}
            for at in sorted(range(len(self._running)), key=self._cover_order):
                gang = self._running[at].gang
                used[gang.team] = used.get(gang.team, 0) + gang.gpus
                covered[at] = int(used[gang.team] <= self.team(gang.team).quota)
        return [(cover, run.gang.priority) for cover, run in zip(covered, self._running, strict=True)]

    def uncovered(self, gang: Gang) -> set[int]:
        """The running gangs of its team, by position, that the quota would not cover if the gang ran."""
        used, left = 0, set()
        for at in sorted(range(len(self._running)), key=self._cover_order):
            other = self._running[at].gang
            if other.team == gang.team:
                used += other.gpus
                after = not self._covered_before((other.preemptible, other.priority), gang)
                if used + gang.gpus * after > self.team(gang.team).quota:
                    left.add(at)
        return left

    def rank(self, gang: Gang) -> Rank:
        """The rank that a waiting gang would have if it were started, beside all that were in this round."""
        if not self.quotas:
            return (1, gang.priority)
        sizes = self._sizes.get(gang.team, {}).items()
        before = sum(gpus for key, gpus in sizes if self._covered_before(key, gang))
        return (int(before + gang.gpus <= self.team(gang.team).quota), gang.priority)

    def _cover_order(self, at: int) -> tuple[bool, int, float, str]:
        run = self._running[at]
        return (run.gang.preemptible, -run.gang.priority, run.started, run.gang.name)

    @staticmethod
    def _covered_before(other: tuple[bool, int], gang: Gang) -> bool:
        """Whether its team's gangs like `other` (preemptible, priority) are covered before one that would start now."""
        preemptible, priority = other
        if preemptible != gang.preemptible:
            return not preemptible
        return not preemptible or priority >= gang.priority
