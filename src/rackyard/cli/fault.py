"""`rackyard fault inject`: faults for a simulated site."""

from pathlib import Path

import click

from rackyard.cli.common import open_home, state_option
from rackyard.errors import UsageError

KINDS = ("process", "tray", "switch-tray", "rack-nvlink", "hang")


@click.group("fault")
def fault() -> None:
    """Inject faults into a simulated site."""


@fault.command("inject")
@click.argument("job")
@click.option("--kind", type=click.Choice(KINDS), required=True)
@click.option("--at-step", type=click.IntRange(min=1), help="When the job has completed this step; default: at once.")
@click.option(
    "--target", default="", help="Rank, node or rack; default: the job's last rank, its node, or its first rack."
)
@state_option
def inject(job: str, kind: str, at_step: int | None, target: str, state: Path) -> None:
    """Let a fault of KIND strike JOB. Refused on a site that is not simulated."""
    from rackyard.jobs.events import FaultRequested

    home = open_home(state)
    site = home.site()
    if not site.simulated:
        raise UsageError(
            "faults are injected into simulated sites only",
            where=site.name,
            fix="try the recovery with `rackyard demo`, or use a state folder with a simulated site",
        )
    found = home.store.state(home.store.resolve(job))
    if found.phase.over:
        raise UsageError(f"{found.job} is {found.phase} already", fix="submit it again")
    number = len(found.faults_requested) + 1
    home.store.append(found.job, [FaultRequested(fault=number, kind=kind, target=target, at_step=at_step)])
    when = "at once" if at_step is None else f"at step {at_step}"
    click.echo(f"{found.job}: {kind} fault {when} (simulated)")
