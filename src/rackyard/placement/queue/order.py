"""Who is looked at first: elders, then by priority, standing and age."""

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator

from rackyard.placement.queue.model import Gang
from rackyard.placement.queue.teams import Ledger

Key = tuple[bool, bool, float, float, str]


def by_age(gangs: Iterable[Gang]) -> list[Gang]:
    """The longest wait first; names decide between equals."""
    return sorted(gangs, key=lambda gang: (gang.submitted, gang.name))


def line(gangs: Iterable[Gang], ledger: Ledger, promised: Collection[str]) -> Iterator[Gang]:
    """Gangs by priority; within one, teams below their quota before those that borrow; gangs that have a reservation
    before those that don't; the team that stands lowest first; then by age.

    Standings are read anew after each gang: a caller who starts it should have charged it to the ledger by then.
    """
    ranks: dict[int, dict[str, list[Gang]]] = {}
    for gang in by_age(gangs):
        ranks.setdefault(gang.priority, {}).setdefault(gang.team, []).append(gang)
    for priority in sorted(ranks, reverse=True):
        yield from _one_priority(ranks[priority], ledger, promised)


def _one_priority(teams: dict[str, list[Gang]], ledger: Ledger, promised: Collection[str]) -> Iterator[Gang]:
    queues = {team: deque(sorted(gangs, key=lambda gang: gang.name not in promised)) for team, gangs in teams.items()}

    def key(team: str) -> Key:
        first = queues[team][0]
        borrows, share = ledger.standing(team)
        return (borrows, first.name not in promised, share, first.submitted, first.name)

    heap = [(key(team), team) for team in queues]
    heapq.heapify(heap)
    while heap:
        _, team = heapq.heappop(heap)
        yield queues[team].popleft()
        if queues[team]:
            heapq.heappush(heap, (key(team), team))
