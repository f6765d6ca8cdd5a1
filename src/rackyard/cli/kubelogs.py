"""`rackyard logs --target kubernetes`: what a job's ranks printed, read from its pods through the API server."""

import queue
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import click

from rackyard.cli.shown import first_errors
from rackyard.errors import NotYet, RackyardError, UsageError
from rackyard.jobs.kubejob import KubeJob, KubePod

if TYPE_CHECKING:
    from rackyard.backends.kubernetes.jobs import Jobs
    from rackyard.cli.target import Target

PATIENCE = 600.0
"""Seconds of silence after which a log that is followed is opened anew."""
LOOK = 1.0
"""Seconds between two looks for pods that have come."""
MOST = 64
"""Pods that are followed at once."""
_OURS = "[rackyard] "
_LINE = re.compile(r"\[(\d+)\] ?(.*)", re.DOTALL)
_FAILED = re.compile(r"\[rackyard\] rank (\d+) ended with ")
_PROGRESS = re.compile(r"step \d|checkpoint step |resumed from ")
"""What our own lines say for `ps` and `why`, and the ranks have said already."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines."""

    rank: int | None = None
    attempt: int | None = None
    first_error: bool = False
    raw: bool = False
    """Of pods that others made: nothing says which rank a line is of, so that it stands behind its pod's name."""

    def shows(self, line: str) -> bool:
        """Whether a line of a pod's log is one of them."""
        if self.raw:
            return True
        if line.startswith(_OURS):
            return self.rank is None and not _PROGRESS.match(line.removeprefix(_OURS))
        found = _LINE.fullmatch(line)
        return found is not None and self.rank in (None, int(found[1]))


def logs(name: str, target: "Target", wanted: Wanted, *, follow: bool) -> None:
    """Print the lines, or follow them until the job is over."""
    with target.jobs() as jobs:
        job = jobs.read(name)
        wanted = replace(wanted, raw=job.maker is not None)
        if follow:
            _follow(jobs, name, wanted)
            return
        pods = chosen(job, wanted)
        logs = {pod.name: jobs.log(pod.name, container=pod.container) for pod in pods}
    if wanted.raw:
        if wanted.first_error:
            logs = first_errors(logs, [pod.name for pod in pods if pod.phase == "Failed"])
        lines = [f"[{pod}] {line}" for pod, own in logs.items() for line in own]
    else:
        lines = [*arranged([line for own in logs.values() for line in own], wanted)]
    for line in lines:
        click.echo(line)


def chosen(job: KubeJob, wanted: Wanted) -> list[KubePod]:
    """The pods that have these logs. UsageError when they are gone, or never were."""
    fix = f"`rackyard attempts {job.name} --target kubernetes` lists the attempts"
    newest = max((pod.attempt for pod in job.pods), default=0)
    attempt = wanted.attempt or newest
    if attempt > job.attempt or not job.plans:
        raise UsageError("no log of that attempt", why=f"job {job.name} is at attempt {job.attempt}", fix=fix)
    pods = [pod for pod in job.pods if pod.attempt == attempt and pod.node]
    if not pods:
        raise UsageError(
            f"the pods of attempt {attempt} are gone, and their logs with them",
            where=f"job {job.name}, now at attempt {job.attempt}",
            why="Kubernetes keeps a log no longer than its pod",
            fix=f"{fix}; a log collector in the cluster keeps what ended pods wrote",
        )
    if wanted.rank is None:
        return pods
    mine = [pod for pod in pods if wanted.rank in ranks(pod)]
    if not mine:
        raise UsageError("no log of that rank and attempt", why=f"job {job.name} has {job.gpus} ranks", fix=fix)
    return mine


def ranks(pod: KubePod) -> set[int]:
    """The ranks that run in a pod."""
    return {int(seat.split(":")[0]) for seat in pod.seats.split(",") if seat.split(":")[0].isdigit()}


def arranged(lines: Sequence[str], wanted: Wanted) -> Iterator[str]:
    """The wanted lines by rank, each as it was written; what the pods say themselves comes last, and tells which ranks
    failed where errors are asked for: it is none itself.
    """
    by_rank: dict[int, list[str]] = {}
    ours = []
    for line in lines:
        if not wanted.shows(line):
            continue
        if line.startswith(_OURS):
            ours.append(line)
        elif found := _LINE.fullmatch(line):
            by_rank.setdefault(int(found[1]), []).append(line)
    logs = {f"rank {rank}": by_rank[rank] for rank in sorted(by_rank)}
    if wanted.first_error:
        failed = [f"rank {found[1]}" for line in lines if (found := _FAILED.match(line))]
        if shown := first_errors(logs, failed):
            logs, ours = shown, []
        else:
            logs = {}
    for own in logs.values():
        yield from own
    yield from ours


def _follow(jobs: "Jobs", name: str, wanted: Wanted) -> None:
    """One thread for each pod; pods that come later, with the next attempt, are found by looking again."""
    said: queue.Queue[str] = queue.Queue()
    readers: dict[tuple[str, int], threading.Thread] = {}
    while True:
        job = jobs.read(name)
        over = job.state in ("Completed", "Failed", "Aborted", "Terminated")
        for pod in _followed(job, wanted):
            if (pod.name, pod.attempt) not in readers:
                mark = f"[{pod.name}] " if wanted.raw else ""
                thread = threading.Thread(target=_read, args=(jobs, pod, partial(_say, said, mark)), daemon=True)
                readers[pod.name, pod.attempt] = thread
                thread.start()
        if over:
            for thread in readers.values():
                thread.join(timeout=10)
        _print(said, wanted, 0.0 if over else LOOK)
        if over:
            return


def _followed(job: KubeJob, wanted: Wanted) -> list[KubePod]:
    pods = [pod for pod in job.pods if pod.phase != "Pending" and wanted.attempt in (None, pod.attempt)]
    if wanted.rank is not None:
        pods = [pod for pod in pods if wanted.rank in ranks(pod)]
    if len(pods) > MOST:
        raise UsageError(f"{len(pods)} pods are too many to follow at once", fix="name one of its ranks with --rank")
    return pods


def _print(said: "queue.Queue[str]", wanted: Wanted, wait: float) -> None:
    """What is there, after waiting a moment for more."""
    threading.Event().wait(wait)
    while True:
        try:
            line = said.get_nowait()
        except queue.Empty:
            return
        if wanted.shows(line):
            click.echo(line)


def _say(said: "queue.Queue[str]", mark: str, line: str) -> None:
    said.put(mark + line)


def _read(jobs: "Jobs", pod: KubePod, say: Callable[[str], None]) -> None:
    """All lines of a pod's log, to its end; where the connection breaks, it goes on after the last line it had."""
    done, tries = 0, 0
    ask = {"follow": "true", **({"container": pod.container} if pod.container else {})}
    while tries < 3:
        skip, rest = done, b""
        try:
            with jobs.client.stream(jobs.log_path(pod.name), ask, "*/*", PATIENCE) as stream:
                for piece in stream:
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        if skip:
                            skip -= 1
                            continue
                        done, tries = done + 1, 0
                        say(line.decode(errors="replace"))
            if rest and not skip:
                say(rest.decode(errors="replace"))
            return
        except NotYet:
            return
        except RackyardError:
            tries += 1
            threading.Event().wait(1.0)
