"""What one reader of the host gave in one round: facts, or why there are none."""

from dataclasses import dataclass
from enum import StrEnum

from rackyard.fabric.facts import Facts


class Trouble(StrEnum):
    """Why a reader gave nothing; the reason of the conditions that need it."""

    NO_DRIVER = "DriverNotLoaded"
    SILENT = "DriverSilent"
    """The driver is loaded and does not answer, or its library can't be reached from here."""
    FAILED = "ReaderFailed"
    TIMEOUT = "ReaderTimedOut"
    HANGING = "ReaderHangs"
    """A reader of an earlier round still can't be ended: the kernel holds it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reader's round. `facts` is None exactly when `trouble` is set; `line` says more of the trouble and does not
    change from round to round; `seconds` is how long it took.
    """

    reader: str
    facts: Facts | None
    seconds: float = 0.0
    trouble: Trouble | None = None
    line: str = ""
