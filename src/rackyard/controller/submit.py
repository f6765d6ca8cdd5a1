"""A checked job file becomes a job: what is wrong is said now, before anything is stored."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rackyard.controller.loop import checkpoint_dir
from rackyard.controller.store import Store
from rackyard.errors import UsageError
from rackyard.jobs import events as ev
from rackyard.jobs.state import JobState, Moment
from rackyard.jobs.why import why
from rackyard.launch import check_script


def submit(store: Store, spec: Mapping[str, Any], workdir: Path, site_digest: str) -> str:
    """Store the job and return its id. UsageError when its script or checkpoint folder can't be used."""
    job = f"{spec['name']}-{secrets.token_hex(2)}"
    check_script(str(spec["run"]), str(workdir))
    first = JobState(job, spec, str(workdir), Moment(0.0, 0.0))
    _check_checkpoint_dir(first)
    store.append(job, [ev.Submitted(job=job, spec=spec, workdir=str(workdir), site=site_digest)])
    state = store.state(job)
    store.project(state, why(state).reason)
    return job


def _check_checkpoint_dir(state: JobState) -> None:
    folder = checkpoint_dir(state)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            "the checkpoint folder can't be written",
            where=str(folder),
            why=error.strerror or str(error),
            fix="correct checkpoint.dir in the job file, or make the folder writable",
        ) from error
