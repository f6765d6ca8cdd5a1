"""`rackyard up`: the controller of a state folder, until it is stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rackyard.cli.common import open_home, state_option
from rackyard.errors import NotYet, RackyardError

if TYPE_CHECKING:
    from rackyard.controller.home import Home

START_TIMEOUT = 60.0
"""Seconds for which `--detach` waits for the controller to say that it is up."""


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
        _detach(home)
        return
    from rackyard.cli.session import controller, show

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with controller(home, place, show) as loop:
        click.echo(f"controller of {home.path} on {place.name}" + (" (simulated)" if place.simulated else ""))
        try:
            while True:
                loop.tick()
        except KeyboardInterrupt:
            click.echo("stopped; ranks go on, and the next controller picks them up", err=True)


def _detach(home: "Home") -> None:
    log = home.path / "controller.log"
    with log.open("ab") as out:
        start = out.tell()
        child = subprocess.Popen(
            [sys.executable, "-m", "rackyard", "up", "--state", str(home.path)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    end = time.monotonic() + START_TIMEOUT
    while home.controller_pid() != child.pid:
        if child.poll() is not None:
            with log.open("rb") as said:
                said.seek(start)
                why = said.read(2000).decode(errors="replace").strip().removeprefix("error: ")
            raise RackyardError("the controller did not stay up", where=str(log), why=why or None)
        if time.monotonic() > end:
            raise NotYet(
                f"the controller has not come up in {START_TIMEOUT:.0f} s",
                where=str(log),
                fix=f"process {child.pid} may still come up: look into the log",
            )
        time.sleep(0.05)
    click.echo(f"controller: process {child.pid}, log {log}")
