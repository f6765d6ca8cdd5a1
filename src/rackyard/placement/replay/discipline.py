"""What a queue has to do with a replay: which gangs wait, which run, and which start now."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rackyard.placement.model import Request
from rackyard.placement.yard import Decision


@dataclass(frozen=True, slots=True, order=True)
class Waiting:
    """A gang in the queue. Sorted by its first three fields."""

    behind: int
    """Minus its priority."""
    submit: float
    job: int
    request: Request = field(compare=False)
    kind: int = field(compare=False)
    """The same number for equal requests."""
    estimate: float = field(compare=False)
    """Seconds that it says it needs."""


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Seats that a running gang gives back at its estimated end, or, without seats, nodes that a repair brings back."""

    time: float
    seats: Decision | None
    nodes: Sequence[int] = ()


@dataclass(slots=True, eq=False)
class Run:
    """A gang in its seats. Times are seconds."""

    seats: Decision
    began: float
    startup: float
    """How long after that its first new step comes."""
    until: float
    """Its end by its own estimate."""
    every: float
    """Between checkpoints."""

    def saved(self, now: float) -> float:
        """The seconds of work that its last checkpoint holds."""
        return max(0.0, now - self.began - self.startup) // self.every * self.every


class Ground(Protocol):
    """The replay, as a queue sees it."""

    @property
    def running(self) -> Mapping[int, Run]:
        """What runs, by job."""

    def releases(self) -> Sequence[Release]:
        """What will be given back, by the estimates."""

    def preempt(self, job: int, now: float) -> None:
        """Stop a running gang. It is added to the queue again."""


class Discipline(Protocol):
    """A queue. It takes seats on the yard when it starts a gang."""

    def add(self, gang: Waiting) -> None:
        """Put a gang into the queue."""

    def freed(self, *, shaken: bool = False) -> None:
        """Seats were freed. `shaken`: nodes came or went."""

    def starts(self, now: float, site: Ground) -> Iterator[tuple[Waiting, Decision]]:
        """The gangs that start now, one by one: the caller takes note of each before it asks for the next."""
