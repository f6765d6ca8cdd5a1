"""`rackyard ps`: list jobs."""

from pathlib import Path

import click

from rackyard.cli.common import emit, hint, open_store, output_option, state_option
from rackyard.cli.shown import jobs_table
from rackyard.cli.target import Target, target_options


@click.command("ps")
@click.option("-a", "--all", "everything", is_flag=True, help="Finished jobs too.")
@output_option
@target_options
@state_option
def ps(everything: bool, output: str, target: Target, state: Path) -> None:
    """List jobs, newest first."""
    if target.kubernetes:
        from rackyard.cli.kubejobs import ps as of_cluster

        of_cluster(target, everything=everything, output=output)
        return
    store = open_store(state)
    rows = store.jobs(live_only=not everything)
    emit(output, rows, lambda: jobs_table(rows))
    if not rows and output == "table":
        finished = store.count()
        if finished:
            hint(f"no unfinished jobs; `rackyard ps -a` shows {finished} more")
        else:
            hint(f"no jobs in {state} yet: `rackyard run job.yaml` starts one, `rackyard demo` shows how it goes")
