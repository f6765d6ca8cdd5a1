"""What the commands share: the state folder option, tables and machine-readable output."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rackyard.controller.home import Home
    from rackyard.controller.reading import Reader

F = TypeVar("F", bound=Callable[..., Any])

state_option = click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=True),
    default=lambda: Path(os.environ.get("RACKYARD_STATE", "~/.rackyard")).expanduser(),
    show_default="RACKYARD_STATE or ~/.rackyard",
    help="Folder of the store, the journals and the logs.",
)
output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True
)


def open_store(state: Path) -> "Reader":
    """The folder's store for a command that only looks: nothing is created, and a missing store holds no jobs."""
    from rackyard.controller.reading import STORE_FILE, Reader
    from rackyard.errors import UsageError

    if state.exists() and not state.is_dir():
        raise UsageError(
            "the state folder can't be used",
            where=str(state),
            why="it is not a folder",
            fix="name another one with --state or RACKYARD_STATE",
        )
    return Reader(state / STORE_FILE)


def open_home(state: Path) -> "Home":
    """The state folder, opened for writing and made if need be. Imported late: it brings the database with it."""
    from rackyard.controller.home import Home

    return Home(state)


def emit(output: str, data: Any, table: Callable[[], None]) -> None:
    """Print `data` as JSON or YAML, or call `table`."""
    if output == "json":
        import json

        click.echo(json.dumps(data, indent=2, default=str))
    elif output == "yaml":
        import io

        from ruamel.yaml import YAML

        writer = YAML(typ="safe", pure=True)
        writer.default_flow_style = False
        writer.width = 4096  # whole lines, for those who read YAML with grep
        writer.allow_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
        text = io.StringIO()
        writer.dump(data, text)
        click.echo(text.getvalue(), nl=False)
    else:
        table()


def hint(text: str) -> None:
    """Say something that is for people only: on stderr, so that a pipe does not get it."""
    click.echo(text, err=True)


def hint_no_controller(folder: Path) -> None:
    """Say so when nobody will act on what is stored in a state folder."""
    from rackyard.controller.reading import controller_pid

    if controller_pid(folder) is None:
        hint(f"no controller works on {folder}: start one with `rackyard up`")


def confirm(question: str) -> None:
    """Go on only when a person says yes. UsageError where there is nobody to ask."""
    from rackyard.errors import UsageError

    if not sys.stdin.isatty():
        raise UsageError("not confirmed", why=f"{question} nobody can answer here", fix="say yes with -y")
    click.confirm(question, abort=True)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[Any]], *, as_is: bool = False) -> None:
    """Columns padded to their content: never cut and never folded, whatever the terminal's width. Headers are shown in
    capitals, or `as_is` where they are names.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in [list(headers), *cells]) for at in range(len(headers))]
    for row in [[header if as_is else header.upper() for header in headers], *cells]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def ago(wall: float) -> str:
    """How long ago a time was, e.g. `8s`, `3m`."""
    seconds = max(0.0, time.time() - wall)
    return f"{seconds:.0f}s" if seconds < 10 else span(seconds)


def span(seconds: float | None) -> str:
    """A duration for people, e.g. `0.42s`, `12s`, `3m`, `2h`; `-` for one that is not known."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.2f}s"
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def clock(wall: float) -> str:
    """A time of day with milliseconds, e.g. `14:03:07.250`."""
    return time.strftime("%H:%M:%S", time.localtime(wall)) + f".{int(wall % 1 * 1000):03d}"


def plain(event: Any) -> Mapping[str, Any]:
    """A dataclass as plain data."""
    import msgspec

    data = msgspec.to_builtins(event)
    assert isinstance(data, Mapping)
    return data
