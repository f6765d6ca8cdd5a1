"""Philly as gavel carries it (stanford-futuredata/gavel, scheduler/traces/msr): arrivals and GPU counts, no durations.

Gavel wrote down steps in place of run times: steps = run time × the steps a second of a randomly drawn model on one
V100, cut to a whole number (scheduler/utils.py, generate_job, and its older forms). The rates are in that repository
(c4fa400, scheduler/notebooks/figures/motivation/oracle_throughputs.json, worker type v100, alone on the GPU). Dividing
by them gives Philly's run time back, whatever the count of GPUs: to the second, and to within three for the
Recommendation models, which make less than a step a second. In all 76,320 rows of the msr traces the quotient is less
than a step below a whole second; with the rates of gavel's other tables it is in one of eight.
"""

import math

from rackyard.placement.traces.gather import Gather
from rackyard.placement.traces.job import Trace, TraceJob
from rackyard.placement.traces.table import Row, tabbed

COLUMNS = (
    "job_type",
    "command",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "arrival_time_s",
    "scale_factor",
)
"""Fields of a line; the file has no header, the names are gavel's own for these values."""

UNKNOWN_RATE = 10.0
"""Steps a second of a model that is not in the table: near the table's median. Assumed."""

_MAX_STEPS = 10**12


def _rates() -> dict[str, float]:
    """Job type to steps a second, from model and batch sizes."""
    named = {
        f"{model} (batch size {batch})": rate for model, batches in _BY_BATCH.items() for batch, rate in batches.items()
    }
    return named | {"A3C": 8.23303321143, "CycleGAN": 4.9184947394}


_BY_BATCH = {
    "ResNet-18": {
        16: 77.3173735397,
        32: 65.8054070874,
        64: 48.8841805408,
        128: 30.2875048369,
        256: 16.9873710988,
    },
    "ResNet-50": {16: 17.3743893647, 32: 9.9205834201, 64: 5.45759997963, 128: 2.84598121177},
    "Transformer": {
        16: 12.8456524252,
        32: 12.4752777373,
        64: 9.56802372078,
        128: 5.77121083338,
        256: 1.70702987526,
    },
    "LM": {5: 167.122857734, 10: 143.360513158, 20: 107.950871571, 40: 71.7230367582, 80: 43.9036107274},
    "Recommendation": {
        512: 0.331482082575,
        1024: 0.4799797333,
        2048: 0.567531841813,
        4096: 0.62440836135,
        8192: 0.602354695752,
    },
}

STEPS_PER_SECOND = _rates()
"""Steps a second on one V100, by gavel's job type (12 digits of what gavel measured)."""


def read(text: str, origin: str) -> Trace:
    """One job a line, named by its line. SpecError for malformed lines, with column."""
    gather = Gather(origin)
    for row in tabbed(text, origin, COLUMNS):
        gpus, name, duration = row.whole("scale_factor"), f"job-{row.line}", _duration(gather, row)
        if gather.usable(row.line, name, gpus, duration):
            gather.jobs.append(TraceJob(name, row.number("arrival_time_s"), gpus, duration))
    return gather.trace(
        "Philly through gavel",
        "duration = steps ÷ gavel's steps a second of the model on one V100, up to the next whole second: "
        "gavel had made the steps from Philly's run times by the same rates",
    )


def _duration(gather: Gather, row: Row) -> float:
    """Seconds. Run times were whole and steps were cut, so the next whole second is the one it was made from."""
    steps, rate = row.whole("total_steps", _MAX_STEPS), STEPS_PER_SECOND.get(row.text("job_type"))
    if rate is None:
        gather.count(f"a model without a rate, taken at {UNKNOWN_RATE:g} steps a second")
        return steps / UNKNOWN_RATE
    # Rates have 12 digits: a run time of 60 days divides out to within 0.00001 s.
    return float(math.ceil(steps / rate - 1e-4))
