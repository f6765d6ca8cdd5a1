"""Generated traces: the same by seed, of the wanted load, with segments that the engine takes."""

import dataclasses
import statistics
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackyard.errors import UsageError
from rackyard.placement.traces import Generator, generate, load_of
from rackyard.placement.traces.generate import segment_of

GENERATORS = st.builds(
    Generator,
    seed=st.integers(-(2**40), 2**40),
    jobs=st.integers(300, 1500),
    gpus=st.sampled_from([8, 72, 288, 10_080]),
    load=st.floats(0.05, 3),
    gpus_per_node=st.sampled_from([1, 4, 8]),
    largest=st.sampled_from([8, 72, 2048]),
    sigma=st.floats(0, 3),
    growth=st.floats(-0.5, 1),
    daily=st.floats(0, 0.9),
    teams=st.integers(1, 20),
)


@settings(max_examples=30)
@given(GENERATORS)
def test_every_trace_is_sorted_positive_and_of_the_wanted_load(generator: Generator) -> None:
    trace = generate(generator)
    node, most = generator.gpus_per_node, min(generator.gpus, generator.largest)
    assert len(trace.jobs) == len({job.name for job in trace.jobs}) == generator.jobs
    submits = [job.submit for job in trace.jobs]
    assert submits == sorted(submits) and submits[0] >= 0
    for job in trace.jobs:
        assert 1 <= job.gpus <= most and (job.gpus <= node or job.gpus % node == 0)
        assert generator.shortest <= job.duration <= generator.longest
        if job.segment_gpus is not None:
            assert job.gpus % job.segment_gpus == 0 and job.segment_gpus % node == 0
    # The window reaches from 0 to where the load says; the load is offered up to its end, just after the last job.
    window = trace.gpu_seconds / (generator.gpus * generator.load)
    assert submits[-1] <= window
    if generator.daily < 0.5:
        assert load_of(trace, generator.gpus) == pytest.approx(generator.load, rel=0.15)


def test_the_same_parameters_give_the_same_trace_and_another_seed_another() -> None:
    assert generate(Generator(jobs=500, seed=7)) == generate(Generator(jobs=500, seed=7))
    assert generate(Generator(jobs=500, seed=7)) != generate(Generator(jobs=500, seed=8))


def test_the_default_has_the_shape_it_is_taken_from() -> None:
    """Acme's Seren and Kalos: median 1 GPU, mean 5.7 and 26.8; run times of median 122 s, mean 1,414 and 1,260 s; GPU
    time a job 4 to 8 times what size and run time would give were they independent."""
    jobs = [job for seed in range(4) for job in generate(Generator(seed=seed)).jobs]
    gpus, seconds = [job.gpus for job in jobs], [job.duration for job in jobs]
    assert statistics.median(gpus) <= 2 and 5.7 < statistics.fmean(gpus) < 26.8 and max(gpus) == 2048
    assert 100 < statistics.median(seconds) < 210 and 1200 < statistics.fmean(seconds) < 6700
    together = statistics.fmean(job.gpu_seconds for job in jobs)
    assert 2 < together / statistics.fmean(gpus) / statistics.fmean(seconds) < 8


def test_shares_of_sizes_priorities_and_teams_come_out() -> None:
    trace = generate(Generator(jobs=20_000, sizes=((4, 3), (72, 1)), priorities=((0, 1), (5, 1)), teams=2))
    sizes, priorities = Counter(job.gpus for job in trace.jobs), Counter(job.priority for job in trace.jobs)
    teams = Counter(job.team for job in trace.jobs)
    assert sizes[4] / 20_000 == pytest.approx(0.75, abs=0.02)
    assert priorities[5] / 20_000 == pytest.approx(0.5, abs=0.02)
    assert teams["team-1"] / teams["team-2"] == pytest.approx(2, abs=0.1)


def test_a_day_has_more_arrivals_at_noon_than_at_midnight() -> None:
    trace = generate(Generator(jobs=40_000, daily=0.5))
    assert trace.window > 3 * 86400
    hours = Counter(int(job.submit % 86400 // 3600) for job in trace.jobs if job.submit < 3 * 86400)
    assert (hours[11] + hours[12]) / (hours[23] + hours[0]) == pytest.approx(3, rel=0.25)


@pytest.mark.parametrize(
    ("gpus", "segment"), [(1, None), (2, None), (4, 4), (16, 4), (32, 16), (72, 8), (96, 16), (128, 64), (2048, 64)]
)
def test_segments_by_size(gpus: int, segment: int | None) -> None:
    assert segment_of(Generator(), gpus) == segment


def test_every_parameter_is_described() -> None:
    rows = Generator().describe()
    assert [name for name, _, _ in rows] == [each.name for each in dataclasses.fields(Generator)]
    assert all(value and meaning for _, value, meaning in rows)
    shown = {name: value for name, value, _ in rows}
    assert shown["segments"] == "16 from 128 GPUs, 4 from 32 GPUs, 1 from 1 GPUs"
    assert shown["priorities"] == "0: 75 %, 1: 20 %, 2: 5 %" and shown["jobs"] == "10,000" and shown["seed"] == "0"


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobs": 0},
        {"gpus": 0},
        {"load": 0.0},
        {"load": float("nan")},
        {"gpus_per_node": 0},
        {"daily": 1.0},
        {"teams": 0},
        {"sizes": ()},
        {"sizes": ((0, 1.0),)},
        {"sizes": ((1, -1.0),)},
        {"sizes": ((4096, 1.0),)},
        {"priorities": ((0, 0.0),)},
        {"segments": ((128, 0),)},
        {"shortest": 10.0, "longest": 5.0},
    ],
)
def test_what_makes_no_trace_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))) as error:
        Generator(**wrong)
    assert error.value.why and error.value.fix
