"""What a real scheduler did, beside what its restated rule does on the same yard."""

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rackyard.placement.columns import Columns, Ints
from rackyard.placement.model import Request
from rackyard.placement.replay.policies.per_level import per_level
from rackyard.placement.replay.policies.tier_by_tier import nearest, tier_by_tier
from rackyard.placement.yard import Decision, Yard
from testbed.rules.cases import Ask, Case, Seated

Rule = Callable[[Request, Yard, Ints | None], Decision | None]


def _per_level(request: Request, yard: Yard, rank: Ints | None) -> Decision | None:
    return per_level(request, yard) if rank is None else None  # Kueue knows no ties


RULES: Mapping[str, Rule] = {
    "any tier": tier_by_tier,
    "domain": tier_by_tier,
    "partitions": tier_by_tier,
    "soft": nearest,
    "preferred": _per_level,
    "required": _per_level,
    "slices": _per_level,
}
"""The restated rule for each mode."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Nodes of a gang in each domain, and the number of blocks."""

    nodes: frozenset[int]
    domains: Mapping[int, int]
    blocks: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """One gang; None: not admitted. `others` is the rule's outcome in other orders of what is alike to it."""

    case: int
    ask: Ask
    real: Spread | None
    ours: Spread | None
    others: tuple[Spread | None, ...]

    @property
    def admitted(self) -> bool:
        """Whether both admitted it, or neither."""
        return (self.real is None) == (self.ours is None)

    @property
    def placed(self) -> bool:
        """Whether both did."""
        return self.real is not None and self.ours is not None

    @property
    def possible(self) -> bool:
        """Whether the rule puts as many pods into each domain as the scheduler, in one order of what is alike to it."""
        if self.real is None:
            return self.ours is None
        return any(one is not None and one.domains == self.real.domains for one in (self.ours, *self.others))


def verdicts(cases: Sequence[Case], found: Mapping[tuple[int, int], Seated]) -> list[Verdict]:
    """Each gang of each case on the yard that the scheduler's own earlier placements left."""
    return [verdict for case in cases for verdict in _of_case(case, found)]


def _of_case(case: Case, found: Mapping[tuple[int, int], Seated]) -> Iterator[Verdict]:
    columns = Columns.of(case.site)
    yard = Yard.on(columns)
    for name, gpus in case.busy.items():
        _take(yard, columns.index[name], gpus)
    for at, ask in enumerate(case.asks):
        seated, rule, request = found[case.number, at], RULES[ask.mode], ask.request()
        real = _spread([columns.index[name] for name in seated], columns)
        orders = itertools.permutations(range(len(columns.total)))
        others = [rule(request, yard, np.array(order, np.int32)) for order in orders]
        ours = _of(rule(request, yard, None), columns)
        yield Verdict(case.number, ask, real, ours, tuple(_of(one, columns) for one in others))
        for name, pods in seated.items():
            _take(yard, columns.index[name], pods * ask.gpus)


def _take(yard: Yard, node: int, gpus: int) -> None:
    """Put the lowest free GPUs of a node in use."""
    for bit in range(32):
        if gpus and not int(yard.busy[node]) >> bit & 1:
            yard.busy[node] |= np.uint32(1 << bit)
            gpus -= 1


def _of(decision: Decision | None, columns: Columns) -> Spread | None:
    return None if decision is None else _spread(decision.nodes.tolist(), columns)


def _spread(nodes: Sequence[int], columns: Columns) -> Spread | None:
    if not nodes:
        return None
    pools = [int(columns.pool[node]) for node in nodes]
    blocks = {int(columns.tier["block"][pool]) for pool in pools}
    return Spread(frozenset(nodes), {pool: pools.count(pool) for pool in sorted(set(pools))}, len(blocks))


def shares(found: Sequence[Verdict]) -> dict[str, dict[str, float]]:
    """By mode, and for `all`: how many gangs there were, and how many of them agreed in what."""
    modes = dict.fromkeys(verdict.ask.mode for verdict in found)
    return {
        mode: _shares([verdict for verdict in found if mode in ("all", verdict.ask.mode)]) for mode in (*modes, "all")
    }


def _shares(found: Sequence[Verdict]) -> dict[str, float]:
    pairs = [(one.real, one.ours) for one in found if one.real is not None and one.ours is not None]
    orders = [
        statistics.fmean(len(each.domains) for each in (one.others if any(one.others) else (one.ours,)) if each)
        for one in found
        if one.placed
    ]
    return {
        "gangs": len(found),
        "admitted alike": sum(one.admitted for one in found),
        "placed by both": len(pairs),
        "domains": sum(len(real.domains) == len(ours.domains) for real, ours in pairs),
        "blocks": sum(real.blocks == ours.blocks for real, ours in pairs),
        "same domains": sum(real.domains == ours.domains for real, ours in pairs),
        "same nodes": sum(real.nodes == ours.nodes for real, ours in pairs),
        "possible": sum(one.possible for one in found),
        "domains a gang": round(statistics.fmean(len(real.domains) for real, _ in pairs), 3) if pairs else 0.0,
        "of the rule": round(statistics.fmean(len(ours.domains) for _, ours in pairs), 3) if pairs else 0.0,
        "of the rule, any order": round(statistics.fmean(orders), 3) if orders else 0.0,
    }
