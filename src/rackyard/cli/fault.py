"""`rackyard fault inject`: faults for a simulated site."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rackyard.cli.common import hint_no_controller, open_home, state_option
from rackyard.errors import UsageError

if TYPE_CHECKING:
    from rackyard.fabric import Site

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
    target = _target(kind, target, found.gpus, site)
    if found.phase.over:
        raise UsageError(f"{found.job} is {found.phase} already", fix="submit it again")
    attempt = found.attempt
    if at_step is None and (attempt is None or attempt.ended or not any(r.alive for r in attempt.ranks.values())):
        raise UsageError(
            f"{found.job} has no living ranks to strike",
            why=f"it is {found.phase}",
            fix="wait until it runs, or give --at-step",
        )
    number = len(found.faults_requested) + 1
    home.store.append(found.job, [FaultRequested(fault=number, kind=kind, target=target, at_step=at_step)])
    when = "at once" if at_step is None else f"at step {at_step}"
    click.echo(f"{found.job}: {kind} fault {when} (simulated)")
    hint_no_controller(state)


def _target(kind: str, target: str, gpus: int, site: "Site") -> str:
    """The target in its plain form. UsageError for one that is not there; empty stays empty."""
    from rackyard.cli.nodes import known

    if not target:
        return target
    if kind == "tray":
        return known(target, [node.name for node in site.nodes], "node")
    if kind in ("switch-tray", "rack-nvlink"):
        return known(target, [rack.name for rack in site.racks], "rack")
    if not (target.isdecimal() and target.isascii() and int(target) < gpus):
        raise UsageError(
            f"there is no rank {target!r}",
            why=f"a {kind} fault strikes a rank, and the job's ranks are 0 to {gpus - 1}",
            fix="give --target one of these, or leave it out for the last rank",
        )
    return str(int(target))
