"""One save, from staged state to published directory. Runs on every rank at once, in a thread of its own."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict_saver import save as save_shards

from rackyard import worker
from rackyard.checkpoint.failure import explain, on_rank, say
from rackyard.checkpoint.layout import discard, step_name, temporary_name
from rackyard.checkpoint.manifest import FileRecord, Manifest
from rackyard.checkpoint.publish import intact, prune, publish
from rackyard.checkpoint.team import Team
from rackyard.checkpoint.writer import Writer
from rackyard.errors import CheckpointError


@dataclass(slots=True)
class Job:
    """What one save needs; the staged copies are freed with it."""

    directory: Path
    keep: int
    step: int
    leaves: dict[str, Any]
    extras: dict[str, Any] | None
    began: float  # time.monotonic() when save() was called
    stall: float = 0.0  # seconds that save() kept training waiting


@dataclass(frozen=True, slots=True)
class Saved:
    """A published checkpoint and its cost, all in seconds and bytes."""

    path: Path
    bytes: int
    write: float


def save(team: Team, job: Job) -> Saved:
    """Write, gather, publish, prune. Raises the same CheckpointError on every rank, leaving nothing behind."""
    began = time.monotonic()
    what = f"step {job.step} not saved"
    steps = team.everyone(lambda: job.step, what=what, where=job.directory)
    if len(set(steps)) > 1:
        raise CheckpointError(what, where=str(job.directory), why=f"the ranks are at different steps: {sorted(steps)}")
    temporary = team.from_lead(lambda: _prepare(job), what=what, where=job.directory)
    if temporary is None:
        path = job.directory / step_name(job.step)
        if team.leads:
            worker.report_checkpoint(job.step, str(path), seconds=time.monotonic() - job.began)
        return Saved(path, 0, time.monotonic() - began)
    try:
        records = _write(team, job, temporary, what)
        saved = team.from_lead(lambda: _publish(team, job, temporary, records, began), what=what, where=job.directory)
    except Exception:
        if team.leads:
            discard(temporary)
        raise
    if team.leads:
        worker.report_checkpoint(job.step, str(saved.path), seconds=time.monotonic() - job.began)
        _prune(job)
    return saved


def _prepare(job: Job) -> Path | None:
    """Make the temporary directory; None when the step is published already, by a run before a resume."""
    if intact(job.directory, job.step) is not None:
        return None
    temporary = job.directory / temporary_name(step_name(job.step))
    temporary.mkdir()
    return temporary


def _write(team: Team, job: Job, temporary: Path, what: str) -> list[FileRecord]:
    """Write this rank's files; returns the records of all ranks' files."""

    def mine() -> list[FileRecord]:
        if job.extras is not None:
            writer.write_extras(team.rank, job.extras)
        return writer.records

    writer = Writer(temporary)
    failed: CheckpointError | None = None
    try:
        save_shards(
            job.leaves,
            storage_writer=writer,
            planner=DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
            process_group=team.group,
            no_dist=team.group is None,
        )
    except CheckpointException as error:  # not an Exception in torch; the ranks have agreed on it already
        failed = _first_failure(error, what, job.directory, team.size)
    if failed is not None:
        raise failed
    gathered = team.everyone(mine, what=what, where=job.directory)
    return [record for records in gathered for record in records]


def _first_failure(error: CheckpointException, what: str, where: Path, size: int) -> CheckpointError:
    rank, (cause, _) = min(error.failures.items(), key=lambda item: item[0])
    told = explain(what, where, cause)
    return on_rank(told, rank) if size > 1 else told


def _publish(team: Team, job: Job, temporary: Path, records: list[FileRecord], began: float) -> Saved:
    write = time.monotonic() - began
    manifest = Manifest(
        step=job.step,
        world_size=team.size,
        created=time.time(),
        files=tuple(sorted(records, key=lambda record: record.name)),
        versions={"torch": str(torch.__version__)},
        metrics={"stall_s": job.stall, "write_s": write},
    )
    path = publish(temporary, manifest)
    return Saved(path, manifest.bytes, time.monotonic() - began)


def _prune(job: Job) -> None:
    """Remove old checkpoints; failing to do so doesn't make the new one less good."""
    try:
        prune(job.directory, job.keep, job.step)
    except (OSError, CheckpointError) as error:
        told = explain("an old checkpoint was not removed", job.directory, error)
        say(f"{told.what}: {told.why}")
