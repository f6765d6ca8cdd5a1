"""`rackyard cancel`: end a job."""

from pathlib import Path

import click

from rackyard.cli.common import confirm, hint_no_controller, open_home, open_store, state_option
from rackyard.cli.target import Target, target_options


@click.command("cancel")
@click.argument("job")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be cancelled; cancel nothing.")
@target_options
@state_option
def cancel(job: str, yes: bool, dry_run: bool, target: Target, state: Path) -> None:
    """End JOB: SIGTERM, and SIGKILL to what is left after the grace time."""
    if target.kubernetes:
        from rackyard.cli.kubejobs import cancel as on_cluster

        on_cluster(job, target, yes=yes, dry_run=dry_run)
        return
    from rackyard.jobs.events import CancelRequested

    store = open_store(state)
    found = store.state(store.resolve(job))
    if found.phase.over:
        click.echo(f"{found.job} is {found.phase} already")
        return
    if dry_run:
        click.echo(f"would cancel {found.job} ({found.phase}, step {found.best_step})")
        return
    if not yes:
        confirm(f"cancel {found.job} ({found.phase}, step {found.best_step})?")
    home = open_home(state)
    home.store.append(found.job, [CancelRequested()])
    click.echo(f"{found.job}: cancel requested")
    hint_no_controller(state)
