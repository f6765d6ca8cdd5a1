"""`rackyard submit`: hand a job to the controller and return."""

from pathlib import Path

import click

from rackyard.cli.accept import accept_option, known_rules
from rackyard.cli.common import emit, hint_no_controller, open_home, output_option, state_option
from rackyard.cli.podoptions import pod_options
from rackyard.cli.target import Target, not_for_kubernetes, target_options


@click.command("submit")
@click.argument("file", type=click.Path(path_type=Path))
@accept_option
@click.option("--dry-run", is_flag=True, help="Check everything, store nothing; with -o, show the Kubernetes manifest.")
@output_option
@target_options
@pod_options
@state_option
def submit(file: Path, accept: tuple[str, ...], dry_run: bool, output: str, target: Target, state: Path) -> None:
    """Check FILE, store the job, print its id and return."""
    if target.kubernetes:
        from rackyard.cli.kubejobs import submit as to_cluster

        not_for_kubernetes({"--accept": accept})
        to_cluster(file, target, target.settings(), dry_run=dry_run, output=output)
        return
    from rackyard.cli.session import read_spec
    from rackyard.controller.submit import check
    from rackyard.controller.submit import submit as store_job

    spec, workdir = read_spec(file)
    if dry_run:
        check(spec, workdir)
        click.echo(f"{file}: ok; nothing was submitted")
        return
    home = open_home(state)
    job = store_job(home.store, spec, workdir, home.site().digest(), accept=known_rules(accept))
    emit(output, {"job": job}, lambda: click.echo(job))
    hint_no_controller(state)
