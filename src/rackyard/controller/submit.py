"""A checked job file becomes a job: what is wrong is said now, before anything is stored."""

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rackyard.controller.loop import checkpoint_dir
from rackyard.controller.store import Store
from rackyard.errors import UsageError
from rackyard.jobs import events as ev
from rackyard.jobs.state import JobState, Moment
from rackyard.launch import check_script


def submit(
    store: Store, spec: Mapping[str, Any], workdir: Path, site_digest: str, *, accept: Sequence[str] = ()
) -> str:
    """Store the job and return its id. `accept` names audit rules whose errors do not keep it from starting.

    UsageError when its script or checkpoint folder can't be used.
    """
    check(spec, workdir)
    _try_checkpoint_dir(spec, workdir)
    while True:
        # Four digits are for people; with hundreds of jobs of one name two of them do meet.
        job = f"{spec['name']}-{secrets.token_hex(2)}"
        first = ev.Submitted(job=job, spec=spec, workdir=str(workdir), site=site_digest, accept=tuple(accept))
        if store.create(first):
            return job


def check(spec: Mapping[str, Any], workdir: Path) -> None:
    """What can be told without writing anything. UsageError when the script or the checkpoint folder can't be used."""
    if not workdir.is_dir():
        raise UsageError(
            "the job's working directory does not exist",
            where=str(workdir),
            fix="correct `workdir` in the job file; a relative one starts at the job file's folder",
        )
    check_script(str(spec["run"]), str(workdir))
    folder = _checkpoint_dir(spec, workdir)
    if folder is None:
        return
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        raise _unusable(folder, f"{there} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise _unusable(folder, f"{there} can't be written")


def _checkpoint_dir(spec: Mapping[str, Any], workdir: Path) -> Path | None:
    return checkpoint_dir(JobState("", spec, str(workdir), Moment(0.0, 0.0)))


def _try_checkpoint_dir(spec: Mapping[str, Any], workdir: Path) -> None:
    folder = _checkpoint_dir(spec, workdir)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from error


def _unusable(folder: Path, reason: str) -> UsageError:
    return UsageError(
        "the checkpoint folder can't be written",
        where=str(folder),
        why=reason,
        fix="correct checkpoint.dir in the job file, or make the folder writable",
    )
