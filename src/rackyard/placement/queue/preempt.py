"""Whom to preempt so that a gang fits: the least lost work, and nobody in vain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from rackyard.placement.columns import Ints
from rackyard.placement.model import Request
from rackyard.placement.queue.answer import Preemption
from rackyard.placement.queue.holdings import spread_out
from rackyard.placement.queue.model import Gang
from rackyard.placement.queue.space import Booking, Space
from rackyard.placement.queue.victims import Victim, courts
from rackyard.placement.yard import Decision, Yard

FEW = 8
"""Victims of a set of which each is tried to be left out."""
DOMAINS = 4
"""Single NVLink domains that are tried, the cheapest to clear first."""


class Search:
    """Tries sets of victims, by deciding on a copy of the yard without them. At most so many trials a round."""

    def __init__(self, space: Space, trials: int) -> None:
        self._space = space
        self._budget = trials

    @property
    def spent(self) -> bool:
        """Whether the round's trials are used up."""
        return self._budget <= 0

    def find(self, gang: Gang, blocking: Sequence[Booking], victims: Sequence[Victim]) -> Preemption | None:
        """The cheapest set found whose end lets the gang fit, each of its members needed; None when there is none.

        Seats of the bookings that are `blocking` stay in the way.
        """
        for court in courts(victims):
            choice = _Choice(self._space, gang.request, blocking, court)
            if self.fits(choice, court) is not None:
                return self._cheapest(gang, choice)
        return None

    def fits(self, choice: "_Choice", victims: Sequence[Victim]) -> Decision | None:
        """Seats once those are gone."""
        yard = choice.without(victims)
        if self.spent or choice.request.gpus > self._space.count_free(yard):
            return None
        self._budget -= 1
        return self._space.try_on(choice.request, yard)

    def _cheapest(self, gang: Gang, choice: "_Choice") -> Preemption | None:
        best: Preemption | None = None
        for proposal in self._proposals(choice):
            found = self._pruned(gang.name, choice, proposal)
            if found is not None and (best is None or _worth(found) < _worth(best)):
                best = found
        return best

    def _proposals(self, choice: "_Choice") -> Iterator[list[Victim]]:
        """Sets worth a try: the cheapest gangs of the court; those of one domain; those of the cheapest domains."""
        yield self._cheapest_enough(choice)
        domains = _Domains(choice)
        yield from islice(domains.single(), DOMAINS)
        several = domains.several()
        if several is not None:
            yield several

    def _cheapest_enough(self, choice: "_Choice") -> list[Victim]:
        """As few of the court, cheapest first, as will do: by binary search, for more gone is more room."""
        court = choice.court
        low, high = 1, len(court)
        while low < high:
            middle = (low + high) // 2
            if self.fits(choice, court[:middle]) is not None:
                high = middle
            elif self.spent:
                break
            else:
                low = middle + 1
        return court[:high]

    def _pruned(self, gang: str, choice: "_Choice", proposal: list[Victim]) -> Preemption | None:
        """The proposal without whom it can do without, the costliest first; None when it doesn't do.

        Of a few, each is asked about; of many, only those whose seats the decision would have.
        """
        decision = self.fits(choice, proposal)
        if decision is None:
            return None
        few = len(proposal) <= FEW
        left = proposal if few else self._touched(decision, proposal)
        for victim in sorted(left, key=lambda victim: (-victim.loss, victim.name)):
            fewer = [other for other in left if other is not victim]
            again = self.fits(choice, fewer) if victim in left else None
            if again is not None:
                decision, left = again, fewer if few else self._touched(again, fewer)
        left = self._touched(decision, left)
        names = tuple(sorted(victim.name for victim in left))
        return Preemption(gang, names, decision, sum(victim.loss for victim in left))

    def _touched(self, decision: Decision, victims: list[Victim]) -> list[Victim]:
        """The victims whose seats are used: without the others the decision holds as well."""
        owners = set(self._space.holdings.on(spread_out(decision, self._space.columns)))
        return [victim for victim in victims if victim.owner in owners]


def _worth(found: Preemption) -> tuple[float, int, tuple[str, ...]]:
    return (found.lost, len(found.victims), found.victims)


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """What is wanted, what stays in the way, and who could go."""

    space: Space
    request: Request
    blocking: Sequence[Booking]
    court: list[Victim]

    def without(self, victims: Sequence[Victim]) -> Yard:
        """The yard once those are gone."""
        return self.space.without(self.space.holdings.flags(victim.owner for victim in victims), self.blocking)


class _Domains:
    """What clearing each pool of victims would free, and cost."""

    def __init__(self, choice: _Choice) -> None:
        space, self._request = choice.space, choice.request
        holdings, columns = space.holdings, space.columns
        self._free = np.add.reduceat(space.free_by_node(choice.without(())), columns.starts[:-1])
        self._all = np.add.reduceat(columns.size, columns.starts[:-1])
        by_owner = {victim.owner: victim for victim in choice.court}
        chosen = holdings.flags(by_owner)[holdings.owners]
        self._in: dict[int, dict[int, int]] = {}  # pool -> owner -> its GPUs there
        pools, owners = columns.pool[holdings.nodes[chosen]], holdings.owners[chosen]
        sizes = np.bitwise_count(holdings.masks[chosen])
        for pool, owner, size in zip(pools.tolist(), owners.tolist(), sizes.tolist(), strict=True):
            there = self._in.setdefault(pool, {})
            there[owner] = there.get(owner, 0) + size
        self._victims = by_owner

    def single(self) -> list[list[Victim]]:
        """Victims by domain that could hold the gang alone, the cheapest first."""
        gpus = self._request.gpus
        found = []
        for pool in sorted(self._in):
            chosen = self._enough(pool, gpus) if self._all[pool] >= gpus else None
            if chosen:
                found.append((sum(victim.loss for victim in chosen), pool, chosen))
        return [chosen for _, _, chosen in sorted(found, key=lambda each: each[:2])]

    def several(self) -> list[Victim] | None:
        """Victims of whole domains, those that give most segments for what they lose first; None when too few."""
        request = self._request
        segment = min(request.segment_gpus or 1, request.gpus)
        room: Ints = (self._free + self._freed()) // segment
        cost = {pool: sum(self._victims[owner].loss for owner in there) for pool, there in self._in.items()}
        able = [int(pool) for pool in np.flatnonzero(room)]
        left, owners = -(-request.gpus // segment), set[int]()
        for pool in sorted(able, key=lambda pool: (cost.get(pool, 0.0) / int(room[pool]), pool)):
            owners |= set(self._in.get(pool, ()))
            left -= int(room[pool])
            if left <= 0:
                return [self._victims[owner] for owner in sorted(owners)]
        return None

    def _freed(self) -> Ints:
        freed = np.zeros(len(self._free), np.int32)
        for pool, there in self._in.items():
            freed[pool] = sum(there.values())
        return freed

    def _enough(self, pool: int, gpus: int) -> list[Victim] | None:
        """The victims with the least loss for their GPUs here, until there is room for so many."""
        there, room = self._in[pool], int(self._free[pool])
        chosen = []
        for owner in sorted(there, key=lambda owner: (self._victims[owner].loss / there[owner], owner)):
            if room >= gpus:
                break
            chosen.append(self._victims[owner])
            room += there[owner]
        return chosen if room >= gpus else None
