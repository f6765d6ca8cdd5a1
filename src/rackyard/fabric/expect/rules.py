"""What a rule of the audit is, and how it says what it found."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rackyard.fabric.expect.context import Context
from rackyard.fabric.facts import Source
from rackyard.findings import Evidence, Finding, Severity, Verdict

MOST_EVIDENCE = 8
"""How many lines prove one finding; more would not be read."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its id, how much a failure matters, one line on what it holds, and the function that looks.

    The function returns FAIL for what is wrong, UNKNOWN for what it could not judge, NOT_APPLICABLE where there is
    nothing of the kind, and one PASS when it looked at something and neither of the former came up (`close`).
    """

    id: str
    severity: Severity
    what: str
    check: "Callable[[Rule, Context], Iterable[Finding]]"

    def fail(
        self, subject: str, summary: str, sources: Iterable[Source | None] = (), advice: str = "", mild: bool = False
    ) -> Finding:
        """Something is wrong. `mild` takes the severity down to a warning. Sources that are None are left out."""
        severity = Severity.WARNING if mild else self.severity
        return Finding(self.id, Verdict.FAIL, severity, subject, summary, proof(sources), advice)

    def unknown(self, subject: str, summary: str, advice: str = "", sources: Iterable[Source | None] = ()) -> Finding:
        """There is no telling; `advice` says what would be needed."""
        return Finding(self.id, Verdict.UNKNOWN, Severity.WARNING, subject, summary, proof(sources), advice)

    def passed(self, summary: str) -> Finding:
        """All that was looked at is well."""
        return Finding(self.id, Verdict.PASS, Severity.INFO, "site", summary)

    def not_applicable(self, summary: str) -> Finding:
        """The site has nothing that the rule speaks of."""
        return Finding(self.id, Verdict.NOT_APPLICABLE, Severity.INFO, "site", summary)

    def close(self, found: Sequence[Finding], looked_at: str) -> list[Finding]:
        """The findings, or one PASS that says what was looked at when there are none."""
        return list(found) or [self.passed(looked_at)]


def proof(sources: Iterable[Source | None]) -> tuple[Evidence, ...]:
    """The lines that prove a finding, each once."""
    lines = dict.fromkeys(source.evidence() for source in sources if source is not None)
    return tuple(lines)[:MOST_EVIDENCE]
