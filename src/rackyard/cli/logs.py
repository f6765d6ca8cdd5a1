"""`rackyard logs`: what a job's ranks printed."""

import re
import time
from pathlib import Path

import click

from rackyard.cli.common import open_home, state_option
from rackyard.errors import UsageError

_ERROR = re.compile(r"Traceback|Error\b|Exception\b|Fatal|Xid")


@click.command("logs")
@click.argument("job")
@click.option("--rank", type=int, help="Only this rank.")
@click.option("--attempt", type=int, help="Which attempt; default: the newest.")
@click.option("--first-error", is_flag=True, help="Only from the first error line of each rank.")
@click.option("-f", "--follow", is_flag=True, help="Go on as more is written, until the job is over.")
@state_option
def logs(job: str, rank: int | None, attempt: int | None, first_error: bool, follow: bool, state: Path) -> None:
    """Print the logs of JOB, each line behind its rank."""
    home = open_home(state)
    name = home.store.resolve(job)
    folder = home.job_dir(name) / "logs"
    number = attempt or _newest(folder)
    files = _files(folder / f"attempt-{number}", rank)
    if not files:
        raise UsageError(
            "no log of that rank and attempt",
            where=str(folder / f"attempt-{number}"),
            fix="`rackyard attempts` lists the attempts, `rackyard status` the ranks",
        )
    offsets = dict.fromkeys(files, 0)
    while True:
        over = home.store.state(name).phase.over if follow else True
        for file in files:
            offsets[file] = _print(file, offsets[file], first_error)
        if over:
            return
        time.sleep(0.2)


def _newest(folder: Path) -> int:
    numbers = [int(path.name.removeprefix("attempt-")) for path in folder.glob("attempt-*")]
    return max(numbers, default=1)


def _files(folder: Path, rank: int | None) -> list[Path]:
    found = folder.glob("rank-*.log" if rank is None else f"rank-{rank}.log")
    return sorted(found, key=lambda path: int(path.stem.removeprefix("rank-")))


def _print(file: Path, offset: int, first_error: bool) -> int:
    with file.open("rb") as handle:
        handle.seek(offset)
        lines = handle.read().decode(errors="replace").splitlines()
        end = handle.tell()
    if first_error:
        at = next((at for at, text in enumerate(lines) if _ERROR.search(text)), len(lines))
        lines = lines[at : at + 40]
    for text in lines:
        click.echo(f"[{file.stem.removeprefix('rank-')}] {text}")
    return end
