"""Which errors of an audit keep a job from starting on which nodes."""

import pytest

from rackyard.fabric import simulate
from rackyard.findings import Finding, Severity, Verdict
from rackyard.launch import refusals


@pytest.mark.parametrize(
    ("subject", "node", "refused"),
    [
        ("rack r01, node r01-t01, GPU 2", "r01-t01", True),
        ("rack r01, node r01-t01, GPU 2", "r01-t02", False),
        ("rack r01, r01-t01, r01-t02", "r01-t03", False),
        ("rack r01, r01-t01, r01-t02 and 4 more", "r01-t03", True),
        ("rack r01, r01-t01, r01-t02 and 4 more", "r02-t03", False),
        ("r01-t01, r01-t02 and 4 more", "r02-t03", True),
        ("leaf leaf-0-r02", "r02-t03", True),
        ("leaf leaf-0-r02", "r01-t03", False),
        ("site", "r01-t03", True),
    ],
)
def test_whom_a_finding_concerns(subject: str, node: str, refused: bool) -> None:
    finding = Finding("fabric/port-state", Verdict.FAIL, Severity.ERROR, subject, "what is wrong")
    assert bool(refusals([finding], simulate(racks=2), [node], ())) is refused
    assert refusals([finding], simulate(racks=2), [node], ("fabric/port-state",)) == ()
