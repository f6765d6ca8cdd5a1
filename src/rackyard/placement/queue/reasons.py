"""Why a gang that was not started waits. Asked for ten thousand gangs, answered with a handful of decisions."""

import numpy as np

from rackyard.placement.queue.answer import Reason, Why
from rackyard.placement.queue.holdings import seats
from rackyard.placement.queue.memory import Failures
from rackyard.placement.queue.model import Gang
from rackyard.placement.queue.reserve import end_of
from rackyard.placement.queue.space import Booking, Space
from rackyard.placement.yard import Decision, Yard


class Reasons:
    """Answers by form and size, so that gangs that ask for the same share one."""

    def __init__(self, space: Space, now: float, trials: int) -> None:
        self._space = space
        self._now = now
        self._left = trials  # decisions for reasons alone: the rest of the round's are for starts
        self._drained: Yard | None = None
        self._never = Failures(space.forms)
        self._fits: dict[tuple[int, int], bool] = {}
        self._beside: dict[tuple[int, int], Decision | None] = {}
        self._largest: dict[tuple[int, int], Booking] = {}
        self._holders: dict[tuple[int, int, int, int], Booking | None] = {}

    def ever(self, gang: Gang) -> bool:
        """Whether it fits once all running gangs have ended. Started ones and bookings are not counted."""
        form = self._space.forms.of(gang.request)
        if self._never.known(form, gang.gpus, 0):
            return False
        key = (form, gang.gpus)
        if key not in self._fits:
            if self._drained is None:
                everybody = self._space.holdings.flags(range(len(self._space.holdings.ends)))
                self._drained = self._space.without(everybody, ())
            self._fits[key] = self._space.try_on(gang.request, self._drained) is not None
            if not self._fits[key]:
                self._never.add(form, gang.gpus, 0)
        return self._fits[key]

    def of(self, gang: Gang) -> Reason:
        """Why it does not fit now, limits of its team aside."""
        level = self._space.level(end_of(gang, self._now))
        if self._space.hopeless(gang.request, 0):
            level = 0  # reservations have nothing to do with it
        elif self._space.spent and not self._space.hopeless(gang.request, level):
            return Reason("untried")
        booking = self._kept_for_another(gang, level)
        if booking is not None:
            kind: Why = "behind" if gang.estimate is None else "reserved"
            return Reason(kind, booking.reservation.gang, booking.start)
        if (self._key(gang) in self._fits or self._pay()) and not self.ever(gang):
            return Reason("site")
        if self._space.free(level) == self._space.free():
            return Reason("room", gpus=self._space.free())
        booking = self._most_kept(level)
        return Reason("room", booking.reservation.gang, booking.start, self._space.free(level))

    def _kept_for_another(self, gang: Gang, level: int) -> Booking | None:
        """Where it would fit but for the seats of a reservation: the first such."""
        if level == 0:
            return None
        key = self._key(gang)
        if key not in self._beside:
            if not self._pay():
                return None
            self._beside[key] = self._space.seat_on(gang.request, 0)
        decision = self._beside[key]
        if decision is None:
            return None
        now = (*key, level, len(self._space.bookings))
        if now not in self._holders:
            self._holders[now] = _first_on(decision, self._space, level)
        return self._holders[now]

    def _most_kept(self, level: int) -> Booking:
        """The booking below that level that keeps most."""
        key = (level, len(self._space.bookings))
        if key not in self._largest:
            sizes = [int(np.bitwise_count(booking.held).sum()) for booking in self._space.bookings[:level]]
            self._largest[key] = self._space.bookings[sizes.index(max(sizes))]
        return self._largest[key]

    def _pay(self) -> bool:
        self._left -= 1
        return self._left >= 0 and not self._space.spent

    def _key(self, gang: Gang) -> tuple[int, int]:
        return (self._space.forms.of(gang.request), gang.gpus)


def _first_on(decision: Decision, space: Space, level: int) -> Booking | None:
    """The first booking below that level that keeps any of those seats."""
    nodes, masks = seats(decision)
    return next((booking for booking in space.bookings[:level] if bool((booking.held[nodes] & masks).any())), None)
