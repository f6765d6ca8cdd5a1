"""The commands about jobs, for `--target kubernetes`."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import clock, confirm, emit, hint, plain, print_table
from rackyard.cli.shown import ATTEMPTS, jobs_table
from rackyard.errors import UsageError
from rackyard.jobs.kubejob import KubeJob, phase_of, seats
from rackyard.jobs.kubejob import attempts as rows_of
from rackyard.jobs.kubeplaced import seatless, verdict
from rackyard.jobs.kubewhy import why as explain
from rackyard.jobs.state import Phase

if TYPE_CHECKING:
    from rackyard.backends.kubernetes.jobs import Jobs
    from rackyard.cli.target import Target
    from rackyard.jobs.why import Why
    from rackyard.launch.volcano import Settings

POLL = 1.0
"""Seconds between two looks at a job that is followed."""


def submit(file: Path, target: "Target", settings: "Settings", *, dry_run: bool, output: str) -> None:
    """Submit the job of FILE; with `dry_run` check it there, or show the manifest without asking anybody."""
    made = _manifest(file, settings)
    if output != "table" and dry_run:
        emit(output, made, lambda: None)
        return
    with target.jobs() as jobs:
        name = jobs.submit(made, dry_run=dry_run)
    if dry_run:
        click.echo(f"{file}: ok; nothing was submitted")
    else:
        emit(output, {"job": name}, lambda: click.echo(name))


def run(file: Path, target: "Target", settings: "Settings", *, quiet: bool) -> int:
    """Submit the job of FILE and follow it; the exit code."""
    made = _manifest(file, settings)
    with target.jobs() as jobs:
        name = jobs.submit(made)
        if not quiet:
            click.echo(f"{name} on {jobs.client.server}, namespace {jobs.namespace}")
        answer = explain(_attend(jobs, name, quiet=quiet))
    click.echo(f"{name}: {answer.phase}: {answer.reason}")
    if answer.next_step and answer.phase != "succeeded":
        click.echo(f"next: {target.typed(answer.next_step)}")
    return 0 if answer.phase == "succeeded" else 1


def ps(target: "Target", *, everything: bool, output: str) -> None:
    """List jobs, newest first."""
    with target.jobs() as jobs:
        found = jobs.listed()
    rows = [_row(job) for job in found if everything or not phase_of(job).over]
    emit(output, rows, lambda: jobs_table(rows))
    if not rows and output == "table":
        if found:
            hint(target.typed(f"no unfinished jobs; `rackyard ps -a --target kubernetes` shows {len(found)} more"))
        else:
            start = target.typed("`rackyard submit job.yaml --target kubernetes` starts one")
            hint(f"no jobs in namespace {target.namespace} yet: {start}")


def cancel(name: str, target: "Target", *, yes: bool, dry_run: bool) -> None:
    """Ask Volcano to abort the job."""
    with target.jobs() as jobs:
        job = jobs.read(name)
        phase = phase_of(job)
        if phase.over:
            click.echo(f"{job.name} is {phase} already")
            return
        if job.maker is not None:
            raise _not_ours(job)
        if dry_run:
            click.echo(f"would cancel {job.name} ({phase}, step {job.step})")
            return
        if not yes:
            confirm(f"cancel {job.name} ({phase}, step {job.step})?")
        jobs.cancel(job)
        click.echo(f"{job.name}: cancel requested")


def attempts(name: str, target: "Target", *, output: str) -> None:
    """Show what ended each attempt of the job, and what was done about it."""
    with target.jobs() as jobs:
        rows = rows_of(jobs.with_nodes(jobs.read(name)))

    def table() -> None:
        cells = [
            (
                row.number,
                "-" if row.launched is None else clock(row.launched),
                "-" if row.resumed is None else row.resumed,
                "-" if row.step is None else row.step,
                row.fault or "-",
                row.action or "-",
                row.seats,
            )
            for row in rows
        ]
        print_table(ATTEMPTS, cells)

    # What a recovery cost, split into its parts, is not on record in the cluster.
    emit(output, {"attempts": [plain(row) for row in rows], "recoveries": []}, table)


def why(name: str, target: "Target") -> "Why":
    """The answer for one job."""
    with target.jobs() as jobs:
        answer = explain(jobs.read(name, deep=True))
    return replace(answer, next_step=target.typed(answer.next_step))


def _manifest(file: Path, settings: "Settings") -> dict[str, Any]:
    from rackyard.cli.session import read_spec
    from rackyard.controller.kuberequest import annotation
    from rackyard.jobs.specfile import place
    from rackyard.launch.volcano import NotCarried, manifest

    spec, _ = read_spec(file)
    try:
        return manifest(spec, annotation(spec, settings.namespace), settings)
    except NotCarried as error:
        error.where = place(file, error.path)
        raise


def _not_ours(job: KubeJob) -> UsageError:
    assert job.maker is not None
    made_by = f"{job.maker.kind} {job.maker.name}"
    why = "nobody makes its pods anew" if job.maker.kind == "Pod" else f"{made_by} would make its pods anew"
    return UsageError(
        f"gang {job.name} was not made by `rackyard submit`: it ends when {made_by} is deleted; nothing was done",
        where=f"namespace {job.namespace}",
        why=why,
        fix=f"kubectl -n {job.namespace} delete {job.maker.resource}",
    )


def _row(job: KubeJob) -> dict[str, Any]:
    return {
        "job": job.name,
        "name": job.name,
        "phase": phase_of(job).value,
        "gpus": job.gpus,
        "attempt": job.attempt,
        # after its pods, which had the log that told of steps, are gone
        "step": None if phase_of(job).over and not (job.step or job.pods) else job.step,
        "submitted": job.submitted,
        "updated": max(job.updated, job.submitted),
        "reason": explain(job).reason,
    }


def _attend(jobs: "Jobs", name: str, *, quiet: bool) -> KubeJob:
    """See the job to its end, also through restarts of the API server; Ctrl-C cancels it."""
    from rackyard.backends.kubernetes.client import Unreachable

    asked, before = False, None
    while True:
        try:
            now = jobs.read(name)
            if not quiet:
                for line in _news(jobs, before, now):
                    click.echo(f"{clock(time.time())}  {line}")
            if now.state in ("Completed", "Failed", "Aborted", "Terminated"):
                return now
            before = now
            time.sleep(POLL)
        except Unreachable as error:
            hint(f"{error.what}: trying again")
            time.sleep(POLL)
        except KeyboardInterrupt:
            if asked:
                raise
            asked = True
            click.echo("cancelling; press Ctrl-C again to leave at once", err=True)
            jobs.cancel(jobs.read(name))


def _news(jobs: "Jobs", before: KubeJob | None, now: KubeJob) -> list[str]:
    """What has happened since, in the lines of `rackyard run` on every backend."""
    lines = [f"submitted   {now.name}: {now.gpus} GPUs"] if before is None else []
    old = {plan.attempt: plan for plan in before.plans} if before is not None else {}
    for plan in now.plans:
        was = old.get(plan.attempt)
        if was is None:
            lines.append(f"placed      attempt {plan.attempt}: {seats(plan, jobs.with_nodes(now).nodes)}")
        if plan.released and not (was and was.released):
            lines.append(f"launch      attempt {plan.attempt}")
        if plan.phase == "Ended" and not (was and was.phase == "Ended"):
            lines.append(f"ended       attempt {plan.attempt}: {plan.message or plan.reason}")
    waits = _waits(now)
    if waits and (before is None or waits != _waits(before)):
        lines.append(waits)
    if now.checkpoint is not None and (before is None or now.checkpoint != before.checkpoint):
        lines.append(f"checkpoint  step {now.checkpoint} published")
    if now.step and (before is None or now.step != before.step):
        loss = f", loss {now.metrics['loss']:.4f}" if "loss" in now.metrics else ""
        lines.append(f"step        {now.step}{loss}")
    return lines


def _waits(job: KubeJob) -> str:
    """The line that says why its pods are held."""
    if phase_of(job) not in (Phase.PENDING, Phase.RECOVERING):
        return ""
    said = verdict(job) if any(pod.gated for pod in job.live) else None
    return "" if said is None else f"{'no seat' if seatless(said) else 'waits':12}{said.message}"
