"""One round of the queue: `plan(now, state, yard, policy)`, pure and deterministic.

Order. Elders first, then gangs that others were told to stop for. Then by priority; within one, gangs of teams below
their quota before those of teams that borrow, gangs with a reservation before those without, the team with the lowest
share before others, and the longest wait first.

Nothing starves. A gang that has waited longer than `patience`, that fits the site once all running gangs have ended,
and that its team's limits allow when the team runs nothing else, is *overdue*. The overdue gang that was submitted
first is the *elder* (the first `elders` of them are), and stands before all others whatever their priority:

1. Its reservation is *firm*: seats and start stay as they are until it starts, here or, where there is room sooner,
   elsewhere. Only gangs that end by that start, as estimated then, may use the seats before it; after it, nobody may.
   So from the reserved start on it waits for gangs that sat on its seats at that moment, and for nobody else: no more
   job ends than it has GPUs.
2. Its team's other gangs leave it room below the team's ceiling (and quota, if it may not be preempted).
3. Whoever is submitted after it, or requeued after a preemption, never comes before it as an elder.

Hence the bound. Let every run take D seconds at most, and let L be the longest time that the policy expects a gang to
run on (the longest estimate, `unknown`, `overrun` and `stop`, whichever is most). If k gangs, itself included, were
submitted no later than it and wait when its patience ends, it starts within patience + k (2 D + L) seconds of its
submission, provided that a plan is made and acted on whenever a gang ends and that the healthy site stays as it is:
for each of the k at most D until its team is below its limits, L until its reserved start, D until the last gang on its
seats is gone. What keeps arriving is not in the bound, nor how well estimates hold. The promise is of a start: a gang
that is preempted waits anew, after it has had `exempt` seconds at least.

Reservations. The first `reservations` gangs in order that fit the site but not what is free get one: the first end of
some gang after which they fit, and their seats then. Later gangs start only on other seats, or if they end by that
start as estimated; without an estimate, only on other seats. The same goes for the last GPUs below the limits of its
team. While the order stands and estimates hold, no reserved gang starts later than was first said, whatever is
submitted behind it. A preemption for a gang that ranks higher may take a reservation away.
"""

from collections.abc import Iterator
from dataclasses import replace

from rackyard.placement.decide import decide
from rackyard.placement.queue.answer import Preemption, QueuePlan, Reason, Start
from rackyard.placement.queue.holdings import Holdings, spread_out
from rackyard.placement.queue.kept import Kept
from rackyard.placement.queue.memory import Failures
from rackyard.placement.queue.model import Gang, Policy, QueueState, Reservation
from rackyard.placement.queue.order import by_age, line
from rackyard.placement.queue.preempt import Search
from rackyard.placement.queue.reasons import Reasons
from rackyard.placement.queue.reserve import earliest, end_of
from rackyard.placement.queue.space import Booking, Decide, Space
from rackyard.placement.queue.teams import Ledger, Rank
from rackyard.placement.queue.victims import Preemptible, Victim
from rackyard.placement.yard import Decision, Yard

_DEFAULT = Policy()


def plan(now: float, state: QueueState, yard: Yard, policy: Policy = _DEFAULT, decide: Decide = decide) -> QueuePlan:
    """What to start, keep and preempt at `now` (seconds on the clock of the state).

    The yard holds the seats of all running gangs, stopping ones too; it stays as it is. What else is in use on it is
    taken to stay in use.
    """
    return _Round(now, state, yard, policy, decide).run()


class _Round:
    def __init__(self, now: float, state: QueueState, yard: Yard, policy: Policy, decide: Decide) -> None:
        self.now = now
        self.state = state
        self.policy = policy
        self.ledger = Ledger(state.teams, state.running)
        self.space = Space(yard, Holdings.of(state.running, yard.columns, now, policy), decide, policy.trials)
        self.kept = Kept(state, self.space, now, policy)
        self.reasons = Reasons(self.space, now, policy.trials // 4)
        self.preemptible = Preemptible(state.running, self.ledger, now, policy)
        self.search = Search(self.space, policy.preemption_trials)
        self.slots = policy.reservations
        self.searches = policy.preemptions
        self.searched: set[tuple[int, int, str, int, bool]] = set()
        self.never = Failures(self.space.forms)
        self.ranks = self._ranks()
        self.starts: list[Start] = []
        self.preemptions: list[Preemption] = []
        self.why: dict[str, Reason] = {}

    def run(self) -> QueuePlan:
        """Look at every waiting gang once, in order."""
        elders = self._elders()
        for gang in elders:
            if not self._place(gang, elder=True) and self.why[gang.name].kind != "victims":
                self.ledger.keep(gang, self.now)
        seen = {gang.name for gang in elders}
        promised, cleared = self.kept.names(), self.kept.cleared()
        rest = [gang for gang in self.state.waiting if gang.name not in seen]
        for group in ([g for g in rest if g.name in cleared], [g for g in rest if g.name not in cleared]):
            for gang in line(group, self.ledger, promised):
                self._place(gang)
        return QueuePlan(
            starts=tuple(self.starts),
            reservations=tuple(booking.reservation for booking in self.space.bookings),
            preemptions=tuple(self.preemptions),
            reasons=self.why,
            elders=tuple(gang.name for gang in elders),
            trials=self.space.trials,
        )

    def _ranks(self) -> dict[str, Rank]:
        """Of gangs with a reservation that may give way to a preemption: not those of elders, or cleared already."""
        may = {each.gang for each in self.state.reservations if not (each.firm or each.cleared)}
        return {gang.name: self.ledger.rank(gang) for gang in self.state.waiting if gang.name in may}

    def _elders(self) -> list[Gang]:
        return list(self._overdue())

    def _overdue(self) -> Iterator[Gang]:
        left = self.policy.elders
        for gang in by_age(self.state.waiting):
            if not left or self.now - gang.submitted < self.policy.patience:
                return
            if self.ledger.ever(gang) and self.reasons.ever(gang):
                left -= 1
                yield gang

    def _place(self, gang: Gang, elder: bool = False) -> bool:
        """Start the gang, or reserve seats and preempt for it, or say why it waits. True when it starts."""
        old = self.kept.pop(gang.name)
        limit = self.ledger.limit(gang, end_of(gang, self.now))
        if limit is not None:
            self.why[gang.name] = Reason(limit.kind, limit.holder, gpus=limit.gpus)
            return False
        decision = self._seats(gang, old, elder)
        if decision is None:
            self.why[gang.name] = self._wait(gang, old, elder)
            return False
        self.ledger.start(gang)
        stated = self.policy.unknown if gang.estimate is None else gang.estimate
        self.space.take(decision, self.now + stated)
        self.starts.append(Start(gang.name, decision, bool(self.space.bookings)))
        return True

    def _seats(self, gang: Gang, old: Booking | None, elder: bool) -> Decision | None:
        """Seats now: off what is reserved for others where that can be, then its own.

        A gang without a reservation comes before those that have one only by its rank: it may sit on their seats.
        """
        end = end_of(gang, self.now)
        if self.space.spent and not elder:
            return old.reservation.decision if old is not None and self.space.open(old.held, end) else None
        others = self.kept.before(end)
        decision = None if others is None and old is None else self.space.seat(gang.request, end, others)
        if decision is None and old is not None:
            return old.reservation.decision if self.space.open(old.held, end) else None
        return decision if decision is not None else self.space.seat(gang.request, end)

    def _wait(self, gang: Gang, old: Booking | None, elder: bool) -> Reason:
        """Book its seats, and preempt for it where that pays; why it waits."""
        reservation = self._reservation(gang, old, elder)
        coming = old is not None and reservation is not None and self.kept.stopping(old)
        found = None if coming else self._preemption(gang, old, reservation)
        if found is not None:
            reservation = Reservation(gang.name, self.now, found.decision, elder, cleared=True)
            self._displace(reservation, end_of(gang, self.now))
        if reservation is None:
            return self.reasons.of(gang)
        self.space.book(reservation, end_of(gang, reservation.start))
        self.ranks.pop(gang.name, None)
        if coming or found is not None:
            self.ledger.start(gang)
            return Reason("victims")
        if not elder:
            self.ledger.keep(gang, reservation.start)
            self.ranks[gang.name] = self.ledger.rank(gang)
        self.slots -= 1
        return Reason("room", until=reservation.start, gpus=self.space.free())

    def _reservation(self, gang: Gang, old: Booking | None, elder: bool) -> Reservation | None:
        """The old one while it stands, unless there are seats sooner; else the earliest."""
        good = None if old is None else self.kept.good(old, elder, self.space.bookings)
        if good is not None and old is not None and (good.firm or self.kept.stopping(old)):
            return good
        if not self.slots:
            return None
        form = self.space.forms.of(gang.request)
        if (self.space.spent and not elder) or self.never.known(form, gang.gpus, 0) or not self.reasons.ever(gang):
            return good
        new = earliest(gang, self.space, self._blocking(good is not None, float("inf")))
        if new is None and good is None:
            self.never.add(form, gang.gpus, 0)
        if good is not None and (new is None or good.start <= new.start):
            new = self._between(gang, good.start)
        return good if new is None else replace(new, firm=elder)

    def _between(self, gang: Gang, start: float) -> Reservation | None:
        """Seats sooner than `start` that are given back before others need them: seats of old reservations, which were
        in the way altogether.
        """
        rest = self.kept.rest()
        new = earliest(gang, self.space, self.space.bookings) if rest else None
        if new is None or new.start >= start:
            return None
        booking = self.space.booking(new, end_of(gang, new.start))
        return None if any(booking.crosses(other) for other in rest) else new

    def _blocking(self, holder: bool, end: float) -> list[Booking]:
        """Bookings in the way of a gang that ends then; for one with a reservation, other old ones as well."""
        rest = self.kept.rest() if holder else []
        return [booking for booking in (*self.space.bookings, *rest) if booking.start < end]

    def _preemption(self, gang: Gang, old: Booking | None, reservation: Reservation | None) -> Preemption | None:
        """Whom to preempt for it, unless it starts soon; asked once for all that are alike."""
        soon = reservation is not None and self.now < reservation.start <= self.now + self.policy.worth
        alike = (self.space.forms.of(gang.request), gang.gpus, gang.team, gang.priority, gang.preemptible)
        if soon or not self.searches or alike in self.searched or self.search.spent:
            return None
        self.searched.add(alike)
        if self.preemptible.gpus(gang) + self.space.free() < gang.gpus:
            return None
        self.searches -= 1
        victims = {victim.name: victim for victim in self.preemptible.of(gang)}
        rank = self.ledger.rank(gang)
        blocking = [
            booking
            for booking in self._blocking(old is not None, end_of(gang, self.now))
            if self.ranks.get(booking.reservation.gang, rank) >= rank
        ]
        found = self.search.find(gang, blocking, list(victims.values()))
        if found is not None:
            self.preemptions.append(found)
            self.searched.discard(alike)
            for name in found.victims:
                self._stop(victims[name])
        return found

    def _displace(self, cleared: Reservation, end: float) -> None:
        """Drop the reservations, of gangs that rank lower, that are in the way of one that others stop for."""
        new = Booking(cleared, end, spread_out(cleared.decision, self.space.columns))
        for booking in [booking for booking in self.space.bookings if booking.crosses(new)]:
            name = booking.reservation.gang
            self.space.cancel(booking)
            self.slots += 1
            self.why[name] = Reason("room", gpus=self.why[name].gpus)

    def _stop(self, victim: Victim) -> None:
        self.preemptible.stop(victim)
        self.ledger.leave(self.state.running[victim.owner].gang)
        self.space.holdings.ends[victim.owner] = self.now + self.policy.stop
