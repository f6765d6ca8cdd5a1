"""The job lists of the Tiresias simulator (SymbioticLab/Tiresias, simulator/*.csv): seconds throughout."""

from rackyard.placement.traces.gather import Gather
from rackyard.placement.traces.job import Trace, TraceJob
from rackyard.placement.traces.table import rows

COLUMNS = frozenset({"job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration"})


def read(text: str, origin: str) -> Trace:
    """Its jobs as they stand. SpecError for malformed rows, with line and column."""
    gather = Gather(origin)
    for row in rows(text, origin):
        name, gpus, duration = row.text("job_id"), row.whole("num_gpu"), row.number("duration")
        if gather.usable(row.line, name, gpus, duration):
            gather.jobs.append(TraceJob(name, row.number("submit_time"), gpus, duration))
    return gather.trace("Tiresias, a simulator's job list", "models, iterations and intervals are not used")
