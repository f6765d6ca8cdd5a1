"""The one verdict type. Every room that checks something returns findings, so that one renderer,
one JSON shape, one exit-code rule and `why` serve them all.
"""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a check concluded. UNKNOWN is never shown or counted as healthy."""

    PASS = "PASS"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"
    NOT_APPLICABLE = "NOT_APPLICABLE"


class Severity(StrEnum):
    """How much a failed check matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line that proves a finding: where it was read and what it said."""

    origin: str
    text: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A checked statement about one subject, with its proof and what to do about it."""

    rule: str
    verdict: Verdict
    severity: Severity
    subject: str
    summary: str
    evidence: tuple[Evidence, ...] = ()
    advice: str = ""
