"""`rackyard sched replay` and `sched bench`, as somebody new would try them."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from calling import call
from ruamel.yaml import YAML
from topologies import site_file

from rackyard.cli.sched import POLICY_NAMES, _Progress
from rackyard.placement.replay import POLICIES

SMALL = ("--racks", 2, "--jobs", 40)
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"


def trace(folder: Path, *rows: str) -> Path:
    file = folder / "trace.csv"
    file.write_text(TIRESIAS + "".join(f"{row}\n" for row in rows))
    return file


def data_of(*words: object) -> Any:
    answer = call("sched", "replay", *words, "-o", "json")
    assert answer.code == 0
    return json.loads(answer.out)


def test_all_policies_side_by_side() -> None:
    answer = call("sched", "replay", "generated", *SMALL)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == "site simulated (simulated): 36 nodes, 144 GPUs"
    assert lines[1].startswith("trace: generated, seed 0: 40 jobs in ") and "offered load 0.9" in lines[1]
    assert any(line.split()[:2] == ["jobs", "40"] for line in lines), "the generator's parameters"
    assert any("jobs ask for 1.5 times what they need" in line for line in lines)
    head = next(line for line in lines if line.startswith("figure"))
    names = ["rackyard", "first-fit", "best-fit", "tier-by-tier", "per-level", "slurm-block"]
    assert head.split() == ["figure", "unit", *names]
    assert next(line for line in lines if line.startswith("jobs ended")).split() == ["jobs", "ended", "-", *["40"] * 6]
    assert "failure" not in answer.out.split("figure  ")[1], "nothing failed"
    assert answer.err.splitlines()[0] == "replayed 40 jobs under rackyard"


def test_a_terminal_sees_jobs_count_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", Terminal())
    with _Progress("first-fit", 2000) as progress:
        for ended in (0, 1, 1000):
            progress.told(ended)
    shown = sys.stderr
    assert isinstance(shown, Terminal)
    told = "\rfirst-fit: 0 of 2,000 jobs\rfirst-fit: 1,000 of 2,000 jobs"
    assert shown.getvalue().replace("\033[K", "") == told + "\r"


def test_policies_are_chosen_and_the_seed_makes_the_trace() -> None:
    words = ("generated", *SMALL, "--policy", "per-level", "--policy", "first-fit", "--load", "0.5")
    one, same, other = (data_of(*words, "--seed", seed) for seed in (1, 1, 2))
    assert [policy["name"] for policy in one["policies"]] == ["per-level", "first-fit"]
    assert one["trace"] == same["trace"] != other["trace"]
    assert {row["name"]: row["value"] for row in one["trace"]["generator"]}["load"] == "0.5"
    figures = one["policies"][0]["figures"]
    assert set(figures) == {row["name"] for row in one["figures"]} and figures["jobs"] == 40


def test_json_and_yaml_say_the_same(tmp_path: Path) -> None:
    file = trace(tmp_path, "1,4,0,10,resnet,60,1", "2,8,30,10,resnet,60,1")
    words = ("sched", "replay", file, "--racks", 1, "--policy", "first-fit", "-o")
    as_json = json.loads(call(*words, "json").out)
    as_yaml = YAML(typ="safe").load(io.StringIO(call(*words, "yaml").out))
    for data in (as_json, as_yaml):
        for policy in data["policies"]:
            policy["figures"] = {name: value for name, value in policy["figures"].items() if "decision_" not in name}
    assert as_json == as_yaml and as_json["failures"] is None


def test_a_trace_of_a_file_keeps_its_times_unless_a_load_is_asked_for(tmp_path: Path) -> None:
    file = trace(tmp_path, "1,4,0,10,resnet,60,1", "2,6,600,10,resnet,60,1")
    plain = data_of(file, "--racks", 1, "--policy", "first-fit")
    assert plain["trace"]["window_seconds"] == 600 and plain["trace"]["load"] == pytest.approx(12 * 60 / 72 / 600)
    assert any("rounded up to whole nodes of 4 GPUs: 1 of 2 jobs" in note for note in plain["trace"]["notes"])
    assert data_of(file, "--racks", 1, "--policy", "first-fit", "--load", 0.5)["trace"]["load"] == pytest.approx(0.5)


def test_rows_that_were_left_out_are_told(tmp_path: Path) -> None:
    file = trace(tmp_path, "1,4,0,10,resnet,60,1", "2,0,30,10,resnet,60,1")
    answer = call("sched", "replay", file, "--racks", 1, "--policy", "first-fit")
    assert answer.code == 0 and "  left out, 1 row: no GPU\n" in answer.out


def test_long_jobs_in_a_short_trace_are_told(tmp_path: Path) -> None:
    file = trace(tmp_path, "1,4,0,10,resnet,1000,1", "2,4,100,10,resnet,10,1")
    answer = call("sched", "replay", file, "--racks", 1, "--policy", "first-fit")
    assert "only 10 % of the work can be done before the last job comes" in answer.out


def test_jobs_that_all_come_at_once_are_replayed_and_have_no_occupancy(tmp_path: Path) -> None:
    """One of no length is left out, one larger than the site is clipped to it."""
    rows = ("1,4,5,10,resnet,0,1", "2,8,5,10,resnet,60,1", "3,8,5,10,resnet,60,1", "4,800,5,10,resnet,60,1")
    answer = call("sched", "replay", trace(tmp_path, *rows), "--racks", 1)
    assert answer.code == 0
    for told in (
        "3 jobs all at once\n",
        "left out, 1 row: no running time",
        "clipped to 72 GPUs: 1 of 3 jobs",
        "there is no occupancy to measure",
    ):
        assert told in answer.out
    lines = {line[:31].strip(): line[31:].split() for line in answer.out.splitlines()}
    assert lines["occupancy"] == ["%", *["-"] * 6] and lines["wait, p50"] == ["s", *["0"] * 6]


def test_a_single_job_needs_no_plural(tmp_path: Path) -> None:
    answer = call("sched", "replay", trace(tmp_path, "1,4,5,10,resnet,60,1"), "--racks", 1, "--policy", "first-fit")
    assert answer.code == 0 and ": 1 job all at once\n" in answer.out
    assert answer.err == "replayed 1 job under first-fit\n"


def test_servers_that_are_their_own_domain_run_a_generated_trace_whole(tmp_path: Path) -> None:
    site = site_file(tmp_path, "simulate: {racks: 0, hgx: 8, hgx_gpu: H200}\n")
    found = data_of("generated", "--jobs", 60, "--site", site)
    assert {policy["figures"]["never"] for policy in found["policies"]} == {0}
    assert {row["name"]: row["value"] for row in found["trace"]["generator"]}["segments"].startswith("1 from 128")


def test_help_names_the_policies_there_are() -> None:
    assert ", ".join(policy.name for policy in POLICIES) == POLICY_NAMES
    assert "slurm-block" in call("sched", "replay", "--help").out


def test_failures_by_rate_and_from_a_list(tmp_path: Path) -> None:
    words = ("generated", *SMALL, "--policy", "first-fit")
    by_rate = data_of(*words, "--fail-rate", 2, "--repair", 1)
    assert by_rate["failures"] == {"per_node_day": 2.0, "repair_hours": 1.0, "seed": 0}
    assert by_rate["policies"][0]["figures"]["failures"] > 0
    failures = tmp_path / "failures.csv"
    failures.write_text("time,node,repair\n1,r01-t01,60\n2,r02-t18,60\n")
    listed = data_of(*words, "--failures", failures)
    assert listed["policies"][0]["figures"]["failures"] == 2 and listed["failures"] == {"list": str(failures)}
    shown = call("sched", "replay", *words, "--failures", failures)
    assert "\nnode failures " in shown.out and f"failures: those of {failures}\n" in shown.out


def test_every_policy_meets_the_failures_of_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"1,r01-t01,60\n")))
    found = data_of("generated", *SMALL, "--failures", "-")
    assert [policy["figures"]["failures"] for policy in found["policies"]] == [1] * 6


def test_the_full_queue_may_be_asked_for() -> None:
    found = data_of("generated", *SMALL, "--policy", "first-fit", "--queue", "full")
    assert found["queue"]["name"] == "full" and "preemption" in found["queue"]["discipline"]
    assert found["policies"][0]["figures"]["jobs"] == 40


def test_a_site_file_is_the_ground(tmp_path: Path) -> None:
    site = site_file(tmp_path, "simulate: {racks: 1, hgx: 2, hgx_gpu: H200}\n")
    found = data_of("generated", "--jobs", 10, "--site", site, "--policy", "rackyard")
    assert found["site"]["gpus"] == 88 and found["site"]["simulated"] is True
    answer = call("sched", "replay", "generated", "--site", site, "--racks", 2)
    assert answer.code == 2 and "--site and --racks together" in answer.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing.csv"], ["the file can't be read", "nothing.csv"]),
        (["."], ["a file is wanted here"]),
        (["generated", "--policy", "frist-fit"], ["there is no policy 'frist-fit'", "did you mean first-fit?"]),
        (["generated:jbos=3"], ["no parameter 'jbos'", "did you mean jobs?"]),
        (["generated", "--failures", "nothing.csv"], ["the file can't be read"]),
        (["generated", "--fail-rate", "1", "--failures", "x"], ["--fail-rate and --failures together"]),
        (["-", "--failures", "-"], ["TRACE and --failures are both -", "give a file"]),
        (["generated", "--estimate", "nan"], ["--estimate is nan"]),
        (["generated", "--load", "nan"], ["load is nan"]),
        (["generated", "--fail-rate", "nan"], ["nan failures per node and day"]),
        (["generated:jobs"], ["jobs has no value", "for example jobs="]),
        (["generated", "--fail-rate", "100000"], ["failures per node and day"]),
        (["generated", "--site", "nothing.yaml"], ["nothing.yaml"]),
        (["generated", "--load", "0"], ["--load"]),
        (["generated", "--racks", "0"], ["--racks"]),
        ([], ["Missing argument 'TRACE'"]),
    ],
)
def test_what_is_refused_says_what_and_how_to_go_on(
    words: list[str], told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = call("sched", "replay", *words)
    assert answer.code == 2 and answer.out == ""
    assert all(word in answer.err for word in told), answer.err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the trace is empty"),
        (b"a,b,c\n1,2,3\n", "no job trace that is known here"),
        (b"\xff\xfe\x00", "the file is no text"),
        (TIRESIAS.encode() + b"1,four,0,10,resnet,60,1\n", "trace.csv:2"),
        (TIRESIAS.encode(), "trace.csv\n  why: no rows"),
        (TIRESIAS.encode() + b"1,4,0,10,resnet,0,1\n", "trace.csv\n  why: 1 row: no running time"),
    ],
)
def test_a_malformed_trace_is_named_with_its_place(content: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_bytes(content)
    answer = call("sched", "replay", file)
    assert answer.code == 2 and told in answer.err and answer.out == ""


def test_a_malformed_list_of_failures_is_named_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "failures.csv"
    file.write_text("1,r01-t01,60\n2,r1-t01,60\n")
    answer = call("sched", "replay", "generated", *SMALL, "--failures", file)
    assert answer.code == 2 and "failures.csv:2" in answer.err and "did you mean r01-t01?" in answer.err


@pytest.mark.corpus
def test_every_file_of_the_corpus_is_replayed_or_says_what_it_is(corpus: Path) -> None:
    read = 0
    for file in sorted((corpus / "scheduling").glob("*.*")):
        answer = call("sched", "replay", file, "--racks", 2, "--jobs", 30, "--policy", "rackyard")
        read += answer.code == 0
        assert answer.code in (0, 2) and "Traceback" not in answer.err
        if answer.code:
            assert answer.err.startswith("error: ") and "  fix: " in answer.err and str(file) in answer.err
    assert read >= 3


def test_bench_says_what_was_measured_where() -> None:
    answer = call("sched", "bench", "--racks", 4, "--count", 2, "--policy", "first-fit", "--policy", "rackyard")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].startswith("simulated sites, half full; measured on this machine (")
    assert [line.split()[:3] for line in lines[4:]] == [
        ["72", "4", "first-fit"],
        ["72", "4", "rackyard"],
        ["72", "64", "first-fit"],
        ["72", "64", "rackyard"],
    ]
    data = json.loads(call("sched", "bench", "--racks", 4, "--count", 2, "--policy", "rackyard", "-o", "json").out)
    assert data["simulated"] is True and data["rows"][0]["count"] == 2


def test_help_names_the_commands() -> None:
    answer = call("sched", "--help")
    assert answer.code == 0 and "replay" in answer.out and "bench" in answer.out
    assert "sched" in call("--help").out
