"""`rackyard ckpt`: look at checkpoints, check them, and choose how often to make them. Needs no torch."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rackyard.checkpoint import CheckpointInfo
    from rackyard.findings import Finding

EXIT_FINDINGS = 4

_output = click.option(
    "-o", "output", type=click.Choice(["table", "json", "yaml"]), default="table", help="Form of the output."
)
_seconds = click.FloatRange(min=0, min_open=True)


@click.group(name="ckpt")
def ckpt() -> None:
    """Look at checkpoints, check them, and choose how often to make them."""


@ckpt.command(name="ls")
@click.argument("directory", metavar="DIR")
@_output
def list_command(directory: str, output: str) -> None:
    """List the published checkpoints of DIR, newest first. Nothing is verified: see `ckpt verify`."""
    infos = _published(directory)
    rows = [_row(info) for info in infos]
    if output != "table":
        _dump(rows, output)
        return
    if not rows:
        click.echo(f"no checkpoints in {directory}")
        return
    columns = ("step", "created", "ranks", "files", "bytes", "path")
    _table(columns, [[_shown(row[key]) for key in columns] for row in rows])


@ckpt.command(name="verify")
@click.argument("directory", metavar="DIR")
@click.option("--step", type=click.IntRange(min=0), help="Check this step only; all of them otherwise.")
@_output
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
    if output != "table":
        _dump([_finding(finding) for finding in findings], output)
    elif not findings:
        click.echo(f"no checkpoints in {directory}")
    else:
        _tell(findings)
    # Unknown is never taken for healthy.
    if any(finding.verdict is not Verdict.PASS for finding in findings):
        sys.exit(EXIT_FINDINGS)


@ckpt.command(name="interval")
@click.option("--stall", type=_seconds, required=True, help="Seconds that training stands still for one save.")
@click.option("--mtbf", type=_seconds, required=True, help="Mean seconds between failures of the whole job.")
@_output
def interval_command(stall: float, mtbf: float, output: str) -> None:
    """Compute how often to save, after Young (1974) and Daly (2006)."""
    from rackyard.checkpoint import overhead, recommended_interval
    from rackyard.errors import UsageError

    try:
        interval = recommended_interval(stall, mtbf)
        lost = overhead(interval, stall, mtbf)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if output != "table":
        _dump({"stall_s": stall, "mtbf_s": mtbf, "interval_s": interval, "lost_share": lost}, output)
        return
    click.echo(f"save every {interval:.0f} s of training (predicted, after Daly 2006)")
    click.echo(f"time lost to saving and recomputing: {lost:.2%} (predicted, without restart time)")


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


def _finding(finding: "Finding") -> dict[str, Any]:
    from dataclasses import asdict

    # Enums as their text, tuples as lists: what JSON and YAML have in common.
    return {
        **asdict(finding),
        "verdict": finding.verdict.value,
        "severity": finding.severity.value,
        "evidence": [asdict(evidence) for evidence in finding.evidence],
    }


def _tell(findings: "Sequence[Finding]") -> None:
    _table(("verdict", "checkpoint", "summary"), [[f.verdict.value, f.subject, f.summary] for f in findings])
    for finding in findings:
        for evidence in finding.evidence:
            click.echo(f"{evidence.origin}: {evidence.text}")
        if finding.advice:
            click.echo(f"advice: {finding.advice}")


def _shown(value: object) -> str:
    return "unknown" if value is None else str(value)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=box.SIMPLE)
    for row in rows:
        table.add_row(*row)
    # Piped output never depends on the terminal's width.
    Console(width=None if sys.stdout.isatty() else 4096, markup=False, highlight=False).print(table)


def _dump(value: Any, output: str) -> None:
    writers: dict[str, Callable[[Any], None]] = {"json": _json, "yaml": _yaml}
    writers[output](value)


def _json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, indent=2))


def _yaml(value: Any) -> None:
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(value, sys.stdout)
