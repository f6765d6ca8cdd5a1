"""Fitting to a site: whole nodes, the site's size, segments that divide, and a load."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackyard.errors import UsageError
from rackyard.placement.traces import Trace, TraceJob, fit, load_of, stretch


def trace(*gpus: int, segment: int | None = None, kind: str = "") -> Trace:
    jobs = tuple(
        TraceJob(f"j{at}", float(at), each, 100.0, segment_gpus=segment, kind=kind, gpus_per_node=8 if kind else None)
        for at, each in enumerate(gpus)
    )
    return Trace(jobs, "test", notes=("as read",))


def test_gangs_of_8_gpu_servers_take_whole_trays() -> None:
    fitted = fit(trace(1, 3, 4, 6, 8, 20), 4, 72)
    assert [job.gpus for job in fitted.jobs] == [1, 3, 4, 8, 8, 20]
    assert fitted.notes == ("as read", "rounded up to whole nodes of 4 GPUs: 1 of 6 jobs")


def test_larger_gangs_are_clipped_to_whole_nodes() -> None:
    fitted = fit(trace(64, 71, 512), 4, 71)
    assert [job.gpus for job in fitted.jobs] == [64, 68, 68]
    assert fitted.notes[1:] == ("clipped to 68 GPUs: 2 of 3 jobs",)
    assert not fitted.dropped


def test_or_dropped_by_name_of_the_reason() -> None:
    fitted = fit(trace(64, 71, 512), 4, 71, "drop")
    assert [job.gpus for job in fitted.jobs] == [64]
    assert fitted.reasons() == {"larger than the 68 GPUs allowed": 2}
    assert fitted.notes[1:] == ("dropped, larger than the 68 GPUs allowed: 2 of 3 jobs",)


def test_kinds_and_gpus_a_node_of_the_old_servers_are_taken_off() -> None:
    fitted = fit(trace(8, kind="V100M32"), 4, 72)
    assert (fitted.jobs[0].kind, fitted.jobs[0].gpus_per_node) == ("", None)
    assert fitted.notes[1:] == ("kind of GPU taken off: 1 of 1 jobs", "GPUs a node taken off: 1 of 1 jobs")


def test_segments_stay_or_shrink_to_what_divides_the_gang() -> None:
    assert [job.segment_gpus for job in fit(trace(32, 24, 8, 36, segment=16), 4, 72).jobs] == [16, 8, 8, 4]


@pytest.mark.parametrize(("node", "largest"), [(4, 3), (0, 8)])
def test_less_than_a_node_is_refused(node: int, largest: int) -> None:
    with pytest.raises(UsageError, match="gangs of at most"):
        fit(trace(1), node, largest)


JOBS = st.builds(
    TraceJob,
    st.just("j"),
    st.floats(0, 1e6),
    st.integers(1, 5000),
    st.floats(0.001, 1e6),
    segment_gpus=st.none() | st.integers(1, 300),
)
TRACES = st.lists(JOBS, max_size=30).map(lambda jobs: Trace(tuple(jobs), "test"))


@given(TRACES, st.sampled_from([1, 2, 4, 8]), st.integers(8, 4000))
def test_what_fits_is_what_the_engine_can_seat(given_trace: Trace, node: int, largest: int) -> None:
    fitted = fit(given_trace, node, largest)
    assert len(fitted.jobs) == len(given_trace.jobs)
    for job in fitted.jobs:
        assert job.gpus <= largest and (job.gpus <= node or job.gpus % node == 0)
        assert job.segment_gpus is None or job.gpus % job.segment_gpus == 0
    again = fit(fitted, node, largest)
    assert again == fitted


@given(TRACES, st.integers(1, 10_000), st.floats(0.01, 5))
def test_stretching_reaches_the_load_and_changes_nothing_else(given_trace: Trace, gpus: int, load: float) -> None:
    before = load_of(given_trace, gpus)
    if before == 0 or math.isinf(before) or given_trace.window < 1:
        return
    after = stretch(given_trace, gpus, load)
    assert load_of(after, gpus) == pytest.approx(load, rel=1e-3)
    assert [job.gpu_seconds for job in after.jobs] == [job.gpu_seconds for job in given_trace.jobs]
    assert after.jobs[0].submit == given_trace.jobs[0].submit and after.notes


@pytest.mark.parametrize(("gpus", "load"), [(72, 0.0), (72, math.nan), (0, 0.9)])
def test_a_load_that_is_none_is_refused(gpus: int, load: float) -> None:
    with pytest.raises(UsageError, match="a load of"):
        stretch(trace(1, 2), gpus, load)


def test_a_trace_without_a_rate_is_refused() -> None:
    assert load_of(trace(4), 72) == math.inf and load_of(Trace((), "test"), 72) == 0.0
    for each in (trace(4), Trace((), "test")):
        with pytest.raises(UsageError, match="no rate of arrival"):
            stretch(each, 72, 0.9)
