"""The yard as a round sees it: what is free, less what is reserved for others in the time that a gang would run."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from rackyard.placement.columns import Flags, Ints, Masks
from rackyard.placement.model import Request
from rackyard.placement.queue.holdings import Holdings, spread_out
from rackyard.placement.queue.memory import Failures, Forms
from rackyard.placement.queue.model import Reservation
from rackyard.placement.yard import Decision, Yard

Decide = Callable[[Request, Yard], Decision | None]


@dataclass(frozen=True, slots=True, eq=False)
class Booking:
    """A reservation of this round. From `start` to `end` its seats are somebody's."""

    reservation: Reservation
    end: float
    held: Masks
    """Its GPUs, of every node of the site."""

    @property
    def start(self) -> float:
        """When the gang is to start."""
        return self.reservation.start

    def crosses(self, other: "Booking") -> bool:
        """Whether both need the same GPU at the same time."""
        return self.start < other.end and other.start < self.end and bool((self.held & other.held).any())


class Space:
    """Bookings in order of their starts, and a yard a *level*: level n has the first n bookings' seats in use.

    A gang that ends by the start of a booking may use its seats till then; so a gang is placed on the level of the
    bookings that start before it ends. While only takes and bookings happen, what failed on a level stays failed there.
    """

    def __init__(self, yard: Yard, holdings: Holdings, decide: Decide, trials: int) -> None:
        self.columns = yard.columns
        self.holdings = holdings
        self.forms = Forms(yard.columns)
        self.bookings: list[Booking] = []
        self.trials = 0
        self._decide = decide
        self._budget = trials
        self._usable = ~(yard.out | yard.columns.bad | yard.columns.cordoned)
        self._levels = [yard.copy()]
        self._free = [self.count_free(yard)]
        self._failures = Failures(self.forms)

    @property
    def yard(self) -> Yard:
        """What is free now, reservations or not."""
        return self._levels[0]

    @property
    def spent(self) -> bool:
        """Whether the round's decisions are used up."""
        return self.trials >= self._budget

    def free(self, level: int = 0) -> int:
        """Free GPUs of a level; of the lowest, reserved ones included."""
        return self._free[level]

    def try_on(self, request: Request, yard: Yard) -> Decision | None:
        """One decision, counted."""
        self.trials += 1
        return self._decide(request, yard)

    def level(self, end: float) -> int:
        """The level of a gang that ends at `end`."""
        return bisect_left(self.bookings, end, key=lambda booking: booking.start)

    def seat(self, request: Request, end: float, beside: Masks | None = None) -> Decision | None:
        """Seats for a gang that would end at `end`; with `beside`, off those GPUs too."""
        return self.seat_on(request, self.level(end), beside)

    def seat_on(self, request: Request, level: int, beside: Masks | None = None) -> Decision | None:
        """Seats on a level; None at once where that is known to fail."""
        form = self.forms.of(request)
        if request.gpus > self._free[level] or self._failures.known(form, request.gpus, level):
            return None
        yard = self._levels[level]
        if beside is not None:
            return self.try_on(request, Yard(self.columns, yard.busy | beside, yard.out))
        decision = self.try_on(request, yard)
        if decision is None:
            self._failures.add(form, request.gpus, level)
        return decision

    def hopeless(self, request: Request, level: int) -> bool:
        """Whether it is known, without another decision, that it does not fit on the level."""
        known = self._failures.known(self.forms.of(request), request.gpus, level)
        return known or request.gpus > self._free[level]

    def open(self, held: Masks, end: float) -> bool:
        """Whether all of those GPUs are free for a gang that would end at `end`, on nodes that are well."""
        return self.well(held) and not bool((self._levels[self.level(end)].busy & held).any())

    def well(self, held: Masks) -> bool:
        """Whether all of those GPUs are on nodes that may be used."""
        return bool(self._usable[held != 0].all())

    def take(self, decision: Decision, end: float) -> None:
        """Seat a gang that is expected to end at `end`."""
        held = spread_out(decision, self.columns)
        self.holdings.add([(decision, end)])
        for level in self._levels:
            level.busy |= held
        self._free = [self.count_free(level) for level in self._levels]

    def booking(self, reservation: Reservation, end: float) -> Booking:
        """The booking of a reservation whose gang would end at `end`."""
        return Booking(reservation, end, spread_out(reservation.decision, self.columns))

    def book(self, reservation: Reservation, end: float) -> None:
        """Keep seats for a gang that would end at `end`."""
        booking = self.booking(reservation, end)
        at = bisect_left(self.bookings, booking.start, key=lambda other: other.start)
        self.bookings.insert(at, booking)
        self._failures.insert(at)
        self._stack()

    def cancel(self, booking: Booking) -> None:
        """Keep its seats no longer. What failed may fit now, and is asked again."""
        self.bookings.remove(booking)
        self._failures = Failures(self.forms)
        self._stack()

    def _stack(self) -> None:
        self._levels = [self.yard]
        for each in self.bookings:
            self._levels.append(Yard(self.columns, self._levels[-1].busy | each.held, self.yard.out))
        self._free = [self.count_free(level) for level in self._levels]

    def without(self, gone: Flags, blocking: Iterable[Booking]) -> Yard:
        """The yard once those owners are gone, with the seats of some bookings in use."""
        busy = self.yard.busy & ~self.holdings.freed(gone)
        for booking in blocking:
            busy = busy | booking.held
        return Yard(self.columns, busy, self.yard.out)

    def count_free(self, yard: Yard) -> int:
        """Healthy GPUs that nobody uses, on nodes that may be used: no gang gets more."""
        return int(self.free_by_node(yard).sum())

    def free_by_node(self, yard: Yard) -> Ints:
        """The same of each node."""
        free: Masks = np.where(self._usable, self.columns.healthy & ~yard.busy, np.uint32(0))
        return np.bitwise_count(free).astype(np.int32)
