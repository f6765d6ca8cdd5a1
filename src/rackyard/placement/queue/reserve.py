"""The first moment at which a waiting gang fits, by what is known of the ends of the gangs before it."""

from collections.abc import Sequence

from rackyard.placement.model import Request
from rackyard.placement.queue.model import Gang, Reservation
from rackyard.placement.queue.space import Booking, Space
from rackyard.placement.yard import Decision


def end_of(gang: Gang, start: float) -> float:
    """When a gang that starts then is estimated to end: never, without an estimate."""
    return float("inf") if gang.estimate is None else start + gang.estimate


def earliest(gang: Gang, space: Space, blocking: Sequence[Booking]) -> Reservation | None:
    """The earliest end of some gang after which it fits, and its seats then; None when it never will.

    Seats of the bookings that are `blocking` count as in use from now to their end. More is free after every end, so a
    binary search finds the first that will do: about ten decisions, whatever the number of gangs.
    """
    times = sorted({*space.holdings.ends, *(booking.end for booking in blocking if booking.end < float("inf"))})
    last = at(gang.request, space, times[-1], blocking) if times else None
    if last is None:
        return None
    found, decision = times[-1], last
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        sooner = at(gang.request, space, times[middle], blocking)
        if sooner is None:
            low = middle + 1
        else:
            found, decision, high = times[middle], sooner, middle
    return Reservation(gang.name, found, decision)


def at(request: Request, space: Space, time: float, blocking: Sequence[Booking]) -> Decision | None:
    """Seats among what is free once all that is expected to end by then has ended."""
    yard = space.without(space.holdings.ended(time), [booking for booking in blocking if booking.end > time])
    if request.gpus > space.count_free(yard):
        return None
    return space.try_on(request, yard)
