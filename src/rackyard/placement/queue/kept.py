"""Reservations of the plan before, as far as they still stand."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Flags, Masks
from rackyard.placement.queue.holdings import spread_out, stated_end
from rackyard.placement.queue.model import Policy, QueueState, Reservation
from rackyard.placement.queue.reserve import end_of
from rackyard.placement.queue.space import Booking, Space


class Kept:
    """Those whose gangs have not been looked at yet in this round. Each is taken out once, to be booked or dropped."""

    def __init__(self, state: QueueState, space: Space, now: float, policy: Policy) -> None:
        self._space = space
        self._now = now
        self._stops = np.array([run.stopping for run in state.running], np.bool_)
        self._stated = np.array([stated_end(run, policy) for run in state.running], np.float64)
        waiting = {gang.name: gang for gang in state.waiting}
        self._all: dict[str, Booking] = {}
        for each in state.reservations:
            held = spread_out(each.decision, space.columns)
            if each.gang in waiting and space.well(held):
                self._all[each.gang] = Booking(each, end_of(waiting[each.gang], each.start), held)

    def names(self) -> frozenset[str]:
        """The gangs that have one."""
        return frozenset(self._all)

    def cleared(self) -> frozenset[str]:
        """Those that others were told to stop for."""
        return frozenset(name for name, each in self._all.items() if each.reservation.cleared)

    def pop(self, name: str) -> Booking | None:
        """The gang's, taken out."""
        return self._all.pop(name, None)

    def rest(self) -> list[Booking]:
        """Those still in."""
        return list(self._all.values())

    def before(self, end: float) -> Masks | None:
        """The GPUs of those still in that start before a gang that ends at `end` is gone; None for none."""
        masks = [booking.held for booking in self._all.values() if booking.start < end]
        return np.bitwise_or.reduce(masks) if masks else None

    def stopping(self, old: Booking) -> bool:
        """Whether there are gangs on its seats, and all of them were told to stop."""
        stops, _ = self._tenants(old)
        return len(stops) > 0 and bool(stops.all())

    def good(self, old: Booking, elder: bool, among: Iterable[Booking]) -> Reservation | None:
        """The reservation as it can be booked again beside those bookings, or None.

        An elder's stays, once it was good: nobody can have come onto its seats that ends later, but an elder before it
        that started later than was said. Any other must
        lie ahead, and all gangs on its seats must be stated to end by then, or be stopping.
        """
        if any(old.crosses(booking) for booking in among):
            return None
        if elder and old.reservation.firm:
            return old.reservation
        stops, ends = self._tenants(old)
        in_time = bool((stops | (ends <= old.start)).all())
        ahead = old.start > self._now or bool(stops.all())
        return replace(old.reservation, firm=elder) if in_time and (ahead or elder) else None

    def _tenants(self, old: Booking) -> tuple[Flags, NDArray[np.float64]]:
        """Of the gangs on its seats: which were told to stop, and when they are stated to end."""
        on = self._space.holdings.on(old.held)
        new = len(self._space.holdings.ends) - len(self._stops)  # started in this round
        stops = np.concatenate((self._stops, np.zeros(new, np.bool_)))
        ends = np.concatenate((self._stated, self._space.holdings.ends[len(self._stated) :]))
        return stops[on], ends[on]
