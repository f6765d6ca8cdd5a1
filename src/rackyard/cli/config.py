"""`rackyard config`: what a job file may say."""

import json

import click

from rackyard.cli.common import emit, output_option


@click.group(name="config")
def config() -> None:
    """What a job file may say."""


@config.command()
def schema() -> None:
    """Print the JSON Schema of the job file, for editors and checks."""
    from rackyard.jobs.specdoc import file_schema  # pydantic takes long to import: only where needed

    click.echo(json.dumps(file_schema(), indent=2))


@config.command()
@click.argument("key", required=False)
@output_option
def explain(key: str | None, output: str) -> None:
    """Say what KEY of the job file means, or all keys where none is given.

    KEY is written with dots, such as watch.slow.ratio; a section shows all its keys.
    """
    from dataclasses import asdict

    from rackyard.errors import UsageError
    from rackyard.jobs.specdoc import rows
    from rackyard.jobs.specerrors import did_you_mean

    every = rows()
    shown = [row for row in every if key is None or row.key == key or row.key.startswith(f"{key}.")]
    if not shown:
        raise UsageError(f"no key {key} in a job file", fix=did_you_mean(str(key), [row.key for row in every]))

    def table() -> None:
        for row in shown:
            click.echo(f"{row.key}\n    {row.meaning}\n    type: {row.type}; default: {row.default}")

    emit(output, [asdict(row) for row in shown], table)
