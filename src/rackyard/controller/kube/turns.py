"""Whose turn it is among the gangs that wait: `placement.queue` on what the cluster's objects say. Pure.

Priority is that of the pods' PriorityClass, age that of the first pod, an estimate `activeDeadlineSeconds`. A gang that
finds no seat may displace pods of lower priority, as the scheduler would, unless its `preemptionPolicy` is Never; of
Volcano's, only those of its own queue, as Volcano's `preempt` does. Reservations keep large gangs from starving.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.preempting import preemption, preempts, running
from rackyard.controller.kube.reasons import unknown, why_held
from rackyard.controller.kube.returning import come_back
from rackyard.controller.kube.yards import Start, Yards, asked, order, seats_of
from rackyard.placement.queue import Policy, QueueState, Reservation
from rackyard.placement.queue import plan as queue_plan

RULES = Policy(preemptions=0)
"""Seats and reservations; whom to preempt is asked for one gang at a time, as who may be depends on the gang."""
TOLD = 8
"""Gangs that are told in full why there is no seat, in one round: it takes 20 to 40 ms each."""
SEARCHES = 4
"""Gangs that victims are looked for, in one round."""


@dataclass(frozen=True, slots=True)
class Turns:
    """What a round decides."""

    starts: tuple[Start, ...] = ()
    held: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Why gangs wait: a word and a line, by key."""
    reservations: tuple[Reservation, ...] = ()
    """For the next round, on the same columns."""
    searched: frozenset[str] = frozenset()
    """Gangs that victims were looked for in vain: it is the turn of others first."""


def turns(waiting: Sequence[Gang], yards: Yards, before: Turns, now: float) -> Turns:
    """The turns at `now` (wall-clock seconds), after those of the round `before`."""
    out = {gang.key: ("NotInqueue", gang.kept_out) for gang in waiting if gang.kept_out}
    yard = yards.yard()
    wrong = {gang.key: ("BadRequest", line) for gang in waiting if (line := unknown(gang.request, yard))}
    waiting = [gang for gang in waiting if gang.key not in wrong]
    out |= wrong
    back, yards = come_back([gang for gang in waiting if not gang.kept_out], yards)
    if back:  # one round later, the others see what is left
        return replace(before, starts=back, held=out)
    gangs = {gang.key: gang for gang in waiting if not gang.kept_out}
    queued = tuple(asked(gang, yards) for gang in gangs.values())
    seated = tuple(each.run for each in running(yards, None))
    state = QueueState(queued, seated, reservations=before.reservations)
    made = queue_plan(now, state, yards.yard(), RULES)
    starts = [Start(gangs[each.gang], seats_of(each.decision, gangs[each.gang], yards)) for each in made.starts]
    begun = {each.gang.key for each in starts}
    later = sorted((gang for gang in waiting if gang.key not in begun), key=order)
    left = [gang for gang in later if not gang.kept_out]
    searched = frozenset[str]()
    if not starts:  # what starts takes seats that victims would be looked for without
        able = [gang for gang in later if preempts(gang)]
        new = [gang for gang in able if gang.key not in before.searched] or able
        found = preemption(new[:SEARCHES], yards, now)
        starts += [found] if found is not None else []
        if len(new) > SEARCHES:
            searched = before.searched.union(gang.key for gang in new[:SEARCHES])
    told = {gang.key for gang in left[:TOLD]}
    held = {
        gang.key: why_held(gang, made, yards if gang.key in told else None, now)
        for gang in left
        if gang.key not in {each.gang.key for each in starts}
    }
    out = {key: why for key, why in out.items() if key not in {each.gang.key for each in starts}}
    return Turns(tuple(starts), out | held, made.reservations, searched)
