"""The conditions of a node, from the signs of the checks. Pure.

True says that something is wrong, as node conditions do. False is said only when everything it speaks of was looked at.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rackyard.agent import checks
from rackyard.agent.checks import Seen, Sign
from rackyard.findings import Evidence, Finding, Severity, Verdict

MOST = 1000
"""Characters of a message; more would not be read."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a node, as core/v1 NodeCondition has it, without times. `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str
    message: str


CHECKS: Mapping[str, Callable[[Seen], tuple[Sign, ...]]] = {
    "rackyard.io/NVLinkDown": checks.nvlinks,
    "rackyard.io/GPUFault": checks.gpus,
    "rackyard.io/FabricDegraded": checks.fabric,
    "rackyard.io/NICDown": checks.nics,
}
"""What each condition rests on."""

RULES = {
    "rackyard.io/NVLinkDown": "node/nvlinks",
    "rackyard.io/GPUFault": "node/gpus",
    "rackyard.io/FabricDegraded": "node/fabric",
    "rackyard.io/NICDown": "node/nics",
}
"""Under which rule its signs are counted as findings."""

_STATUS = {Verdict.FAIL: "True", Verdict.UNKNOWN: "Unknown", Verdict.PASS: "False"}
_SEVERITY = {Verdict.FAIL: Severity.ERROR, Verdict.UNKNOWN: Severity.WARNING, Verdict.PASS: Severity.INFO}


def condition(kind: str, signs: Sequence[Sign]) -> Condition:
    """The condition that signs make: one fault suffices, and what is not known comes before what is well."""
    for verdict, status in _STATUS.items():
        own = [sign for sign in signs if sign.verdict is verdict]
        if own:
            return Condition(kind, status, own[0].reason, _message(own))
    return Condition(kind, "Unknown", "NotLookedAt", "nothing was looked at")


def findings(node: str, kind: str, signs: Sequence[Sign]) -> tuple[Finding, ...]:
    """The same signs as findings of one rule."""
    return tuple(
        Finding(
            RULES[kind],
            sign.verdict,
            _SEVERITY[sign.verdict],
            f"node {node}",
            sign.text,
            tuple(source.evidence() for source in sign.sources),
        )
        for sign in signs
    )


def _message(signs: Sequence[Sign]) -> str:
    lines = []
    for sign in signs:
        told = dict.fromkeys(_proof(source.evidence(), sign.text) for source in sign.sources)
        lines.append(sign.text + (f" [{'; '.join(told)}]" if told else ""))
    text = "; ".join(lines)
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


def _proof(evidence: Evidence, said: str) -> str:
    """Where it was read, and what it said there unless that is `said` already."""
    place = evidence.origin + (f":{evidence.line}" if evidence.line is not None else "")
    return f"{place}: {evidence.text}" if evidence.text and evidence.text not in said else place
