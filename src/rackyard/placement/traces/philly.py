"""Philly's own log (msr-fiddle/philly-traces, `cluster_job_log`): JSON with the attempts of every job.

Keys and their meaning are those of its README: an attempt may lack its start or end through a logging error, and a job
whose last attempt has no end was still running when the log was taken.
"""

import math

import msgspec

from rackyard.errors import SpecError, Where
from rackyard.fabric.readers.jsontext import Lines, decode
from rackyard.fabric.readers.reader import Capture
from rackyard.placement.traces.gather import NEVER_RAN, STILL_RUNNING, Gather
from rackyard.placement.traces.job import Trace, TraceJob
from rackyard.placement.traces.table import check_size, seconds_of

_NEVER = frozenset({"", "None"})


class _Detail(msgspec.Struct):
    gpus: list[str] = []


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Detail] = []


class _Job(msgspec.Struct):
    jobid: str
    submitted_time: str | None
    attempts: list[_Attempt]
    vc: str = ""


def read(text: str, origin: str) -> Trace:
    """The jobs that ran and ended, second 0 being the first submission.

    Raises:
        UsageError: malformed JSON, or not such a list, with its place.
        SpecError: a time that is none, with its line.
    """
    check_size(text, origin)
    data = text.removeprefix("\ufeff").encode("utf-8", "replace")
    capture, lines, gather, first = Capture(origin, data), Lines(data), Gather(origin), math.inf
    for raw in decode(capture, data, list[msgspec.Raw]):
        line = lines.of(raw)
        job = decode(capture, raw, _Job, line=line)
        submit = _moment(origin, line, "submitted_time", job.submitted_time)
        if submit is None:
            gather.drop(line, "no submitted_time")
            continue
        first = min(first, submit)
        ran = _ran(origin, line, job)
        if isinstance(ran, str):
            gather.drop(line, ran)
        elif gather.usable(line, job.jobid, _gpus(job), ran):
            gather.jobs.append(TraceJob(job.jobid, submit, _gpus(job), ran, team=job.vc, gpus_per_node=_per_node(job)))
    gather.shift(first)
    return gather.trace(
        "Philly, its own job log",
        "duration = sum over the attempts; GPUs are those of the first attempt that names any",
        "failed and killed jobs are kept, for they held their GPUs; team = virtual cluster (vc)",
    )


def _ran(origin: str, line: int, job: _Job) -> float | str:
    """Seconds on GPUs over all attempts whose start and end are known, or why there is no such figure."""
    if not job.attempts:
        return NEVER_RAN
    total, end = 0.0, None
    for attempt in job.attempts:
        start = _moment(origin, line, "start_time", attempt.start_time)
        end = _moment(origin, line, "end_time", attempt.end_time)
        if start is not None and end is not None:
            total += max(0.0, end - start)
    return total if end is not None else STILL_RUNNING


def _servers(job: _Job) -> list[int]:
    """GPUs on each server of the first attempt that names any."""
    each = ([len(server.gpus) for server in attempt.detail] for attempt in job.attempts)
    return next((servers for servers in each if sum(servers)), [])


def _gpus(job: _Job) -> int:
    return sum(_servers(job))


def _per_node(job: _Job) -> int | None:
    counts = set(_servers(job))
    return counts.pop() if len(counts) == 1 else None


def _moment(origin: str, line: int, name: str, text: str | None) -> float | None:
    if text is None or text in _NEVER:
        return None
    seconds = seconds_of(text)
    if seconds is None:
        why = "expected a date and time such as 2017-10-07 01:11:39, or null"
        fix = "take the file as it was published, whole"
        raise SpecError(f"{name} is {text[:40]!r}", where=Where(origin, line), why=why, fix=fix)
    return seconds
