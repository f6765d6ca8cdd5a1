"""`rackyard ps`: list jobs."""

from pathlib import Path

import click

from rackyard.cli.common import ago, emit, open_home, output_option, print_table, state_option


@click.command("ps")
@click.option("-a", "--all", "everything", is_flag=True, help="Finished jobs too.")
@output_option
@state_option
def ps(everything: bool, output: str, state: Path) -> None:
    """List jobs, newest first."""
    rows = open_home(state).store.jobs(live_only=not everything)
    emit(output, [dict(row) for row in rows], lambda: _table(rows))


def _table(rows: list) -> None:  # type: ignore[type-arg]
    headers = ["job", "phase", "gpus", "attempt", "step", "age", "reason"]
    print_table(
        headers,
        [
            (row["job"], row["phase"], row["gpus"], row["attempt"], row["step"], ago(row["submitted"]), row["reason"])
            for row in rows
        ],
    )
