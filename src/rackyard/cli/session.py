"""A controller for a state folder, and following a job with or without one of our own."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rackyard.errors import ConflictError

if TYPE_CHECKING:
    from rackyard.controller.home import Home
    from rackyard.controller.loop import Controller
    from rackyard.fabric import Site
    from rackyard.jobs.events import Record
    from rackyard.jobs.state import JobState

Listen = Callable[["Record", "JobState"], None]

POLL = 0.2
"""Seconds between two looks at the store while another process is the controller."""


@contextmanager
def controller(home: "Home", site: "Site", listen: Listen | None = None) -> "Iterator[Controller]":
    """The controller of a state folder, with the local backend. ConflictError when there is one already."""
    from rackyard.backends.local import LocalBackend
    from rackyard.controller.loop import Controller
    from rackyard.controller.strike import SimulatedFaults

    with home.controller_lock(), closing(LocalBackend(home.path)) as backend:
        injector = SimulatedFaults(backend, site) if site.simulated else None
        yield Controller(home.store, backend, site, home.path, injector=injector, listen=listen)


def drive(home: "Home", site: "Site", job: str, listen: Listen) -> "JobState":
    """Be the controller until the job is over."""

    def mine(record: "Record", state: "JobState") -> None:
        if state.job == job:
            listen(record, state)

    with controller(home, site, mine) as loop:
        while True:
            loop.tick()
            state = home.store.state(job)
            if state.phase.over:
                return state


def follow(home: "Home", job: str, listen: Listen) -> "JobState":
    """Show what another controller does with the job, until the job is over or that controller is gone."""
    state = home.store.state(job)
    for record in home.store.records(job):
        listen(record, state)
    while not state.phase.over and home.controller_pid() is not None:
        time.sleep(POLL)
        state, new = home.store.refresh(state)
        for record in new:
            listen(record, state)
    return state


def attend(home: "Home", site: "Site", job: str, listen: Listen) -> "JobState":
    """See the job to its end: as its controller, or beside the one there is, whose work is taken over if it goes."""
    seen = 0

    def once(record: "Record", state: "JobState") -> None:
        nonlocal seen
        if record.seq > seen:
            seen = record.seq
            listen(record, state)

    from rackyard.jobs.events import CancelRequested

    asked = False
    while True:
        try:
            try:
                return drive(home, site, job, once)
            except ConflictError:
                state = follow(home, job, once)
                if state.phase.over:
                    return state
                # Between a controller's start and its first sign of life nobody is seen to hold the folder.
                time.sleep(POLL)
        except KeyboardInterrupt:
            if asked:
                raise
            asked = True
            click.echo("cancelling; press Ctrl-C again to leave at once", err=True)
            home.store.append(job, [CancelRequested()])


def show(record: "Record", _state: "JobState") -> None:
    """Print the record's line of the timeline, if it has one."""
    from rackyard.cli.timeline import line

    text = line(record)
    if text is not None:
        click.echo(text)


def read_spec(file: Path) -> tuple[dict[str, object], Path]:
    """The checked job file as data, and the folder its command runs in. SpecError for a bad file."""
    from rackyard.jobs.specfile import load_spec

    spec = load_spec(file)
    return spec.to_dict(), (file.absolute().parent / (spec.workdir or ".")).resolve()
