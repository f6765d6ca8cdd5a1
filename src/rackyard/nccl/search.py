"""NCCL's graph search: from paths to channels, for ring, tree, collnet and nvls.

A graph is searched for in two passes. The first begins with the highest bandwidth and relaxes one limit after the other
(one order for all channels, tree pattern, path types, crossing NICs, bandwidth) until something is found that can't be
bettered much. The second raises bandwidth again on what was found. Where nothing is found NCCL takes the GPUs as they
come, at 0.1 GB/s.

Source of the rules: NCCL 2.30.7 and 2.29.7, `src/graph/search.cc`, with NCCL_CROSS_NIC unset (2).
"""

from dataclasses import dataclass
from typing import Final

from rackyard.nccl.graphs import (
    FALLBACK_BW,
    PATTERN_BALANCED_TREE,
    PATTERN_COLLNET_DIRECT,
    PATTERN_NVLS,
    PATTERN_RING,
    PATTERN_TREE,
)
from rackyard.nccl.linktypes import NET, PATH_DIS, PATH_PXN, PATH_SYS
from rackyard.nccl.numbers import as_float
from rackyard.nccl.search_arena import Arena
from rackyard.nccl.search_draft import Draft, Lane
from rackyard.nccl.search_limits import Limits
from rackyard.nccl.search_trace import Course, Traces
from rackyard.nccl.search_walk import PERFECT, Walk

ALL_STEPS: Final = 1 << 19
ATTEMPT_STEPS: Final = 1 << 14
SAME_ORDER_STEPS: Final = 1 << 8
MAX_NVLS_HEADS: Final = 32
MAX_COLLNET_HEADS: Final = 8
CROSSING: Final = 2

Limit = tuple[Course, int, float, float, int, int]
"""A course, crossing, GB/s within and over the network, fewest channels, hops to begin with."""


class OutOfSteps(Exception):
    """The bound on steps was reached; nothing is known about the graph."""


@dataclass(slots=True)
class Budget:
    """Steps that all searches together may make; None for no bound."""

    max_steps: int | None = None
    used: int = 0

    def spend(self, steps: int) -> None:
        """Count steps. Raises OutOfSteps when there are too many."""
        self.used += steps
        if self.max_steps is not None and self.used > self.max_steps:
            raise OutOfSteps


class Search:
    """The search for one graph. Several in a row share the arena, and so what rounding did to the links before."""

    def __init__(self, arena: Arena, limits: Limits, start: Draft, budget: Budget) -> None:
        self.arena = arena
        self.limits = limits
        self.best = start
        self._budget = budget
        self._cross_nic = 0
        self._try_same = 0 if start.pattern == PATTERN_NVLS else 1
        self._steps_left = ALL_STEPS
        self._total_bw = limits.total_bw
        self._speed = 0
        self._traces = Traces(arena.board)
        self._seen: dict[Limit, tuple[Draft, int]] = {}
        self.trial = start

    def run(self) -> Draft:
        """The best draft. Raises TopologyRefused where even the simple order finds no net, OutOfSteps."""
        if not self._prepare():
            return self.best
        self.trial = self.best.copy()
        if self._n_devs > 1 and self.best.pattern != PATTERN_RING:
            # Only a ring comes back to where it began: others leave one of the GPUs' links free.
            self._total_bw = as_float(self._total_bw * (self._n_devs * 1.0 / (self._n_devs - 1)))
        self._speed = self._first_speed()
        self._set_bw(self._speed)
        while True:
            left = self._attempt()
            if self._is_enough(left) or not self._relax(left):
                break
        self._double_channels()
        self._raise_bandwidth()
        if not self.best.lanes and not self.best.coll_net and self.best.pattern != PATTERN_NVLS:
            self._fall_back()
        return self.best

    @property
    def _n_devs(self) -> int:
        return len(self.arena.system.devs())

    def _prepare(self) -> bool:
        """Set the limits that depend on the pattern; False where NCCL does not search."""
        best, system, limits = self.best, self.arena.system, self.limits
        crossing = best.pattern in (PATTERN_RING, PATTERN_BALANCED_TREE)
        self._cross_nic = CROSSING if crossing and system.count(NET) > 1 else 0
        best.type_intra, best.type_inter = limits.min_intra, limits.min_inter
        best.same_channels = self._try_same
        n_gpus = self.arena.n_gpus
        if best.pattern == PATTERN_NVLS:
            if not self.arena.has_switch or limits.min_sm < 90:
                return False
            best.max_channels = min(MAX_NVLS_HEADS, n_gpus)
        if best.pattern == PATTERN_COLLNET_DIRECT:
            best.max_channels = min(MAX_COLLNET_HEADS, n_gpus)
        if n_gpus == 1 and best.pattern != PATTERN_RING:
            best.pattern = PATTERN_TREE
        if best.pattern == PATTERN_NVLS and not system.inter:
            best.min_channels = best.max_channels
        if best.pattern == PATTERN_RING and limits.split_nvlink and best.max_channels >= 2 and best.min_channels == 1:
            best.min_channels = 2
        return True

    # Bandwidths

    def _first_speed(self) -> int:
        speeds, least = self.limits.speeds, self.best.min_channels
        at = 0
        while at < len(speeds) - 1 and (
            speeds[at] > self.limits.max_bw or as_float(speeds[at] * least) > self._total_bw
        ):
            at += 1
        return at

    def _speed_below(self, bw: float) -> int:
        """Place of the first speed that is not above ``bw`` (GB/s)."""
        speeds = self.limits.speeds
        return next((at for at, speed in enumerate(speeds) if speed <= bw), len(speeds) - 1)

    def _set_bw(self, at: int) -> None:
        self._speed = at
        self.trial.bw_intra = self.trial.bw_inter = self.limits.speeds[at]

    # Attempts

    def _attempt(self) -> int:
        """Search within the trial's limits; the steps left over, or PERFECT."""
        trial = self.trial
        steps = SAME_ORDER_STEPS if trial.same_channels else ATTEMPT_STEPS
        trial.lanes.clear()
        self._steps_left -= steps
        course = self._course()
        key = (course, trial.cross_nic, trial.bw_intra, trial.bw_inter, trial.min_channels, trial.hops)
        seen = self._seen.get(key)
        if seen is not None and seen[0] is self.best:
            return seen[1]
        known = self._traces.known(course, trial, self.best)
        if known is not None:
            return known
        board = self.arena.board
        before = (list(board.left), list(board.net_left))
        board.full.clear()
        board.special_used = False
        walk = Walk(self.arena, trial, self.best)
        left = walk.run(steps)
        self.best = walk.best
        self._budget.spend(walk.used_steps)
        if before == (board.left, board.net_left) and left != PERFECT:
            # The same limits again would go the same way and find nothing better than this attempt did.
            self._seen[key] = (self.best, left)
            self._traces.record(course, walk, left)
        return left

    def _course(self) -> Course:
        """What an attempt depends on beside bandwidth. Path types that do not occur make no difference."""
        trial, arena = self.trial, self.arena
        intra = max((kind for kind in arena.intra_types if kind <= trial.type_intra), default=-1)
        inter = max((kind for kind in arena.inter_types if kind <= trial.type_inter), default=-1)
        crossing = trial.cross_nic if arena.system.inter else 0
        return trial.pattern, crossing, trial.same_channels, intra, inter, trial.max_channels

    def _is_enough(self, left: int) -> bool:
        return left == PERFECT or self.best.total_inter >= self.limits.total_bw

    def _relax(self, left: int) -> bool:
        """Relax the next limit of the first pass; False when there is none left or no steps are."""
        trial, best, limits = self.trial, self.best, self.limits
        if trial.same_channels and not (limits.amd and trial.type_intra == PATH_SYS):
            trial.same_channels = 0
            return True
        trial.same_channels = self._try_same
        self._steps_left += left
        if self._steps_left < 0 and best.lanes:
            return False
        if limits.min_sm >= 90 and trial.pattern == PATTERN_BALANCED_TREE:
            trial.pattern = PATTERN_TREE
            return True
        trial.pattern = best.pattern
        return self._relax_types() or self._relax_crossing() or self._lower_bandwidth()

    def _relax_types(self) -> bool:
        trial, best, limits = self.trial, self.best, self.limits
        inter = self.arena.system.inter
        worst = trial.type_inter if inter else limits.max_intra
        if trial.type_intra < worst and (not best.lanes or trial.type_intra < best.type_intra):
            trial.type_intra += 1
            if trial.type_intra < PATH_DIS:
                return True
        trial.type_intra = limits.min_intra
        worse_may_do = not best.lanes or trial.type_inter < best.type_inter or trial.type_inter < PATH_PXN
        if inter and trial.type_inter < limits.max_inter and worse_may_do:
            trial.type_inter += 1
            if trial.type_inter < PATH_DIS:
                return True
        trial.type_inter = limits.min_inter
        return False

    def _relax_crossing(self) -> bool:
        crossing = self.best.pattern in (PATTERN_RING, PATTERN_BALANCED_TREE)
        if self._cross_nic == CROSSING and self.trial.cross_nic == 0 and crossing:
            self.trial.cross_nic = CROSSING
            return True
        self.trial.cross_nic = 0
        return False

    def _lower_bandwidth(self) -> bool:
        speeds, best = self.limits.speeds, self.best
        if self._speed == len(speeds) - 1:
            return False
        if best.lanes and not as_float(speeds[self._speed + 1] / best.bw_inter) > 0.49:
            return False
        self._set_bw(self._speed + 1)
        return True

    # What was found

    def _double_channels(self) -> None:
        """Halve wide channels: two run at once where one GPU core would be the limit."""
        best = self.best
        if not best.lanes or best.pattern == PATTERN_NVLS or best.bw_intra < 25.0:
            return
        if self.limits.min_sm > 80 and best.bw_intra < 50.0 and len(best.lanes) > 4:
            return
        before = len(best.lanes)
        after = min(before * 2, best.max_channels)
        parts = -(-after // before)
        best = best.copy()
        best.lanes += best.lanes[: after - before]
        best.bw_intra = as_float(best.bw_intra / parts)
        best.bw_inter = as_float(best.bw_inter / parts)
        self.best = best

    def _raise_bandwidth(self) -> None:
        """The second pass: higher bandwidths on no fewer channels, as long as attempts do not run out of steps."""
        self.trial = self.best.copy()
        self._set_bw(self._speed_below(self.best.bw_inter))
        self.trial.min_channels = len(self.best.lanes)
        left = PERFECT
        while left != 0 and self._speed > 0 and self._raise():
            left = self._attempt()

    def _raise(self) -> bool:
        """Set the next higher bandwidth: of a ring both, of nvls that over the network, of trees that within."""
        trial, best = self.trial, self.best
        faster = self.limits.speeds[self._speed - 1]
        if best.pattern == PATTERN_RING:
            trial.bw_intra = trial.bw_inter = faster
        elif best.pattern == PATTERN_NVLS and trial.bw_inter == best.bw_inter and trial.bw_inter < trial.bw_intra * 2:
            trial.min_channels = trial.max_channels = len(best.lanes)
            trial.bw_inter = faster
        elif trial.bw_intra == best.bw_intra and trial.bw_intra < trial.bw_inter * 2:
            trial.bw_intra = faster
        else:
            return False
        self._speed -= 1
        return True

    def _fall_back(self) -> None:
        """The simple order: one channel through all GPUs as they come, 0.1 GB/s, type SYS."""
        best, n_gpus = self.best, self.arena.n_gpus
        first = self.arena.nets.order(-1, 0)
        last = self.arena.nets.order(-1, n_gpus - 1)
        best.bw_intra = best.bw_inter = FALLBACK_BW
        best.type_intra = best.type_inter = PATH_SYS
        best.lanes = [Lane(tuple(range(n_gpus)), first[0], last[0])]
