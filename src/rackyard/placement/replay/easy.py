"""The order in which waiting gangs start: by priority, first come first served, with EASY backfill. The same for every
policy, so that a replay compares where gangs go and nothing else.

EASY (Lifka, The ANL/IBM SP scheduling system, JSSPP 1995): the first gang that can't start gets a reservation, and
others may pass it as far as they don't delay that. Here a reservation is nodes and a time: those that the policy would
choose once enough of the running gangs have ended by their estimates. A gang that would still run then must keep off
these nodes.
"""

import math
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Flags, Masks
from rackyard.placement.replay.discipline import Ground, Release, Waiting
from rackyard.placement.replay.free import Scales
from rackyard.placement.replay.policies import Place
from rackyard.placement.yard import Decision, Yard


@dataclass(frozen=True, slots=True, eq=False)
class _Reservation:
    job: int
    start: float
    nodes: Flags | None


@dataclass(slots=True)
class Easy:
    """The queue of one replay. It takes seats on `yard` when it starts a gang."""

    place: Place
    yard: Yard
    scales: Scales
    depth: int
    """How many gangs behind the first are looked at in one pass."""
    waiting: list[Waiting] = field(default_factory=list)
    _failed: set[int] = field(default_factory=set)
    """Kinds that found no seats since something was freed; `_barred`: none off the reserved nodes."""
    _barred: set[int] = field(default_factory=set)
    _held: _Reservation | None = None

    def add(self, gang: Waiting) -> None:
        """Put a gang into its place in the queue."""
        insort(self.waiting, gang)

    def freed(self, *, shaken: bool = False) -> None:
        """Seats were freed: try again what failed. `shaken`: nodes came or went, so that reservations are void."""
        self._failed.clear()
        self._barred.clear()
        if shaken:
            self._held = None

    def starts(self, now: float, site: Ground) -> Iterator[tuple[Waiting, Decision]]:
        """The gangs that start now. The site is asked after the caller has taken note of those before."""
        while self.waiting:
            seats = self._seats(self.waiting[0], self.yard, self._failed)
            if seats is None:
                break
            yield self._start(0, seats)
        if len(self.waiting) > 1:
            yield from self._backfill(now, self._reserve(now, site))

    def _start(self, at: int, seats: Decision) -> tuple[Waiting, Decision]:
        self.yard.take(seats)
        return self.waiting.pop(at), seats

    def _seats(self, gang: Waiting, yard: Yard, failed: set[int]) -> Decision | None:
        if gang.kind in failed:
            return None
        seats = None if self.scales.hopeless(gang.request, yard, yard.out) else self.place(gang.request, yard)
        if seats is None:
            failed.add(gang.kind)
        return seats

    def _backfill(self, now: float, held: _Reservation) -> Iterator[tuple[Waiting, Decision]]:
        off = self.yard
        if held.nodes is not None:
            off = Yard(self.yard.columns, self.yard.busy, self.yard.out | held.nodes)
        at, looked = 1, 0
        while at < len(self.waiting) and looked < self.depth:
            gang = self.waiting[at]
            looked += 1
            at += 1
            if gang.kind in self._failed:
                continue
            short = held.nodes is None or now + gang.estimate <= held.start
            seats = self._seats(gang, self.yard, self._failed) if short else self._seats(gang, off, self._barred)
            if seats is not None:
                at -= 1
                yield self._start(at, seats)

    def _reserve(self, now: float, site: Ground) -> _Reservation:
        head, held = self.waiting[0], self._held
        if held is None or held.job != head.job or held.start <= now:
            held = self._held = self._reservation(head, site.releases())
            self._barred.clear()
        return held

    def _reservation(self, head: Waiting, releases: Sequence[Release]) -> _Reservation:
        """When and where the policy would seat the gang, by the estimates; never, when not even on all of it."""
        future = _Future.of(self.yard, sorted(releases, key=lambda release: release.time))
        low, high = 0, len(future.releases)
        best = self._later(head, future, high)
        if best is None:
            return _Reservation(head.job, math.inf, None)
        while high - low > 1:  # not on the first `low` releases, but on the first `high`
            middle = (low + high) // 2
            seats = self._later(head, future, middle)
            if seats is None:
                low = middle
            else:
                high, best = middle, seats
        nodes = np.zeros(len(self.yard.busy), np.bool_)
        nodes[best.nodes] = True
        return _Reservation(head.job, future.releases[high - 1].time if high else math.inf, nodes)

    def _later(self, head: Waiting, future: "_Future", count: int) -> Decision | None:
        yard = future.after(count)
        return None if self.scales.hopeless(head.request, yard, yard.out) else self.place(head.request, yard)


@dataclass(frozen=True, slots=True, eq=False)
class _Future:
    """Yards to come: one array of all seats in the order in which they are given back, to take the first part of."""

    yard: Yard
    releases: Sequence[Release]
    nodes: NDArray[np.int64]
    kept: Masks
    """Of each of these nodes, the GPUs that this release leaves as they are."""
    ends: NDArray[np.int64]
    """How many of these nodes the first n releases give back, from n = 0."""

    @classmethod
    def of(cls, yard: Yard, releases: Sequence[Release]) -> "_Future":
        seats = [release.seats for release in releases]
        nodes = [np.concatenate([one.nodes, one.spares]) if one is not None else _NONE for one in seats]
        masks = [np.concatenate([one.gpus, one.held]) if one is not None else _NONE for one in seats]
        ends = np.cumsum([0, *(len(one) for one in nodes)])
        return cls(
            yard,
            releases,
            np.concatenate([_NONE, *nodes]).astype(np.int64),
            ~np.concatenate([_NONE, *masks]).astype(np.uint32),
            ends,
        )

    def after(self, count: int) -> Yard:
        """The yard after the first `count` releases. A node can be in several, each with some of its GPUs."""
        yard = self.yard.copy()
        end = int(self.ends[count])
        np.bitwise_and.at(yard.busy, self.nodes[:end], self.kept[:end])
        for release in self.releases[:count]:
            if release.nodes:
                yard.out[list(release.nodes)] = False
        return yard


_NONE = np.zeros(0, np.int64)
