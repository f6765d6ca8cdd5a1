"""`rackyard up`: the controller of a state folder, until it is stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from rackyard.cli.common import open_home, state_option
from rackyard.errors import RackyardError


@click.command("up")
@click.option(
    "--site", type=click.Path(path_type=Path), help="Site file; default: the folder's site, else two simulated racks."
)
@click.option("--detach", is_flag=True, help="Go on in the background; print the process id.")
@state_option
def up(site: Path | None, detach: bool, state: Path) -> None:
    """Run the controller. Stopping it stops no job: ranks go on, and the next controller picks them up."""
    home = open_home(state)
    place = home.site(site)
    if detach:
        _detach(home.path)
        return
    from rackyard.cli.session import controller, show

    with controller(home, place, show) as loop:
        click.echo(f"controller of {home.path} on {place.name}" + (" (simulated)" if place.simulated else ""))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        while True:
            loop.tick()


def _detach(path: Path) -> None:
    log = path / "controller.log"
    with log.open("ab") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "rackyard", "up", "--state", str(path)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    start = log.stat().st_size
    for _ in range(50):
        time.sleep(0.1)
        if child.poll() is not None:
            said = log.read_bytes()[-500:].decode(errors="replace").strip()
            raise RackyardError("the controller did not stay up", where=str(log), why=said)
        if log.stat().st_size > start:
            break
    click.echo(f"controller: process {child.pid}, log {log}")
