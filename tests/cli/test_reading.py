"""What the commands that only look say about a job with a history."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calling import call
from ruamel.yaml import YAML
from yard import finish, strike, toy, yard

from rackyard.cli.app import COMMANDS


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state folder of a job of two ranks that lost a process and was restarted."""
    with yard(tmp_path_factory.mktemp("ran")) as home:
        job = toy(home, gpus=2, steps=12)
        strike(home, job, ("process", 6))
        assert finish(home, job).phase == "succeeded"
        yield home.path


READS = ["ps -a", "status toy", "why toy", "attempts toy", "events toy", "nodes ls", "racks ls"]


@pytest.mark.parametrize("command", READS)
def test_machine_readable_output_parses_and_is_the_same_in_both_forms(ran: Path, command: str) -> None:
    as_json = call(*command.split(), "-o", "json", "--state", ran)
    as_yaml = call(*command.split(), "-o", "yaml", "--state", ran)
    assert (as_json.code, as_json.err, as_yaml.code, as_yaml.err) == (0, "", 0, "")
    assert keyed_by_text(YAML(typ="safe").load(io.StringIO(as_yaml.out))) == json.loads(as_json.out)


def keyed_by_text(value: Any) -> Any:
    """YAML keeps the numbers that JSON can't have as keys."""
    if isinstance(value, dict):
        return {str(key): keyed_by_text(item) for key, item in value.items()}
    return [keyed_by_text(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("command", [*READS, "ps --help", "--help", "fault inject --help"])
def test_piped_output_does_not_depend_on_the_width(ran: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 2e9)
    outputs = set()
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        state = [] if "--help" in command else ["--state", ran]
        outputs.add(call(*command.split(), *state).out)
    assert len(outputs) == 1


def test_the_table_of_jobs(ran: Path) -> None:
    head, row = call("ps", "-a", "--state", ran).out.splitlines()
    assert head.split() == ["JOB", "PHASE", "GPUS", "ATTEMPT", "STEP", "AGE", "REASON"]
    assert row.split()[1:5] == ["succeeded", "2", "2", "12"]


def test_ps_without_unfinished_jobs_says_where_the_others_are(ran: Path) -> None:
    answer = call("ps", "--state", ran)
    assert answer.out.startswith("JOB") and answer.out.count("\n") == 1
    assert "`rackyard ps -a` shows 1 more" in answer.err


def test_why_of_a_job_that_is_done(ran: Path) -> None:
    out = call("why", "toy", "--state", ran).out
    assert "is succeeded: all 2 ranks exited with code 0" in out
    assert "was ended by SIGKILL" in out and "restart-processes" in out
    assert out.endswith("next: nothing to do\n")


def test_attempts_tell_fault_action_and_cost(ran: Path) -> None:
    out = call("attempts", "toy", "--state", ran).out
    assert "rank 1 on r01-t01 was ended by SIGKILL" in out
    assert "RECOVERED IN" in out and "RECOMPUTE" in out


def test_events_are_told_in_full(ran: Path) -> None:
    rows = json.loads(call("events", "toy", "-o", "json", "--state", ran).out)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    kinds = [row["kind"] for row in rows]
    assert kinds[0] == "Submitted" and kinds[-1] == "Finished"
    assert {"Placed", "Launched", "FaultInjected", "FaultDetected", "Advised", "Stopping"} <= set(kinds)


def test_logs_of_one_rank_of_one_attempt(ran: Path) -> None:
    logs = ran / "jobs" / str(json.loads(call("ps", "-a", "-o", "json", "--state", ran).out)[0]["job"]) / "logs"
    (logs / "attempt-1" / "rank-0.log").write_text("fine\nValueError: broken\nafter\n")
    (logs / "attempt-1" / "rank-1.log").write_text("fine too\n")
    where = ("--attempt", 1, "--state", ran)
    assert call("logs", "toy", *where).out == "[0] fine\n[0] ValueError: broken\n[0] after\n[1] fine too\n"
    assert call("logs", "toy", "--rank", 1, *where).out == "[1] fine too\n"
    assert call("logs", "toy", "--first-error", *where).out == "[0] ValueError: broken\n[0] after\n"
    (logs / "attempt-1" / "rank-0.log").write_text("fine\n")
    silent = call("logs", "toy", "--first-error", *where)
    assert silent.out == "[1] fine too\n" and silent.err.endswith("the last 20 lines of rank 1 instead\n")


@pytest.mark.parametrize("which", [("--rank", 7), ("--attempt", 9)])
def test_logs_that_are_not_there(ran: Path, which: tuple[str, int]) -> None:
    answer = call("logs", "toy", *which, "--state", ran)
    assert answer.code == 2
    assert "no log of that" in answer.err and "fix: `rackyard attempts`" in answer.err


def test_a_misspelt_job_is_guessed(ran: Path) -> None:
    answer = call("why", "tyo", "--state", ran)
    assert answer.code == 2
    assert "no job 'tyo'" in answer.err and "did you mean toy?" in answer.err


def test_a_fault_for_a_job_that_is_over_is_refused(ran: Path) -> None:
    answer = call("fault", "inject", "toy", "--kind", "process", "--state", ran)
    assert answer.code == 2
    assert "is succeeded already" in answer.err


def test_cancelling_a_job_that_is_over_changes_nothing(ran: Path) -> None:
    answer = call("cancel", "toy", "-y", "--state", ran)
    assert (answer.code, answer.err) == (0, "")
    assert "is succeeded already" in answer.out


@pytest.mark.parametrize("words", [["ps"], ["ps", "-a"], ["nodes", "ls"], ["racks", "ls"], ["why", "x"], ["logs", "x"]])
def test_looking_at_a_folder_that_is_not_there_makes_none(tmp_path: Path, words: list[str]) -> None:
    answer = call(*words, "--state", tmp_path / "none")
    assert answer.code == (2 if "x" in words else 0)
    assert not (tmp_path / "none").exists()


def test_the_first_ps_of_a_new_user(tmp_path: Path) -> None:
    answer = call("ps", "--state", tmp_path / "none")
    assert answer.out == "JOB  PHASE  GPUS  ATTEMPT  STEP  AGE  REASON\n"
    assert "no jobs" in answer.err and "`rackyard run job.yaml` starts one" in answer.err
    assert call("ps", "-o", "json", "--state", tmp_path / "none").out == "[]\n"


def test_a_store_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "rackyard.db").write_text("this is no database, and long enough to be told from one")
    for words in (["ps"], ["cancel", "x", "-y"]):
        answer = call(*words, "--state", tmp_path)
        assert answer.code == 1
        assert "the store can't be read" in answer.err and "fix: check the folder" in answer.err


def test_a_state_folder_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    read, write = call("ps", "--state", file), call("up", "--state", file)
    assert (read.code, write.code) == (2, 1)
    assert "the state folder can't be used" in read.err and "the state folder can't be used" in write.err


@pytest.mark.parametrize("command", [*COMMANDS, "fault inject", "nodes return", "racks return", "nodes ls"])
def test_every_command_explains_itself(command: str) -> None:
    answer = call(*command.split(), "--help")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"Usage: rackyard {command}")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["stauts", "x"], "status"),
        (["fault", "injct"], "inject"),
        (["ps", "--sate", "x"], "--state"),
        (["nodes", "retrn", "x"], "return"),
    ],
)
def test_a_misspelt_word_is_guessed(words: list[str], hint: str) -> None:
    answer = call(*words)
    assert answer.code == 2
    assert "Did you mean" in answer.err and hint in answer.err
