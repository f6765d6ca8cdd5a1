"""`rackyard ckpt`: look at checkpoints, check them, and choose how often to make them. Needs no torch."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import emit, output_option, print_table
from rackyard.cli.findings import EXIT_FINDINGS, plain_finding

if TYPE_CHECKING:
    from rackyard.checkpoint import CheckpointInfo
    from rackyard.findings import Finding

_seconds = click.FloatRange(min=0, min_open=True)


@click.group(name="ckpt")
def ckpt() -> None:
    """Look at checkpoints, check them, and choose how often to make them."""


@ckpt.command(name="ls")
@click.argument("directory", metavar="DIR")
@output_option
def list_command(directory: str, output: str) -> None:
    """List the published checkpoints of DIR, newest first. Nothing is verified: see `ckpt verify`."""
    infos = _published(directory)
    rows = [_row(info) for info in infos]
    emit(output, rows, lambda: _tell_rows(directory, rows))


@ckpt.command(name="verify")
@click.argument("directory", metavar="DIR")
@click.option("--step", type=click.IntRange(min=0), help="Check this step only; all of them otherwise.")
@output_option
def verify_command(directory: str, step: int | None, output: str) -> None:
    """Read the checkpoints of DIR and compare every file with what was written.

    Exit code 0 when all are intact, 4 when one is damaged or can't be checked.
    """
    from rackyard.checkpoint import verify
    from rackyard.errors import UsageError
    from rackyard.findings import Verdict

    infos = [info for info in _published(directory) if step is None or info.step == step]
    if step is not None and not infos:
        raise UsageError(f"no checkpoint of step {step}", where=directory, fix="see: rackyard ckpt ls DIR")
    findings = [verify(info) for info in infos]
    emit(output, [plain_finding(finding) for finding in findings], lambda: _tell_findings(directory, findings))
    # Unknown is never taken for healthy.
    if any(finding.verdict is not Verdict.PASS for finding in findings):
        sys.exit(EXIT_FINDINGS)


@ckpt.command(name="interval")
@click.option("--stall", type=_seconds, required=True, help="Seconds that training stands still for one save.")
@click.option("--mtbf", type=_seconds, required=True, help="Mean seconds between failures of the whole job.")
@output_option
def interval_command(stall: float, mtbf: float, output: str) -> None:
    """Compute how often to save, after Young (1974) and Daly (2006)."""
    from rackyard.checkpoint import overhead, recommended_interval
    from rackyard.errors import UsageError

    try:
        interval = recommended_interval(stall, mtbf)
        lost = overhead(interval, stall, mtbf)
    except ValueError as error:
        raise UsageError(str(error)) from error
    data = {"stall_s": stall, "mtbf_s": mtbf, "interval_s": interval, "lost_share": lost}
    emit(output, data, lambda: _tell_interval(interval, lost))


def _published(directory: str) -> "tuple[CheckpointInfo, ...]":
    from rackyard.checkpoint import list_checkpoints
    from rackyard.errors import UsageError

    if not Path(directory).is_dir():
        raise UsageError(f"{directory} is not a directory", fix="name the directory that holds the checkpoints")
    return list_checkpoints(directory)


def _row(info: "CheckpointInfo") -> dict[str, Any]:
    from datetime import UTC, datetime

    try:
        created = None if info.created is None else datetime.fromtimestamp(info.created, UTC).isoformat("T", "seconds")
    except (ValueError, OverflowError, OSError):
        created = None  # a time that no calendar has
    return {
        "step": info.step,
        "path": str(info.path),
        "bytes": info.bytes,
        "files": info.files,
        "created": created,
        "ranks": info.world_size,
    }


def _tell_rows(directory: str, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        click.echo(f"no checkpoints in {directory}")
        return
    columns = ("step", "created", "ranks", "files", "bytes", "path")
    print_table(columns, [["unknown" if row[key] is None else row[key] for key in columns] for row in rows])


def _tell_findings(directory: str, findings: "Sequence[Finding]") -> None:
    if not findings:
        click.echo(f"no checkpoints in {directory}")
        return
    print_table(("verdict", "checkpoint", "summary"), [[f.verdict.value, f.subject, f.summary] for f in findings])
    for finding in findings:
        for evidence in finding.evidence:
            click.echo(f"{evidence.origin}: {evidence.text}")
        if finding.advice:
            click.echo(f"advice: {finding.advice}")


def _tell_interval(interval: float, lost: float) -> None:
    click.echo(f"save every {interval:.4g} s of training (predicted, after Daly 2006)")
    click.echo(f"time lost to saving and recomputing: {lost:.2%} (predicted, without restart time)")
