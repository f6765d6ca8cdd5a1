"""`rackyard events`: everything that happened to a job."""

from pathlib import Path

import click

from rackyard.cli.common import clock, emit, open_store, output_option, plain, print_table, state_option


@click.command("events")
@click.argument("job")
@output_option
@state_option
def events(job: str, output: str, state: Path) -> None:
    """Show every stored event of JOB, oldest first."""
    store = open_store(state)
    records = store.records(store.resolve(job))
    data = [
        {
            "seq": record.seq,
            "wall": record.wall,
            "mono": record.mono,
            "kind": type(record.event).__name__,
            # Apart, for events have a kind and times of their own.
            "body": plain(record.event),
        }
        for record in records
    ]

    def table() -> None:
        from rackyard.cli.timeline import describe

        rows = [(record.seq, clock(record.wall), type(record.event).__name__, describe(record)) for record in records]
        print_table(["seq", "time", "event", "what"], rows)

    emit(output, data, table)
