"""`rackyard status`: one job."""

from pathlib import Path

import click

from rackyard.cli.common import clock, emit, hint_no_controller, open_store, output_option, plain, state_option


@click.command("status")
@click.argument("job")
@output_option
@state_option
def status(job: str, output: str, state: Path) -> None:
    """Show one job: phase, seats, ranks, newest step and checkpoint."""
    from rackyard.jobs.why import why

    store = open_store(state)
    found = store.state(store.resolve(job))

    def table() -> None:
        answer = why(found)
        click.echo(f"job         {found.job}")
        click.echo(f"phase       {found.phase}")
        click.echo(f"reason      {answer.reason}")
        click.echo(f"submitted   {clock(found.submitted.wall)}")
        click.echo(f"newest step {found.best_step}")
        if found.metrics:
            told = ", ".join(f"{name} {value:g}" for name, value in found.metrics.items())
            click.echo(f"metrics     {told} (step {found.metrics_step})")
        if found.checkpoint is not None:
            click.echo(f"checkpoint  step {found.checkpoint.step}, {found.checkpoint.path}")
        attempt = found.attempt
        if attempt is not None:
            click.echo(f"attempt     {attempt.number}, at step {attempt.step}")
            for rank, known in sorted(attempt.ranks.items()):
                how = "running" if known.alive else _ended(known.exit)
                click.echo(f"  rank {rank:<4} {known.node:<12} pid {known.pid}  step {known.step}  {how}")

        if not found.phase.over:
            hint_no_controller(state)

    emit(output, plain(found), table)


def _ended(exit_: object) -> str:
    from rackyard.faults.attribute import how
    from rackyard.faults.observations import RankExited

    return how(exit_) if isinstance(exit_, RankExited) else "not started"
