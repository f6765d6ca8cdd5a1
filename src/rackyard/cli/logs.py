"""`rackyard logs`: what a job's ranks printed."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rackyard.cli.common import open_store, state_option
from rackyard.cli.shown import first_errors
from rackyard.cli.target import Target, target_options
from rackyard.errors import UsageError

if TYPE_CHECKING:
    from rackyard.controller.reading import Reader


@click.command("logs")
@click.argument("job")
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank.")
@click.option("--attempt", type=click.IntRange(min=1), help="Which attempt; default: the newest.")
@click.option(
    "--first-error",
    is_flag=True,
    help="Only from the first error line of each rank; without any, the last lines of the rank that failed.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on as more is written, until the job is over.")
@target_options
@state_option
def logs(
    job: str, rank: int | None, attempt: int | None, first_error: bool, follow: bool, target: Target, state: Path
) -> None:
    """Print the logs of JOB, each line behind its rank."""
    if follow and first_error:
        raise UsageError("--follow and --first-error do not go together", fix="leave one of them out")
    if target.kubernetes:
        from rackyard.cli.kubelogs import Wanted
        from rackyard.cli.kubelogs import logs as of_cluster

        of_cluster(job, target, Wanted(rank, attempt, first_error=first_error), follow=follow)
        return
    store = open_store(state)
    name = store.resolve(job)
    folder = state / "jobs" / name / "logs"
    if follow:
        _follow(store, name, folder, rank, attempt)
        return
    number = attempt or _newest(folder)
    here = folder / f"attempt-{number}"
    files = _files(here, rank)
    if not files:
        raise UsageError(
            "no log of that rank and attempt" if here.exists() else "no log of that attempt",
            where=str(here),
            fix="`rackyard attempts` lists the attempts, `rackyard status` the ranks",
        )
    if first_error:
        _print_errors(files, _failed(store, name, number))
        return
    for file in files:
        _print(file, 0)


def _failed(store: "Reader", job: str, number: int) -> list[str]:
    """The first rank of an attempt that ended badly: the others were ended, or failed of that."""
    found = next((each for each in store.state(job).attempts if each.number == number), None)
    exits = [] if found is None else [rank.exit for rank in found.ranks.values() if rank.exit is not None]
    bad = [each for each in exits if each.code or each.signal]
    return [f"rank {min(bad, key=lambda each: each.wall).rank}"] if bad else []


def _print_errors(files: list[Path], failed: list[str]) -> None:
    logs = {f"rank {_rank(file)}": file.read_bytes().decode(errors="replace").splitlines() for file in files}
    for name, lines in first_errors(logs, failed).items():
        for text in lines:
            click.echo(f"[{name.removeprefix('rank ')}] {text}")


def _follow(store: "Reader", job: str, folder: Path, rank: int | None, attempt: int | None) -> None:
    """Print what is there and what comes, attempt after attempt, until the job is over."""
    offsets: dict[Path, int] = {}
    while True:
        # Asked first: what is written before the end is then still read.
        over = store.state(job).phase.over
        for file in _files(folder / f"attempt-{attempt or _newest(folder)}", rank):
            offsets[file] = _print(file, offsets.get(file, 0), partial=over)
        if over:
            return
        time.sleep(0.2)


def _newest(folder: Path) -> int:
    numbers = [int(path.name.removeprefix("attempt-")) for path in folder.glob("attempt-*")]
    return max(numbers, default=1)


def _files(folder: Path, rank: int | None) -> list[Path]:
    found = folder.glob("rank-*.log" if rank is None else f"rank-{rank}.log")
    return sorted(found, key=_rank)


def _rank(file: Path) -> int:
    return int(file.stem.removeprefix("rank-"))


def _print(file: Path, offset: int, *, partial: bool = True) -> int:
    """Print the file from `offset`, and return where to go on. A line without an end waits, unless `partial`."""
    with file.open("rb") as handle:
        handle.seek(offset)
        data = handle.read()
    if not partial:
        data = data[: data.rfind(b"\n") + 1]
    for text in data.decode(errors="replace").splitlines():
        click.echo(f"[{_rank(file)}] {text}")
    return offset + len(data)
