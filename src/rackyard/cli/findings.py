"""Findings on the command line: one form, one order, one rule for the exit code."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.inputs import counted

if TYPE_CHECKING:
    from rackyard.findings import Finding

EXIT_FINDINGS = 4

_SHOWN = 8
"""Lines of evidence that are shown of one finding; `-o json` has them all."""


def plain_finding(finding: "Finding") -> dict[str, Any]:
    """A finding as plain data."""
    from dataclasses import asdict

    # Enums as their text, tuples as lists: what JSON and YAML have in common.
    return {
        **asdict(finding),
        "verdict": finding.verdict.value,
        "severity": finding.severity.value,
        "evidence": [asdict(one) for one in finding.evidence],
    }


def in_order(findings: Iterable["Finding"]) -> "list[Finding]":
    """What matters most first: failures by severity, then what is unknown, then what is well."""
    from rackyard.findings import Severity, Verdict

    severities = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    verdicts = [Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS, Verdict.NOT_APPLICABLE]
    return sorted(findings, key=lambda one: (verdicts.index(one.verdict), severities.index(one.severity), one.rule))


def noteworthy(findings: Iterable["Finding"]) -> "list[Finding]":
    """Those that are not well: what failed with more than a remark, and what is unknown."""
    from rackyard.findings import Severity, Verdict

    return [
        one
        for one in findings
        if one.verdict is Verdict.UNKNOWN or (one.verdict is Verdict.FAIL and one.severity is not Severity.INFO)
    ]


def show_findings(findings: "Sequence[Finding]", *, passed: bool = False, err: bool = False) -> None:
    """Print findings for people, and a line of totals. Checks that passed are counted; `passed` shows them too. What
    nothing is known of, and no line proves, is listed by what would tell.
    """
    from rackyard.findings import Verdict

    blind: dict[str, list[Finding]] = {}
    for one in in_order(findings):
        if one.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE) and not passed:
            continue
        if one.verdict is Verdict.UNKNOWN and not one.evidence:
            blind.setdefault(one.advice, []).append(one)
        else:
            _show(one, err)
    for advice, alike in blind.items():
        _show_blind(advice, alike, err)
    click.echo(totals(findings), err=err)


def _show(one: "Finding", err: bool) -> None:
    from rackyard.findings import Verdict

    word = one.severity.value.upper() if one.verdict is Verdict.FAIL else one.verdict.value
    click.echo(f"{word}  {one.rule}  {one.subject}\n  {one.summary}", err=err)
    for line in one.evidence[:_SHOWN]:
        place = f"{line.origin}:{line.line}" if line.line is not None else line.origin
        click.echo(f"    {place}" + (f": {' '.join(line.text.split())}" if line.text else ""), err=err)
    if len(one.evidence) > _SHOWN:
        click.echo(f"    and {counted(len(one.evidence) - _SHOWN, 'more line')} (-o json shows all)", err=err)
    if one.advice:
        click.echo(f"  do: {one.advice}", err=err)


def _show_blind(advice: str, alike: "Sequence[Finding]", err: bool) -> None:
    for one in alike:
        click.echo(f"UNKNOWN  {one.rule}  {one.subject}: {one.summary}", err=err)
    if advice:
        click.echo(f"  do: {advice}", err=err)


def totals(findings: "Sequence[Finding]") -> str:
    """How many of each, in words."""
    from rackyard.findings import Verdict

    failed = Counter(one.severity.value for one in findings if one.verdict is Verdict.FAIL)
    others = Counter(one.verdict for one in findings)
    words = [f"{failed['info']} info" if name == "info" else counted(failed[name], name) for name in _SEVERITIES]
    words += [f"{others[Verdict.UNKNOWN]} unknown", f"{counted(others[Verdict.PASS], 'check')} passed"]
    words += [f"{others[Verdict.NOT_APPLICABLE]} not applicable"] if others[Verdict.NOT_APPLICABLE] else []
    return ", ".join(words)


_SEVERITIES = ("error", "warning", "info")


def exit_by(findings: "Iterable[Finding]") -> None:
    """Exit code 4 when a check failed with more than a remark; 0 otherwise."""
    from rackyard.findings import Severity, Verdict

    if any(one.verdict is Verdict.FAIL and one.severity is not Severity.INFO for one in findings):
        sys.exit(EXIT_FINDINGS)
