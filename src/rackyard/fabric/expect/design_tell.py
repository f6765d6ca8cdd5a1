"""How the comparison with a design says what differs: one place of the design and one of the found site as proof."""

from rackyard.fabric.model import Site
from rackyard.findings import Evidence, Finding, Severity, Verdict

RULE = "fabric/design"
MANY = 6
"""How many names one finding lists."""


class Teller:
    """Makes findings with the two places of one part as their proof."""

    def __init__(self, found: Site, design: Site) -> None:
        self._origins = (_origin(design, "design"), _origin(found, "found"))

    def __call__(
        self, subject: str, summary: str, advice: str, pair: tuple[str, str], severity: Severity = Severity.ERROR
    ) -> Finding:
        """A FAIL; `pair` is what the design and what the found site have."""
        evidence = tuple(
            Evidence(origin, text, line) for (origin, line), text in zip(self._origins, pair, strict=True) if text
        )
        return Finding(RULE, Verdict.FAIL, severity, subject, summary, evidence, advice)


def _origin(site: Site, role: str) -> tuple[str, int | None]:
    said = site.provenance
    return f"{role}: {said.file or said.reader or site.name}", said.line


def unknown(subject: str, summary: str) -> Finding:
    """What the found site does not say."""
    return Finding(
        RULE, Verdict.UNKNOWN, Severity.WARNING, subject, summary, advice="run `rackyard topo collect` there"
    )
