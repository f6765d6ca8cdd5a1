"""What a plan says: who starts where, what is kept for whom, who gives way, and why the others wait."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rackyard.placement.queue.model import Reservation
from rackyard.placement.yard import Decision
from rackyard.units import format_duration

Why = Literal["site", "ceiling", "quota", "victims", "room", "reserved", "behind", "untried"]


@dataclass(frozen=True, slots=True)
class Start:
    """A gang to start now. The seats are free."""

    gang: str
    decision: Decision
    backfill: bool
    """It passes a gang that has a reservation, and does not delay it."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """Running gangs to stop so that one can start on `decision`. Its seats are reserved until the victims are gone."""

    gang: str
    victims: tuple[str, ...]
    decision: Decision
    lost: float
    """GPU-seconds: the victims' work since their last checkpoints, and their restarts."""


@dataclass(frozen=True, slots=True)
class Reason:
    """The one thing that keeps a gang waiting.

    site      it does not fit even where all running gangs have ended (sizes that don't divide included)
    ceiling   its team would have more GPUs than its ceiling
    quota     it may not be preempted, so it can't borrow, and its team's quota is used up
    victims   the gangs on its seats have been told to stop
    room      it does not fit on what is free and not kept for others; without a `holder`, `until` is the start of its
              own reservation, where it has one; with one, that gang has most of what is kept, from `until` on
    reserved  it would fit, on seats that are kept for `holder` from `until` on, and is estimated to run longer
    behind    it would fit, on seats that are kept for `holder`, and has no estimate
    untried   the round's decisions were used up by gangs before it
    """

    kind: Why
    holder: str | None = None
    """The gang that the seats, or for `ceiling` and `quota` the last GPUs of the team, are kept for."""
    until: float | None = None
    """Seconds on the clock of the state."""
    gpus: int = 0
    """How many the reason is about: for `room` the free ones, less those reserved for others unless it fits not even
    with them; for `ceiling` and `quota` the limit."""

    def text(self, now: float) -> str:
        """One line for people; times as seconds from now."""
        when = "" if self.until is None else format_duration(max(0.0, float(round(self.until - now))))
        kept = f"; what is left is kept for {self.holder}, which comes first" if self.holder else ""
        match self.kind:
            case "site":
                return "does not fit on this site, even with all running gangs gone"
            case "ceiling":
                return f"its team is at its ceiling of {self.gpus} GPUs{kept}"
            case "quota":
                return (
                    f"may not be preempted, so it can't borrow, and its team's quota of {self.gpus} GPUs is used{kept}"
                )
            case "victims":
                return "waits for preempted gangs to stop"
            case "room":
                return self._room(when)
            case "reserved":
                return f"would run past the start of {self.holder}, in {when}, on seats reserved for it"
            case "behind":
                return f"has no estimate, and the room is reserved for {self.holder}, in {when}"
            case "untried":
                return "not looked at in this round: too many others before it"

    def _room(self, when: str) -> str:
        if self.holder:
            told = f"no room among {self.gpus} free GPUs that are not reserved"
            return f"{told}; others are, most of them for {self.holder}, in {when}"
        return f"no room among {self.gpus} free GPUs" + (f"; seats are reserved for it, in {when}" if when else "")


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """What to do now. Every gang that waited is in `starts` or has a reason."""

    starts: tuple[Start, ...]
    reservations: tuple[Reservation, ...]
    """By start. Hand them back with the next state."""
    preemptions: tuple[Preemption, ...]
    reasons: Mapping[str, Reason]
    elders: tuple[str, ...]
    """Gangs that stand before all others because they waited longest beyond their patience."""
    trials: int
    """Decisions made for this plan."""
