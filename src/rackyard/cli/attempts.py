"""`rackyard attempts`: fault, advice, action and resumed step of each attempt, with times."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rackyard.cli.common import clock, emit, open_store, output_option, plain, print_table, span, state_option
from rackyard.cli.shown import ATTEMPTS
from rackyard.cli.target import Target, target_options

if TYPE_CHECKING:
    from rackyard.jobs.state import JobState


@click.command("attempts")
@click.argument("job")
@output_option
@target_options
@state_option
def attempts(job: str, output: str, target: Target, state: Path) -> None:
    """Show what ended each attempt of JOB, what was done about it, and what it cost."""
    if target.kubernetes:
        from rackyard.cli.kubejobs import attempts as on_cluster

        on_cluster(job, target, output=output)
        return
    from rackyard.jobs.recovery import recoveries

    store = open_store(state)
    found = store.state(store.resolve(job))
    data = {
        "attempts": [plain(attempt) for attempt in found.attempts],
        "recoveries": [{**plain(item), "total": item.total} for item in recoveries(found)],
    }
    emit(output, data, lambda: show(found))


def show(found: "JobState") -> None:
    """Print the attempts and the split of each recovery."""
    from rackyard.jobs.recovery import PARTS, recoveries
    from rackyard.placement import decode

    rows = []
    for attempt in found.attempts:
        seats = "; ".join(
            f"{segment.rack}[{','.join(segment.nodes)}]" for segment in decode(dict(attempt.placement)).segments
        )
        fault = attempt.fault.summary if attempt.fault is not None else attempt.outcome or "-"
        action = attempt.advice.action if attempt.advice is not None else "-"
        began = clock(attempt.launched.wall) if attempt.launched is not None else "-"
        resumed = "-" if attempt.resume_step is None else attempt.resume_step
        rows.append((attempt.number, began, resumed, attempt.step, fault, action, seats))
    print_table(ATTEMPTS, rows)
    split = recoveries(found)
    if split:
        click.echo("")
        costs = [
            (item.attempt, item.cause, span(item.total), *(span(item.parts[part]) for part in PARTS), item.steps_lost)
            for item in split
        ]
        print_table(["attempt", "fault", "recovered in", *PARTS, "steps lost"], costs)
