"""What a replay is made from: traces, generators, lists of failures; and what is refused of them."""

import math
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rackyard.errors import SpecError, UsageError
from rackyard.fabric import simulate as simulate_site
from rackyard.placement.columns import Columns
from rackyard.placement.replay import (
    POLICIES,
    Failure,
    Policy,
    Wanted,
    all_gpus,
    by_rate,
    check_rate,
    fitted,
    generator_of,
    is_generated,
    reach,
    read_failures,
    simulate,
)
from rackyard.placement.replay.requests import request_of
from rackyard.placement.traces import Trace, TraceJob, generate, load_of, read_trace

COLUMNS = Columns.of(simulate_site(racks=2))


def test_failures_come_at_their_rate_and_the_same_for_a_seed() -> None:
    found = list(islice(by_rate(100, 0.1, 60.0, 7), 1000))
    assert found == list(islice(by_rate(100, 0.1, 60.0, 7), 1000)) != list(islice(by_rate(100, 0.1, 60.0, 8), 1000))
    assert found[-1].time / 86400 == pytest.approx(100, rel=0.15)
    assert {failure.node for failure in found} <= set(range(100)) and all(one.repair == 60.0 for one in found)
    assert list(by_rate(100, 0.0, 60.0, 7)) == []


def test_a_list_of_failures() -> None:
    text = "\ufefftime,node,repair\n# a comment\n\n50, r02-t01, 3600\n7.5,r01-t02,never # for good\n9,r01-t03\n"
    first, second = COLUMNS.index["r01-t02"], COLUMNS.index["r02-t01"]
    assert read_failures(text, "list", COLUMNS) == (
        Failure(7.5, first, math.inf),
        Failure(9.0, COLUMNS.index["r01-t03"], math.inf),
        Failure(50.0, second, 3600.0),
    )
    assert read_failures("", "list", COLUMNS) == ()


FORM = "write time,node,repair, for example 3600,r01-t01,14400"


@pytest.mark.parametrize(
    ("text", "line", "what", "fix"),
    [
        ("1,r01-t01,5\n1;r01-t01", 2, "no failure", FORM),
        ("1,2,3,4", 1, "no failure", FORM),
        ("x,r01-t01,5", 1, "the time is 'x'", FORM),
        ("-1,r01-t01,5", 1, "the time is '-1'", FORM),
        ("nan,r01-t01,5", 1, "the time is 'nan'", FORM),
        ("1,r01-t01,soon", 1, "the repair time is 'soon'", FORM),
        ("1,r1-t01,5", 1, "no node 'r1-t01'", "did you mean r01-t01?"),
        ("1,,5", 1, "no node ''", "nodes are called like r01-t01"),
        ("1," + "x" * 5000, 1, "too long", FORM),
    ],
)
def test_a_bad_list_of_failures(text: str, line: int, what: str, fix: str | None) -> None:
    with pytest.raises(SpecError, match=what) as caught:
        read_failures(text, "list", COLUMNS)
    assert str(caught.value.where).startswith(f"list:{line}") and caught.value.fix == fix


def test_bad_lists_of_failures_are_refused_and_nothing_else(fuzz: Callable[..., None]) -> None:

    seeds = [b"time,node,repair\n50,r02-t01,3600\n7.5,r01-t02,never\n", b"1,r01-t01\n2,r01-t02,1e3\n"]
    fuzz(lambda data: read_failures(data.decode(errors="replace"), "list", COLUMNS), seeds)


@pytest.mark.parametrize(("rate", "repair"), [(-1, 60), (math.nan, 60), (1e9, 60), (0.1, 0), (0.1, math.inf)])
def test_rates_that_mean_nothing(rate: float, repair: float) -> None:
    with pytest.raises(UsageError):
        check_rate(rate, repair)


def test_a_generated_trace_is_made_for_the_site() -> None:
    assert is_generated("generated") and is_generated("generated:jobs=3") and not is_generated("generated.csv")
    generator = generator_of("generated:daily=0.5, teams=3", COLUMNS, Wanted(jobs=50, load=0.7, seed=3))
    assert (generator.gpus, generator.gpus_per_node, generator.largest) == (144, 4, 144)
    assert (generator.daily, generator.teams, generator.jobs, generator.load, generator.seed) == (0.5, 3, 50, 0.7, 3)
    assert load_of(generate(generator), all_gpus(COLUMNS)) == pytest.approx(0.7, rel=0.2)


@pytest.mark.parametrize(
    ("site", "nodes"), [({"racks": 2}, 16), ({"racks": 4, "trays": 9}, 8), ({"racks": 0, "hgx": 9, "gpu": "H200"}, 1)]
)
def test_a_generated_trace_asks_for_no_segment_that_the_domains_of_the_site_could_not_hold(
    site: dict[str, Any], nodes: int
) -> None:
    generator = generator_of("generated", Columns.of(simulate_site(**site)), Wanted())
    assert generator.segments == ((128, nodes), (32, min(4, nodes)), (1, 1))


@pytest.mark.parametrize(
    ("name", "what", "fix"),
    [
        ("generated:jbos=3", "no parameter 'jbos'", "did you mean jobs?"),
        ("generated:sizes=3", "no parameter 'sizes'", None),
        ("generated:jobs=x", "jobs is 'x'", "for example jobs=10000"),
        ("generated:jobs=1.5", "jobs is '1.5'", "for example jobs=10000"),
        ("generated:daily", "daily has no value", "for example daily=0.0"),
        ("generated:load=-1", "load is -1", None),
    ],
)
def test_bad_parameters(name: str, what: str, fix: str | None) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        generator_of(name, COLUMNS, Wanted())
    assert fix is None or caught.value.fix == fix


def trace_of(*jobs: TraceJob) -> Trace:
    return Trace(jobs, "made up")


def test_a_trace_is_cut_fitted_and_stretched() -> None:
    trace = trace_of(TraceJob("a", 0, 6, 100), TraceJob("b", 10, 1000, 100, kind="V100"), TraceJob("c", 20, 1, 100))
    made = fitted(trace, COLUMNS, Wanted(jobs=2, load=0.5))
    assert [job.gpus for job in made.jobs] == [8, 144] and made.jobs[1].kind == ""
    assert load_of(made, 144) == pytest.approx(0.5)
    assert made.notes[0] == "the first 2 of 3 jobs"
    assert fitted(trace, COLUMNS, Wanted()).jobs[2].submit == 20


def test_a_trace_without_jobs_is_refused() -> None:
    with pytest.raises(UsageError, match="no jobs") as caught:
        fitted(trace_of(), COLUMNS, Wanted(), "trace.csv")
    assert caught.value.where == "trace.csv" and caught.value.why == "no rows"


def test_how_much_of_the_work_the_window_has_room_for() -> None:
    trace = trace_of(TraceJob("a", 0, 1, 300), TraceJob("b", 50, 2, 20), TraceJob("c", 100, 1, 60))
    assert reach(trace) == pytest.approx((100 + 40 + 0) / 400)
    assert reach(trace_of()) == 1.0


def test_a_job_as_a_request() -> None:
    request = request_of(TraceJob("a", 0, 128, 10, team="t", segment_gpus=64))
    assert (request.gpus, request.segment_gpus, request.segment_required, request.gpus_per_node) == (
        128,
        64,
        True,
        None,
    )


@pytest.mark.corpus
@pytest.mark.parametrize(
    "name",
    ["gavel_philly_seed0_vc_6214e9.trace", "alibaba_v2023_openb_pod_list_default.csv", "tiresias_60_job.csv"],
)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_real_traces_run_to_their_end(corpus: Path, name: str, policy: Policy) -> None:
    file = corpus / "scheduling" / name
    trace = fitted(read_trace(file.read_text(encoding="utf-8"), name), COLUMNS, Wanted(jobs=200, load=1.5))
    failures = by_rate(len(COLUMNS.names), 0.05, 3600.0, 1)
    replay = simulate(trace.jobs, COLUMNS, policy, failures=failures)
    assert replay.never == replay.stuck == ()
    assert all(account.useful == pytest.approx(account.gpus * account.duration) for account in replay.accounts)
