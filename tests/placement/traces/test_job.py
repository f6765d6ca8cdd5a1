"""Jobs refuse what could never run; a trace sorts its jobs and counts what it left out."""

import math
from typing import Any

import pytest

from rackyard.placement.traces import Dropped, Trace, TraceJob


@pytest.mark.parametrize(
    "wrong",
    [
        {"submit": -1.0},
        {"submit": math.nan},
        {"gpus": 0},
        {"duration": 0.0},
        {"duration": math.inf},
        {"segment_gpus": 0},
        {"gpus_per_node": 0},
        {"checkpoint_every": 0.0},
    ],
)
def test_a_job_that_could_never_run_is_refused(wrong: dict[str, Any]) -> None:
    right: dict[str, Any] = {"name": "a", "submit": 0.0, "gpus": 1, "duration": 1.0}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TraceJob(**right | wrong)


def test_a_trace_is_in_order_of_arrival_and_counts_its_reasons() -> None:
    jobs = (TraceJob("late", 9.0, 2, 10.0), TraceJob("a", 1.0, 4, 5.0), TraceJob("b", 1.0, 1, 1.0))
    dropped = (Dropped("t.csv", 2, "no GPU"), Dropped("t.csv", 5, "never scheduled"), Dropped("t.csv", 7, "no GPU"))
    trace = Trace(jobs, "test", dropped)
    assert [job.name for job in trace.jobs] == ["a", "b", "late"]
    assert trace.window == 8.0 and trace.gpu_seconds == 41.0
    assert list(trace.reasons().items()) == [("no GPU", 2), ("never scheduled", 1)]


def test_an_empty_trace_has_no_window_and_no_work() -> None:
    assert Trace((), "test").window == 0.0 and Trace((), "test").gpu_seconds == 0.0
