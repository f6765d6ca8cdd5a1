"""From what a user names to a trace that a site can run: a file or a generator, fitted, cut and stretched."""

import dataclasses
import difflib
import math
from dataclasses import dataclass

import numpy as np

from rackyard.errors import UsageError
from rackyard.placement.columns import Columns
from rackyard.placement.traces import Generator, Trace, fit, stretch

GENERATED = "generated"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a trace; None: as it is."""

    jobs: int | None = None
    load: float | None = None
    seed: int | None = None


def is_generated(name: str) -> bool:
    """Whether this names a generated trace, `generated` or `generated:key=value,…`, and no file."""
    return name.partition(":")[0] == GENERATED


def generator_of(name: str, columns: Columns, wanted: Wanted) -> Generator:
    """The generator for a site: `generated:daily=0.5,teams=4` and what is wanted beside. UsageError for a bad one."""
    gpus = _gpus(columns)
    given: dict[str, int | float] = {"gpus": gpus, "gpus_per_node": columns.classes[0].size}
    given["largest"] = min(gpus, Generator().largest)
    segments = tuple((least, min(nodes, _row(columns))) for least, nodes in Generator().segments)
    for part in name.partition(":")[2].split(","):
        if part.strip():
            key, value = _parameter(part.strip())
            given[key] = value
    for key in ("jobs", "load", "seed"):
        value = getattr(wanted, key)
        if value is not None:
            given[key] = value
    return Generator(**given, segments=segments)  # type: ignore[arg-type]


def fitted(trace: Trace, columns: Columns, wanted: Wanted, origin: str | None = None) -> Trace:
    """The first jobs of a trace, on whole nodes of the class with most GPUs, at the wanted load.

    Gangs larger than the class are clipped to it. UsageError, with `origin` as its place, when nothing is left, or
    nothing can be stretched.
    """
    if wanted.jobs is not None and wanted.jobs < len(trace.jobs):
        note = f"the first {wanted.jobs:,} of {len(trace.jobs):,} jobs"
        trace = dataclasses.replace(trace, jobs=trace.jobs[: wanted.jobs], notes=(*trace.notes, note))
    if not trace.jobs:
        why = "; ".join(f"{rows_of(count)}: {reason}" for reason, count in trace.reasons().items())
        fix = "give a trace with at least one job that had a GPU and ran"
        raise UsageError("the trace has no jobs", where=origin or trace.source, why=why or "no rows", fix=fix)
    trace = fit(trace, columns.classes[0].size, _gpus(columns))
    return trace if wanted.load is None else stretch(trace, all_gpus(columns), wanted.load)


def reach(trace: Trace) -> float:
    """The share of the work that could be done before the last job comes, were every job to start at once.

    Occupancy is measured until then. Where a few jobs are longer than the whole window it can't come near the load.
    """
    work = trace.gpu_seconds
    if not work:
        return 1.0
    last = trace.jobs[-1].submit
    return math.fsum(job.gpus * min(job.duration, last - job.submit) for job in trace.jobs) / work


def rows_of(count: int) -> str:
    """So many rows of a trace, in words."""
    return f"{count:,} row{'s' if count != 1 else ''}"


def all_gpus(columns: Columns) -> int:
    """All GPUs of the site."""
    return int(columns.size.sum())


def _gpus(columns: Columns) -> int:
    """GPUs of the class with most of them, on which all gangs of a fitted trace fit."""
    group = columns.classes[0]
    return group.size * len(group.nodes)


def _row(columns: Columns) -> int:
    """Nodes of the largest segment that a domain of that class holds: a power of two, as segments are."""
    pools = columns.pools(0)
    domain = int(np.where(columns.loose[pools], 1, columns.total[pools]).max())
    return 1 << (domain.bit_length() - 1)


def _parameter(text: str) -> tuple[str, int | float]:
    key, equals, value = (cell.strip() for cell in text.partition("="))
    known = {each.name: each.type for each in dataclasses.fields(Generator) if each.type in (int, float)}
    if key not in known:
        close = difflib.get_close_matches(key, known, 1)
        fix = f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"
        raise UsageError(f"a generated trace has no parameter {key[:40]!r}", fix=fix)
    try:
        return key, int(value) if known[key] is int else float(value)
    except ValueError:
        why = "expected a whole number" if known[key] is int else "expected a number"
        what = f"{key} is {value[:40]!r}" if equals else f"{key} has no value"
        raise UsageError(what, why=why, fix=f"for example {key}={getattr(Generator(), key)}") from None
