"""`rackyard run`: submit a job and follow it to its end."""

import sys
from pathlib import Path

import click

from rackyard.cli.accept import accept_option, known_rules
from rackyard.cli.common import open_home, state_option
from rackyard.cli.podoptions import pod_options
from rackyard.cli.target import Target, not_for_kubernetes, target_options


@click.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--site", type=click.Path(path_type=Path), help="Site file; default: the folder's site, else two simulated racks."
)
@accept_option
@click.option("-q", "--quiet", is_flag=True, help="Print the outcome only.")
@target_options
@pod_options
@state_option
def run(file: Path, site: Path | None, accept: tuple[str, ...], quiet: bool, target: Target, state: Path) -> None:
    """Run the job of FILE and follow it; the exit code is 0 if it succeeded and 1 if not.

    With a controller at work on the state folder (`rackyard up`) the job is handed to it. Ctrl-C cancels the job.
    """
    if target.kubernetes:
        from rackyard.cli.kubejobs import run as on_cluster

        not_for_kubernetes({"--accept": accept, "--site": site})
        sys.exit(on_cluster(file, target, target.settings(), quiet=quiet))
    from rackyard.cli.session import attend, read_spec, show
    from rackyard.controller.submit import submit
    from rackyard.jobs.why import why

    spec, workdir = read_spec(file)
    home = open_home(state)
    place = home.site(site)
    job = submit(home.store, spec, workdir, place.digest(), accept=known_rules(accept))
    listen = show if not quiet else lambda record, state: None
    if not quiet:
        click.echo(f"{job} on {place.name}" + (" (simulated)" if place.simulated else ""))
    answer = why(attend(home, place, job, listen))
    click.echo(f"{job}: {answer.phase}: {answer.reason}")
    if answer.next_step and answer.phase != "succeeded":
        click.echo(f"next: {answer.next_step}")
    sys.exit(0 if answer.phase == "succeeded" else 1)
