"""`rackyard submit`: hand a job to the controller and return."""

from pathlib import Path

import click

from rackyard.cli.accept import accept_option, known_rules
from rackyard.cli.common import hint_no_controller, open_home, state_option


@click.command("submit")
@click.argument("file", type=click.Path(path_type=Path))
@accept_option
@click.option("--dry-run", is_flag=True, help="Check everything, store nothing.")
@state_option
def submit(file: Path, accept: tuple[str, ...], dry_run: bool, state: Path) -> None:
    """Check FILE, store the job, print its id and return."""
    from rackyard.cli.session import read_spec
    from rackyard.controller.submit import check
    from rackyard.controller.submit import submit as store_job

    spec, workdir = read_spec(file)
    if dry_run:
        check(spec, workdir)
        click.echo(f"{file}: ok; nothing was submitted")
        return
    home = open_home(state)
    click.echo(store_job(home.store, spec, workdir, home.site().digest(), accept=known_rules(accept)))
    hint_no_controller(state)
