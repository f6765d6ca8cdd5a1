"""Advice: which small gangs to move so that whole NVLink domains are free again. Nothing here acts on it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackyard.placement.columns import Columns, Masks
from rackyard.placement.decide import decide
from rackyard.placement.queue.holdings import spread_out
from rackyard.placement.queue.model import Gang, Policy, QueueState, Running
from rackyard.placement.queue.space import Decide
from rackyard.placement.queue.victims import loss
from rackyard.placement.yard import Decision, Yard

_DEFAULT = Policy()


@dataclass(frozen=True, slots=True)
class Move:
    """A gang to stop and to start again elsewhere."""

    gang: str
    decision: Decision
    """Its new seats: free now, or freed by this move and those before it."""
    ranks: int
    """Ranks that sit on another node afterwards."""
    lost: float
    """GPU-seconds: its work since its last checkpoint, and its restart."""


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Moves, to be made in this order, and what they free."""

    domains: tuple[str, ...]
    """Racks of the NVLink domains that nobody uses afterwards (`r01+r02` for one over two)."""
    moves: tuple[Move, ...]
    gang: str | None
    """The waiting gang that fits afterwards; None where one free domain is all that was asked for."""
    decision: Decision | None
    """The gang's seats."""

    @property
    def ranks(self) -> int:
        """Ranks that sit on another node afterwards."""
        return sum(move.ranks for move in self.moves)

    @property
    def lost(self) -> float:
        """GPU-seconds that the moves cost."""
        return sum(move.lost for move in self.moves)


@dataclass(frozen=True, slots=True, eq=False)
class _Tenant:
    run: Running
    pools: frozenset[int]
    lost: float
    movable: bool


def consolidate(
    now: float, state: QueueState, yard: Yard, gang: Gang | None, policy: Policy = _DEFAULT, decide: Decide = decide
) -> Consolidation | None:
    """The moves that free one whole domain, or with a `gang` as many domains as let it fit; None when none do, or when
    it fits already.

    Domains are cleared one after another, the one that loses least for its size first. Everybody on it must be small
    (`Policy.small`), preemptible, and find seats elsewhere: off the domains being cleared and off what is reserved for
    others. Nobody is moved twice.
    """
    if gang is not None and decide(gang.request, yard) is not None:
        return None
    tenants = [_tenant(run, yard.columns, now, policy) for run in state.running]
    kept = _kept(state, yard.columns, gang)
    pools = _by_cost(tenants, yard, kept)
    found = _cleared(pools, gang, _Moving(yard, kept, tenants, decide), policy.consolidation_trials)
    if found is None or found.decision is None:
        return found
    # A domain that the gang does not use after all was cleared in vain.
    used = set(yard.columns.pool[np.concatenate((found.decision.nodes, found.decision.spares))].tolist())
    fewer = [pool for pool in pools if pool in used]
    again = _cleared(fewer, gang, _Moving(yard, kept, tenants, decide), policy.consolidation_trials)
    return again if again is not None and again.lost <= found.lost else found


class _Moving:
    """A yard on which one domain after another is cleared and closed."""

    def __init__(self, yard: Yard, kept: Masks, tenants: Sequence[_Tenant], decide: Decide) -> None:
        self.open = yard
        self.yard = yard.copy()
        self.moves: dict[str, Move] = {}
        self.cleared: list[int] = []
        self.trials = 0
        self._kept = kept
        self._tenants = tenants
        self._decide = decide
        self._entered: set[int] = set()

    def clear(self, pool: int) -> bool:
        """Move everybody off the pool, the largest first; False, and nothing has changed, when somebody must stay."""
        if pool in self._entered:
            return False
        on = [tenant for tenant in self._tenants if pool in tenant.pools and tenant.run.gang.name not in self.moves]
        yard = self.yard.copy()
        yard.retire(range(*_span(yard.columns, pool)))
        moves = []
        for tenant in sorted(on, key=lambda tenant: (-tenant.run.gang.gpus, tenant.run.gang.name)):
            yard.give(tenant.run.decision)
            self.trials += 1
            decision = self._decide(tenant.run.gang.request, Yard(yard.columns, yard.busy | self._kept, yard.out))
            if decision is None:
                return False
            yard.take(decision)
            ranks = _ranks_moved(tenant.run.decision, decision)
            moves.append(Move(tenant.run.gang.name, decision, ranks, tenant.lost))
        self.yard = yard
        self.cleared.append(pool)
        for move in moves:
            self.moves[move.gang] = move
            self._entered |= set(yard.columns.pool[move.decision.nodes].tolist())
        return True

    def fits(self, gang: Gang) -> Decision | None:
        """Seats for the gang with the cleared pools open again."""
        self.trials += 1
        return self._decide(gang.request, Yard(self.yard.columns, self.yard.busy | self._kept, self.open.out))


def _cleared(pools: Sequence[int], gang: Gang | None, moving: _Moving, trials: int) -> Consolidation | None:
    for pool in pools:
        if moving.trials >= trials:
            return None
        if not moving.clear(pool):
            continue
        decision = None if gang is None else moving.fits(gang)
        if gang is None or decision is not None:
            racks = tuple(moving.yard.columns.rack_names[pool] for pool in moving.cleared)
            return Consolidation(racks, tuple(moving.moves.values()), None if gang is None else gang.name, decision)
    return None


def _tenant(run: Running, columns: Columns, now: float, policy: Policy) -> _Tenant:
    nodes = np.concatenate((run.decision.nodes, run.decision.spares))
    movable = run.gang.preemptible and not run.stopping and run.gang.gpus <= policy.small
    return _Tenant(run, frozenset(columns.pool[nodes].tolist()), loss(run, now, policy), movable)


def _by_cost(tenants: Sequence[_Tenant], yard: Yard, kept: Masks) -> list[int]:
    """Pools that are in use by movable gangs, and by or for nobody else, those that lose least for their size first."""
    columns = yard.columns
    known = np.zeros(len(columns.names), np.uint32)
    cost: dict[int, float] = {}
    fixed: set[int] = set()
    for tenant in tenants:
        known |= spread_out(tenant.run.decision, columns)
        for pool in tenant.pools:
            cost[pool] = cost.get(pool, 0.0) + tenant.lost
        fixed |= set() if tenant.movable else tenant.pools
    fixed |= set(columns.pool[((yard.busy & ~known) | kept) != 0].tolist())
    able = [pool for pool in cost if pool not in fixed and not columns.loose[pool]]
    return sorted(able, key=lambda pool: (cost[pool] / int(columns.domain_gpus[pool]), pool))


def _kept(state: QueueState, columns: Columns, gang: Gang | None) -> Masks:
    """What is reserved for others."""
    kept = np.zeros(len(columns.names), np.uint32)
    for reservation in state.reservations:
        if gang is None or reservation.gang != gang.name:
            kept |= spread_out(reservation.decision, columns)
    return kept


def _ranks_moved(old: Decision, new: Decision) -> int:
    before, after = (np.repeat(seats.nodes, np.bitwise_count(seats.gpus)) for seats in (old, new))
    return int((before != after).sum())


def _span(columns: Columns, pool: int) -> tuple[int, int]:
    return int(columns.starts[pool]), int(columns.starts[pool + 1])
