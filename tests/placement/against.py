"""The engine against the oracle on one instance."""

from dataclasses import dataclass

from instances import Instance, instance
from oracle import Optimum, optimum
from terms import cost, domains

from rackyard.placement import Yard, decide
from rackyard.placement.cost import TERMS

NAMES = tuple(name for name, _ in TERMS)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of it. `outcome` is one of

    equal       the engine's cost is the proven optimum
    neither     nothing fits, as is proven, and the engine says so
    worse       the engine's cost is more, in a term whose optimum is proven
    refused     the engine places nothing where the oracle found a place
    better      the engine's cost is less than the proven optimum, or it fits what can't: one of the two is wrong
    unproven    the oracle ran out of time before it could tell
    """

    instance: Instance
    ours: tuple[int, ...] | None
    again: tuple[int, ...] | None
    """The engine's own placement, its cost counted anew."""
    best: Optimum
    outcome: str

    @property
    def term(self) -> int:
        """The first term that differs, where both placed it; -1 where none does."""
        if self.ours is None or not self.best.cost:
            return -1
        return next((at for at, (one, two) in enumerate(zip(self.ours, self.best.cost, strict=True)) if one != two), -1)

    @property
    def gap(self) -> float:
        """How much more the first different term is, as a part of the optimum (of 1 where that is 0)."""
        if self.term < 0 or self.ours is None or self.best.cost is None:
            return 0.0
        return (self.ours[self.term] - self.best.cost[self.term]) / max(1, self.best.cost[self.term])


def judge(seed: int) -> Verdict:
    """The verdict on the instance of a seed."""
    one = instance(seed)
    decision = decide(one.request, yard := Yard.open(one.site, one.occupancy))
    best = optimum(one.request, one.site, one.occupancy)
    ours = again = None
    if decision is not None:
        ours = decision.cost
        found = domains(one.request, one.site, one.occupancy)
        at = {name: number for number, domain in enumerate(found) for name in domain.usable}
        names = [yard.columns.names[node] for node in decision.nodes.tolist()]
        again = cost([at[name] for name in names], one.request, found, len(one.site.nodes[0].gpus))
    return Verdict(one, ours, again, best, _outcome(ours, best))


def _outcome(ours: tuple[int, ...] | None, best: Optimum) -> str:
    if best.cost is None:
        return "neither" if ours is None else "better"
    if not best.cost:
        return "unproven"
    if ours is None:
        return "refused"
    first = next((at for at, (one, two) in enumerate(zip(ours, best.cost, strict=True)) if one != two), len(ours))
    if first >= best.proven and not best.exact:
        return "unproven"
    if ours == best.cost:
        return "equal"
    return "worse" if ours > best.cost else "better"
