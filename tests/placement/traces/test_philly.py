"""Philly twice: its own JSON log, and gavel's lines with steps in place of run times."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rackyard.errors import RackyardError, SpecError, UsageError
from rackyard.placement.traces import TraceJob, read_trace
from rackyard.placement.traces.gavel import STEPS_PER_SECOND


def attempt(start: str | None, end: str | None, *servers: int) -> dict[str, Any]:
    detail = [{"ip": f"m{n}", "gpus": [f"gpu{i}" for i in range(gpus)]} for n, gpus in enumerate(servers)]
    return {"start_time": start, "end_time": end, "detail": detail}


def job(name: str, submitted: str | None, *attempts: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": name,
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "u",
    }


LOG = [
    job(
        "b",
        "2017-10-07 01:11:40",
        attempt("2017-10-07 01:12:00", "2017-10-07 01:13:00", 8, 8),
        attempt("2017-10-07 02:00:00", "2017-10-07 03:00:00", 8, 8),
    ),
    job("a", "2017-10-07 01:11:30", attempt("2017-10-07 01:11:40", "2017-10-07 01:11:50", 2, 1)),
    job("late", "2017-10-07 02:00:00", attempt(None, "2017-10-07 02:30:00"), attempt("2017-10-07 03:00:00", None, 1)),
    job("lost", "2017-10-07 02:00:00", attempt(None, "2017-10-07 02:30:00", 1)),
    job("never", "2017-10-07 01:11:00"),
    job("cpu", "2017-10-07 02:00:00", attempt("2017-10-07 02:00:00", "2017-10-07 02:30:00")),
    job("timeless", "None", attempt("2017-10-07 02:00:00", "2017-10-07 02:30:00", 1)),
]

LM, RECOMMENDATION = STEPS_PER_SECOND["LM (batch size 5)"], STEPS_PER_SECOND["Recommendation (batch size 512)"]
GAVEL = "".join(
    "\t".join(fields) + "\n"
    for fields in (
        (
            "LM (batch size 5)",
            'cd %s && main.py --say "hi',
            "--steps",
            "1",
            str(int(LM * 3600)),
            "0.000000",
            "1",
        ),
        ("LM (batch size 5)", "python3 main.py", "--steps", "1", str(int(LM * 5_184_001)), "264.5", "8"),
        ("Recommendation (batch size 512)", "train.py", "-n", "1", str(int(RECOMMENDATION * 900)), "266.000000", "1"),
        ("GPT-2", "train.py", "-n", "1", "1000", "300.000000", "2"),
        ("A3C", "train.py", "-n", "1", "0", "300.000000", "2"),
    )
)


def test_philly() -> None:
    trace = read_trace(json.dumps(LOG, indent=1), "cluster_job_log")
    assert trace.jobs == (
        TraceJob("a", 30.0, 3, 10.0, team="ee9e8c"),
        TraceJob("b", 40.0, 16, 3660.0, team="ee9e8c", gpus_per_node=8),
    )
    assert [row.why.split(":")[0] for row in trace.dropped] == [
        "no end",
        "no running time",
        "never scheduled",
        "no GPU",
        "no submitted_time",
    ]
    lines = json.dumps(LOG, indent=1).split("\n")
    assert all(lines[(row.line or 0) - 1] == " {" for row in trace.dropped)


@pytest.mark.parametrize(
    ("text", "kind", "where"),
    [
        ('[\n{"jobid": 3, "attempts": [], "submitted_time": null}]', UsageError, "log:2"),
        ('[\n{"jobid": "a", "attempts": [],\n', UsageError, "log:3"),
        ('{"jobs": [{"attempts": []}]}', UsageError, "log:1"),
        ('{"jobs": []}', UsageError, "log:1"),
        (json.dumps([job("a", "yesterday")]), SpecError, "log:1"),
        (json.dumps([LOG[0], job("a", "2017-10-07 00:00:00", attempt("soon", None))], indent=1), SpecError, "log:"),
    ],
)
def test_a_malformed_log_is_told_with_its_place(text: str, kind: type[RackyardError], where: str) -> None:
    with pytest.raises(kind) as error:
        read_trace(text, "log")
    assert str(error.value.where).startswith(where)


def test_gavel_gives_the_run_times_back_that_its_steps_were_made_from() -> None:
    trace = read_trace(GAVEL, "vc.trace")
    assert [(each.name, each.submit, each.gpus) for each in trace.jobs] == [
        ("job-1", 0.0, 1),
        ("job-2", 264.5, 8),
        ("job-3", 266.0, 1),
        ("job-4", 300.0, 2),
    ]
    one, two, three, four = (each.duration for each in trace.jobs)
    assert (one, two, four) == (3600.0, 5_184_001.0, 100.0)
    assert abs(three - 900) <= 1 / RECOMMENDATION
    assert trace.reasons() == {"no running time": 1}
    assert trace.notes[-1] == "a model without a rate, taken at 10 steps a second: 1 row"


def test_a_malformed_line_of_gavel_is_told_with_its_column() -> None:
    lines = GAVEL.split("\n")
    lines[1] = lines[1].replace("264.5", "soon")
    with pytest.raises(SpecError, match="arrival_time_s is 'soon'") as error:
        read_trace("\n".join(lines), "vc.trace")
    assert str(error.value.where) == f"vc.trace:2:{lines[1].index('soon') + 1}"


def test_gavels_newer_lines_are_no_known_trace() -> None:
    with pytest.raises(UsageError, match="seven fields"):
        read_trace("\t".join("0123456789") + "\n", "new.trace")


def test_fuzz(fuzz: Callable[..., None]) -> None:
    seeds = [json.dumps(LOG).encode(), json.dumps(LOG, indent=1).encode(), GAVEL.encode()]
    fuzz(lambda data: read_trace(data.decode("utf-8", "replace"), "fuzz"), seeds)
