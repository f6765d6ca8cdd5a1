"""`rackyard why`: one dominant reason, the evidence, the next step."""

from pathlib import Path

import click

from rackyard.cli.common import emit, hint_no_controller, open_store, output_option, plain, state_option
from rackyard.cli.target import Target, target_options


@click.command("why")
@click.argument("job")
@output_option
@target_options
@state_option
def why(job: str, output: str, target: Target, state: Path) -> None:
    """Say why JOB is where it is, with the evidence and the next step."""
    from rackyard.controller.reading import OVER
    from rackyard.jobs.why import why as explain

    if target.kubernetes:
        from rackyard.cli.kubejobs import why as on_cluster

        answer = on_cluster(job, target)
    else:
        store = open_store(state)
        answer = explain(store.state(store.resolve(job)))

    def table() -> None:
        click.echo(f"{answer.job} is {answer.phase}: {answer.reason}")
        for line in answer.evidence:
            click.echo(f"  {line}")
        click.echo(f"next: {answer.next_step or 'nothing to do'}")
        if answer.phase not in OVER and not target.kubernetes:
            hint_no_controller(state)

    emit(output, plain(answer), table)
