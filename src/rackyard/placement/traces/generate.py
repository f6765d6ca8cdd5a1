"""Gangs of the size of NVL72 racks, which no public trace has: made by chance, the same for the same parameters.

The shape is that of Acme and Helios (AcmeTrace, data/cluster_summary.csv): half of the jobs have one GPU, the largest
1,024 to 2,048; run times have a median of two to three minutes and a mean of 20 minutes to 2 hours (log-normal: their
ratio gives the spread); and a job's GPU time is on average 2 (Helios), 4 (Seren) or 8 times (Kalos) what size and run
time would give were they independent, so large jobs run longer. The segment by job size is what NVIDIA recommends for
Slurm's block topology on GB200 NVL72: 16 trays from 128 GPUs, 4 from 32, else 1. Everything else is assumed, and
`describe` says so.
"""

import math
import random
from collections.abc import Iterator
from itertools import accumulate

from rackyard.placement.traces.job import Trace, TraceJob
from rackyard.placement.traces.parameters import Generator

_DAY = 86400.0


def generate(generator: Generator) -> Trace:
    """The trace that these parameters make. Sorted, every submission within the window that gives the load.

    The window follows from the work that was drawn: work / (GPUs × load). Within it arrivals are a Poisson process of
    which the count is known, that is, independent moments.
    """
    draw = random.Random(generator.seed)
    sizes = _sizes(generator, draw)
    durations = [_duration(generator, draw, gpus) for gpus in sizes]
    work = math.fsum(gpus * seconds for gpus, seconds in zip(sizes, durations, strict=True))
    window = work / (generator.gpus * generator.load)
    arrivals = sorted(_arrivals(generator, draw, window))
    priorities = _choices(draw, generator.priorities, generator.jobs)
    teams = _choices(draw, tuple((team, 1 / team) for team in range(1, generator.teams + 1)), generator.jobs)
    digits = len(str(generator.jobs))
    jobs = tuple(
        TraceJob(
            f"gang-{number:0{digits}}",
            submit,
            gpus,
            seconds,
            team=f"team-{team}",
            priority=priority,
            segment_gpus=segment_of(generator, gpus),
            checkpoint_every=generator.checkpoint_every,
        )
        for number, (submit, gpus, seconds, priority, team) in enumerate(
            zip(arrivals, sizes, durations, priorities, teams, strict=True), 1
        )
    )
    notes = ("generated: nothing in it was measured", f"window {window / _DAY:.3g} days, from the load and the work")
    return Trace(jobs, f"generated, seed {generator.seed}", notes=notes)


def segment_of(generator: Generator, gpus: int) -> int | None:
    """GPUs of a segment for a gang of `gpus`: by its size, no larger than it, and dividing it. None within a node."""
    if gpus < generator.gpus_per_node:
        return None
    nodes = next((nodes for least, nodes in generator.by_size() if gpus >= least), 1)
    return math.gcd(nodes * generator.gpus_per_node, gpus)


def _sizes(generator: Generator, draw: random.Random) -> list[int]:
    """GPUs of each job: whole nodes above one node, and none larger than the site."""
    node = generator.gpus_per_node
    return [
        gpus if gpus <= node else math.ceil(gpus / node) * node
        for gpus in _choices(draw, generator.sizes_in_use(), generator.jobs)
    ]


def _duration(generator: Generator, draw: random.Random, gpus: int) -> float:
    """Seconds, to the millisecond: log-normal about a median that grows with the gang, cut at both ends."""
    median = generator.median * math.pow(gpus, generator.growth)
    seconds = median * math.exp(draw.gauss(0.0, generator.sigma))
    return round(min(max(seconds, generator.shortest), generator.longest), 3)


def _arrivals(generator: Generator, draw: random.Random, window: float) -> Iterator[float]:
    """Moments in the window, by rejection where the day has a cycle: quietest at its start, busiest at noon."""
    peak = 1 + generator.daily
    for _ in range(generator.jobs):
        while True:
            moment = draw.random() * window
            if draw.random() * peak <= 1 - generator.daily * math.cos(math.tau * moment / _DAY):
                break
        yield moment


def _choices(draw: random.Random, weighted: tuple[tuple[int, float], ...], count: int) -> list[int]:
    values = [value for value, _ in weighted]
    return draw.choices(values, cum_weights=list(accumulate(weight for _, weight in weighted)), k=count)
