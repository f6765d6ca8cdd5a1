"""A trace of somebody else's servers made to fit a site: whole nodes, no gang larger than the site, a wanted load."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from rackyard.errors import UsageError
from rackyard.placement.traces.job import Dropped, Trace, TraceJob

Oversize = Literal["clip", "drop"]


def fit(trace: Trace, gpus_per_node: int, largest: int, oversize: Oversize = "clip") -> Trace:
    """The trace's gangs on nodes of `gpus_per_node` GPUs, none larger than `largest` GPUs.

    A gang of more than one node takes whole nodes, so that 6 GPUs become two trays of 4; what fits in one node stays as
    it is. Larger gangs are clipped to the whole nodes in `largest`, or dropped. Segments are kept as far as whole nodes
    and whole segments allow. Kinds of GPU and GPUs a node are those of the servers the trace came from: taken off.
    `notes` says how many jobs each of these changed.

    Raises:
        UsageError: `largest` is less than a node.
    """
    if gpus_per_node < 1 or largest < gpus_per_node:
        raise UsageError(
            f"gangs of at most {largest} GPUs on nodes of {gpus_per_node}",
            why="not even one whole node is allowed",
            fix="give a positive node size, and a largest gang of at least one node",
        )
    whole = largest // gpus_per_node * gpus_per_node
    changes: Counter[str] = Counter()
    jobs: list[TraceJob] = []
    dropped = list(trace.dropped)
    why = f"larger than the {whole:,} GPUs allowed"
    for job in trace.jobs:
        if oversize == "drop" and _nodes_of(job.gpus, gpus_per_node) > whole:
            dropped.append(Dropped(trace.source, None, why))
            continue
        fitted = _fitted(job, gpus_per_node, whole)
        changes.update(_changes(job, fitted, gpus_per_node, whole))
        jobs.append(fitted)
    if len(dropped) > len(trace.dropped):
        changes[f"dropped, {why}"] = len(dropped) - len(trace.dropped)
    notes = (f"{what}: {count:,} of {len(trace.jobs):,} jobs" for what, count in changes.items())
    return replace(trace, jobs=tuple(jobs), dropped=tuple(dropped), notes=(*trace.notes, *notes))


def load_of(trace: Trace, gpus: int) -> float:
    """Work offered to `gpus` GPUs over the time in which it arrives: 1.0 would fill them all the time.

    Infinite where everything arrives at once, 0 for an empty trace.
    """
    work = trace.gpu_seconds
    room = gpus * trace.window
    return work / room if room else math.inf if work else 0.0


def stretch(trace: Trace, gpus: int, load: float) -> Trace:
    """The trace with arrivals nearer together or farther apart, so that it offers `load` to `gpus` GPUs.

    Durations stay; the first arrival stays where it is.

    Raises:
        UsageError: no load above 0, or no two arrivals to move apart.
    """
    if not (math.isfinite(load) and load > 0) or gpus < 1:
        raise UsageError(f"a load of {load} on {gpus} GPUs", why="both are above 0", fix="give, for example, 0.9")
    now = load_of(trace, gpus)
    if now == 0 or math.isinf(now):
        why = "it has no two jobs that arrive at different times"
        raise UsageError("this trace has no rate of arrival", why=why, fix="take a longer part of the trace")
    factor = now / load
    first = trace.jobs[0].submit
    jobs = tuple(replace(job, submit=first + (job.submit - first) * factor) for job in trace.jobs)
    note = f"time between arrivals × {factor:.4g}, for a load of {load:g} on {gpus:,} GPUs (it was {now:.4g})"
    return replace(trace, jobs=jobs, notes=(*trace.notes, note))


def _nodes_of(gpus: int, per_node: int) -> int:
    """GPUs after rounding up: whole nodes where one is not enough."""
    return gpus if gpus <= per_node else math.ceil(gpus / per_node) * per_node


def _fitted(job: TraceJob, per_node: int, whole: int) -> TraceJob:
    gpus = min(_nodes_of(job.gpus, per_node), whole)
    segment = job.segment_gpus
    if segment is not None:
        # A gang is a whole number of segments, or the engine refuses it: the largest that divides it, from below.
        segment = math.gcd(_nodes_of(min(segment, gpus), per_node), gpus)
    return replace(job, gpus=gpus, segment_gpus=segment, kind="", gpus_per_node=None)


def _changes(job: TraceJob, fitted: TraceJob, per_node: int, whole: int) -> Iterator[str]:
    if _nodes_of(job.gpus, per_node) > whole:
        yield f"clipped to {whole:,} GPUs"
    elif fitted.gpus != job.gpus:
        yield f"rounded up to whole nodes of {per_node} GPUs"
    if fitted.segment_gpus != job.segment_gpus:
        yield "segment changed, so that the gang is a whole number of them"
    if job.kind:
        yield "kind of GPU taken off"
    if job.gpus_per_node is not None:
        yield "GPUs a node taken off"
