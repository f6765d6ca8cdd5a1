"""What a user or a machine can get wrong: said clearly, with the right exit code, and nothing is lost."""

import contextlib
import io
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from yard import finish, open_gate, strike, toy, yard

from rackyard.cli.app import main
from rackyard.cli.session import drive
from rackyard.controller.home import Home
from rackyard.controller.reconcile import impossible
from rackyard.controller.request import request_of
from rackyard.controller.submit import submit
from rackyard.errors import RackyardError, UsageError
from rackyard.fabric import load
from rackyard.jobs.recovery import recoveries
from rackyard.jobs.specfile import parse_spec
from rackyard.jobs.state import Phase
from rackyard.jobs.why import why
from rackyard.placement import Occupancy, Rejection, place

BUSY = "simulate: {racks: 1, trays: 1}\n"


def fails(*words: object) -> tuple[int, str]:
    """Exit code and complaint of a command that does not end well."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert "Traceback" not in err.getvalue()
    assert isinstance(end.value.code, int)
    return end.value.code, err.getvalue()


def job_file(folder: Path, text: str) -> Path:
    (folder / "script.py").write_text("print('hello')\n")
    file = folder / "job.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("run: [a\ngpus: 4\n", ":2:", "not valid YAML"),
        ("run: python script.py\ngpus: 4\nspraed: pack\n", ":3:1", "did you mean spread?"),
        ("run: python script.py\ngpus: 4\nwatch: {hnag: 60s}\n", ":3:9", "did you mean hang?"),
        ("run: python script.py\ngpus: four\n", ":2:7", "must be a whole number"),
        ("run: python script.py\ngpus: 4\nrails: alinged\n", ":3:8", "did you mean aligned?"),
        ("run: python script.py\ngpus: 4\nrails: -1\n", ":3:8", "the number of a rail"),
        ("run: python script.py\n", "", "add gpus"),
        ("run: python scirpt.py\ngpus: 4\n", "scirpt.py", "does not exist"),
        ("run: python script.py\ngpus: 4\nworkdir: nowhere\n", "nowhere", "working directory does not exist"),
        ("run: python script.py\ngpus: 4\ncheckpoint: {dir: script.py}\n", "script.py", "folder can't be written"),
        ("run: python script.py\ngpus: 4\ncheckpoint: {dir: script.py/x}\n", "script.py/x", "folder can't be written"),
    ],
)
@pytest.mark.parametrize("command", ["run", "submit", "submit --dry-run"])
def test_a_bad_job_file_is_refused_where_it_is_wrong(
    tmp_path: Path, text: str, at: str, says: str, command: str
) -> None:
    file = job_file(tmp_path, text)
    code, err = fails(*command.split(), file, "--state", tmp_path / "state")
    assert code == 2
    assert err.startswith("error: ") and f"at:  {file}" in err if at.startswith(":") else "at: " in err
    assert at in err and says in err
    main_ps = Home(tmp_path / "state").store
    assert main_ps.count() == 0


def test_a_dry_run_leaves_no_trace(tmp_path: Path) -> None:
    file = job_file(tmp_path, "run: python script.py\ngpus: 4\ncheckpoint: {dir: made/later}\n")
    with pytest.raises(SystemExit) as end:
        main(["submit", str(file), "--dry-run", "--state", str(tmp_path / "state")])
    assert end.value.code == 0
    assert not (tmp_path / "made").exists() and not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("ask", "summary", "fix"),
    [
        ("gpus: 6\n", "6 GPUs do not divide over GB300 nodes of 4 GPUs", "gpus: 4 or 8"),
        (
            "gpus: 68\nsegment: {gpus: 68}\n",
            "the gang needs 17 nodes in one NVLink domain|a segment of 68 GPUs needs 17 nodes in one NVLink domain",
            "`gpus: 64`",
        ),
        ("gpus: 4\nrails: 9\n", "there is no rail 9: the rails here are 0, 1, 2, 3", "rails: one of 0, 1, 2, 3"),
        ("gpus: 1280\n", "the whole site has 32 nodes", "`gpus: 128` is the most that fits now"),
        ("gpus: 4\ngpu: H100\n", "has no H100 GPUs", "gpu: one of GB300"),
    ],
)
def test_an_impossible_job_fails_with_the_constraint_and_what_would_fit(
    tmp_path: Path, ask: str, summary: str, fix: str
) -> None:
    with yard(tmp_path, "simulate: {racks: 2, trays: 16}\n") as home:
        spec = parse_spec(f"name: big\nrun: 'true'\n{ask}")
        job = submit(home.store, spec.to_dict(), tmp_path, home.site().digest())
        state = finish(home, job)
        answer = why(state)
        (row,) = home.store.jobs()
    assert state.phase is Phase.FAILED and not state.attempts
    assert answer.reason.startswith("it can never run on this site: ")
    assert any(text in answer.reason for text in summary.split("|")), answer.reason
    assert fix in answer.next_step
    assert len(answer.evidence) == 2
    assert (row["phase"], row["reason"]) == ("failed", answer.reason)


def test_a_rail_can_be_asked_for(tmp_path: Path) -> None:
    with yard(tmp_path) as home:
        job = toy(home, gpus=1, steps=2, text="rails: 2\n")
        assert finish(home, job).phase is Phase.SUCCEEDED


@pytest.mark.parametrize(("rail", "never"), [(2, False), (4, True)])
def test_a_broken_nic_is_waited_for_and_a_rail_that_is_not_there_is_not(rail: int, never: bool) -> None:
    site = load("name: lab\nracks: {r01: {}}\nnodes: {n1: {shape: GB300, rack: r01, slot: 1, nic_health: {2: down}}}\n")
    spec = parse_spec(f"name: x\nrun: 'true'\ngpus: 4\nrails: {rail}\n").to_dict()
    assert isinstance(place(request_of(spec), site, Occupancy()), Rejection)
    assert impossible(spec, site) is never


def test_a_job_that_waits_says_for_whom(tmp_path: Path) -> None:
    with yard(tmp_path, BUSY) as home:
        first = toy(home, gpus=4, text="recover: {spares: 0}\n")
        second = toy(home, gpus=2, steps=2, text="recover: {spares: 0}\n")
        waiting = []

        def look(_record: object, _state: object) -> None:
            state = home.store.state(second)
            if state.rejected is not None and not waiting:
                waiting.append(why(state))
                open_gate(home)

        drive(home, home.site(), first, look)
        assert finish(home, second).phase is Phase.SUCCEEDED
    (answer,) = waiting
    assert answer.phase == "pending"
    assert answer.reason.startswith("waits for a seat: ") and "1 busy" in answer.reason
    assert f"r01-t01 frees (held by {first})" in answer.next_step


def test_hundreds_of_jobs_of_one_name_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = iter(["aaaa", "aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr("rackyard.controller.submit.secrets.token_hex", lambda _n: next(digits))
    with yard(tmp_path) as home:
        assert [toy(home), toy(home)] == ["toy-aaaa", "toy-bbbb"]
        assert home.store.count() == 2
        assert len(home.store.records("toy-aaaa")) == 1


def test_a_second_controller_is_refused(tmp_path: Path) -> None:
    with yard(tmp_path) as home, home.controller_lock():
        code, err = fails("up", "--state", home.path)
    assert code == 1
    assert "another controller works on this store" in err
    assert f"process {os.getpid()} holds the lock" in err and "rackyard submit" in err


def test_a_row_that_a_dead_controller_left_behind_is_put_right(tmp_path: Path) -> None:
    """Killed between the event and the projection: `ps` must not show a running job for ever."""
    with yard(tmp_path) as home:
        job = toy(home, gpus=1, steps=2)
        stale = home.store.state(job)
        finish(home, job)
        home.store.project(stale, "not looked at yet")
        other = toy(home, gpus=1, steps=2)
        finish(home, other)
        assert {row["job"]: row["phase"] for row in home.store.jobs()} == {job: "succeeded", other: "succeeded"}


def test_a_clock_that_jumps_makes_no_fault_and_no_negative_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = time.time, iter(range(10**9))
    # A day ahead, then a day behind, with every other look at it.
    monkeypatch.setattr(time, "time", lambda: real() + (86_400 if next(calls) % 2 else -86_400))
    with yard(tmp_path) as home:
        job = toy(home, gpus=1, text="watch: {hang: 30s}\n")
        strike(home, job, ("process", 6))
        open_gate(home)
        state = finish(home, job)
    assert state.phase is Phase.SUCCEEDED
    assert [attempt.fault.cause for attempt in state.attempts if attempt.fault] == ["process"]
    (cost,) = recoveries(state)
    assert cost.total is not None and 0 <= cost.total < 60
    assert all(part is not None and part >= 0 for part in cost.parts.values())


def test_the_newest_job_is_the_last_submitted_even_if_the_clock_went_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with yard(tmp_path) as home:
        toy(home)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now - 86_400)
        second = toy(home)
        assert home.store.resolve("toy") == second
        assert home.store.jobs()[0]["job"] == second


def test_a_full_disk_stops_the_controller_and_the_job_goes_on_with_the_next(tmp_path: Path) -> None:
    with yard(tmp_path) as home:
        job = toy(home, gpus=1)
        code = "import sys; from rackyard.cli import main; main(['up', '--state', sys.argv[1]])"
        with subprocess.Popen([sys.executable, "-c", code, str(home.path)], stderr=subprocess.PIPE, text=True) as up:
            wait_for_step(home, job, 3)
            # The kernel refuses every byte beyond the limit, as a full disk would.
            resource.prlimit(up.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
            _, err = up.communicate(timeout=60)
        assert up.returncode == 1
        assert "Traceback" not in err
        assert "the event could not be stored; nothing was done" in err and "fix: free space" in err
        open_gate(home)
        state = finish(home, job)
    assert state.phase is Phase.SUCCEEDED and state.best_step == 20
    assert len(state.attempts) == 1 and state.attempts[0].fault is None


def wait_for_step(home: Home, job: str, step: int) -> None:
    end = time.monotonic() + 60
    while home.store.state(job).best_step < step:
        assert time.monotonic() < end, "the job does not move"
        time.sleep(0.05)


def test_events_of_another_version_are_not_guessed_at(tmp_path: Path) -> None:
    with yard(tmp_path) as home:
        job = toy(home)
        with home.store._writing() as link:
            link.exec_driver_sql("UPDATE events SET kind = 'Teleported'")
        with pytest.raises(RackyardError, match="can't read") as caught:
            home.store.state(job)
        assert "Teleported" in str(caught.value.where)


def test_a_site_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="can't be read"):
        Home(tmp_path / "state").site(file)
    with pytest.raises(UsageError, match="does not exist"):
        Home(tmp_path / "state").site(tmp_path / "none.yaml")
