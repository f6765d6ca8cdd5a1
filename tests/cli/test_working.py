"""The commands that do something, as a user calls them: real processes, a real store."""

import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import Answer, call, end, job_file, start, wait_until
from ruamel.yaml import YAML
from yard import toy, yard

from rackyard.controller.home import Home
from rackyard.jobs.events import Cordoned, FaultRequested
from rackyard.jobs.site import SITE_STREAM
from rackyard.jobs.state import Phase

STEPS = """\
import os, sys, time
sys.path[:0] = {path!r}
import rackyard
print("rank", os.environ["RANK"])
for step in range(1, {steps} + 1):
    time.sleep(0.05)
    while step > {wait_at} and not os.path.exists({gate!r}):
        time.sleep(0.05)
    rackyard.report_step(step, loss=1.0 / step)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with yard(tmp_path) as made:
        yield made


def steps_file(folder: Path, steps: int, wait_at: int = 1_000_000) -> Path:
    """A job that reports steps, and after step `wait_at` waits for the file `gate`."""
    script = STEPS.format(path=sys.path[1:], steps=steps, wait_at=wait_at, gate=str(folder / "gate"))
    return job_file(folder, script=script)


def phase(home: Home, job: str) -> Phase:
    return home.store.state(job).phase


def detach(home: Home) -> tuple[int, Answer]:
    """`rackyard up --detach`; the daemon's process id."""
    answer = end(start("up", "--detach", "--state", home.path))
    assert answer.code == 0, answer.err
    return int(answer.out.split("process ")[1].split(",")[0]), answer


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_run_follows_a_job_to_its_end(home: Home, tmp_path: Path) -> None:
    answer = end(start("run", steps_file(tmp_path, 3), "--state", home.path))
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].endswith("(simulated)")
    assert "placed      attempt 1: r01 [r01-t01]" in answer.out
    assert lines[-1].endswith(": succeeded: all 1 ranks exited with code 0")


def test_run_of_a_script_that_fails_has_exit_code_1_and_says_what_to_do(home: Home, tmp_path: Path) -> None:
    file = job_file(tmp_path, script="raise SystemExit('no data')\n")
    answer = end(start("run", file, "-q", "--state", home.path))
    assert answer.code == 1
    assert "failed: the same error 3 times" in answer.out and "next: the script fails by itself" in answer.out
    assert answer.out.count("\n") == 2


def test_a_daemon_runs_what_is_submitted_until_it_is_stopped(home: Home, tmp_path: Path) -> None:
    pid, _ = detach(home)
    try:
        second = end(start("up", "--detach", "--state", home.path))
        assert second.code == 1 and "another controller works on this store" in second.err
        submitted = call("submit", steps_file(tmp_path, 3), "--state", home.path)
        assert (submitted.code, submitted.err) == (0, "")
        job = submitted.out.strip()
        wait_until(lambda: phase(home, job).over)
        assert phase(home, job) is Phase.SUCCEEDED
        # With the folder held by the daemon, `run` hands the job over and follows it.
        run = end(start("run", tmp_path / "job.yaml", "--state", home.path))
        assert run.code == 0 and "submitted   job-" in run.out and "succeeded" in run.out
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: gone(pid))
    assert home.controller_pid() is None
    assert "Traceback" not in (home.path / "controller.log").read_text()


def test_run_takes_over_from_a_daemon_that_goes(home: Home, tmp_path: Path) -> None:
    up = start("up", "--state", home.path)
    assert up.stdout is not None and "controller of" in up.stdout.readline()
    run = start("run", steps_file(tmp_path, 10, wait_at=5), "--state", home.path)
    assert run.stdout is not None
    heard = []
    while "step  " not in (heard or [""])[-1]:
        heard.append(run.stdout.readline())
        assert heard[-1], "run ended early"
    up.send_signal(signal.SIGTERM)
    assert end(up).code == 0
    (tmp_path / "gate").touch()
    answer = end(run)
    assert answer.code == 0
    (row,) = home.store.jobs()
    assert row["attempt"] == 1
    placed = [text for text in (*heard, *answer.out.splitlines()) if "  placed  " in text]
    assert len(placed) == 1, "nothing is told twice"


def test_interrupting_run_cancels_the_job(home: Home, tmp_path: Path) -> None:
    run = start("run", steps_file(tmp_path, 10_000), "--state", home.path)
    wait_until(lambda: [row for row in home.store.jobs() if row["step"] >= 2])
    run.send_signal(signal.SIGINT)
    answer = end(run)
    assert answer.code == 1
    assert "cancelling; press Ctrl-C again to leave at once" in answer.err
    assert answer.out.splitlines()[-1].endswith(": cancelled: cancelled on request")
    (row,) = home.store.jobs()
    assert row["phase"] == "cancelled"


def test_submitting_without_a_controller_says_so(home: Home, tmp_path: Path) -> None:
    answer = call("submit", job_file(tmp_path), "--state", home.path)
    assert answer.code == 0 and answer.out.startswith("job-")
    assert "no controller works on" in answer.err and "`rackyard up`" in answer.err
    why = call("why", "job", "--state", home.path)
    assert "pending: not looked at yet" in why.out and "`rackyard up`" in why.out


def test_cancel_asks_and_a_dry_run_changes_nothing(home: Home) -> None:
    job = toy(home)
    before = len(home.store.records(job))
    dry = call("cancel", "toy", "--dry-run", "--state", home.path)
    assert (dry.code, dry.out) == (0, f"would cancel {job} (pending, step 0)\n")
    assert len(home.store.records(job)) == before
    assert call("cancel", "toy", "-y", "--state", home.path).out == f"{job}: cancel requested\n"
    assert home.store.state(job).cancel


@pytest.mark.parametrize(
    ("kind", "target", "complaint", "fix"),
    [
        ("process", "9", "there is no rank '9'", "ranks are 0 to 3"),
        ("hang", "-1", "there is no rank '-1'", "ranks are 0 to 3"),
        ("tray", "r01-t9", "there is no node 'r01-t9'", "did you mean r01-t0"),
        ("rack-nvlink", "r1", "there is no rack 'r1'", "did you mean r0"),
        ("switch-tray", "lab", "there is no rack 'lab'", "see `rackyard racks ls`"),
    ],
)
def test_a_fault_for_what_is_not_there_is_refused(home: Home, kind: str, target: str, complaint: str, fix: str) -> None:
    job = toy(home)
    answer = call("fault", "inject", "toy", "--kind", kind, "--target", target, "--state", home.path)
    assert answer.code == 2
    assert complaint in answer.err and fix in answer.err
    assert home.store.state(job).faults_requested == ()


def test_a_fault_is_asked_for(home: Home) -> None:
    job = toy(home)
    words = ("--kind", "tray", "--target", "r01-t02", "--at-step", 5)
    answer = call("fault", "inject", "toy", *words, "--state", home.path)
    assert answer.out == f"{job}: tray fault at step 5 (simulated)\n"
    assert home.store.state(job).faults_requested == (
        FaultRequested(fault=1, kind="tray", target="r01-t02", at_step=5),
    )


@pytest.mark.parametrize(("noun", "name"), [("nodes", "r01-t02"), ("racks", "r01")])
def test_what_a_fault_took_is_returned(home: Home, noun: str, name: str) -> None:
    home.store.append(SITE_STREAM, [Cordoned(subject=name, why="toy-1: lost")])
    free = json.loads(call("racks", "ls", "-o", "json", "--state", home.path).out)["racks"][0]["nodes_free"]
    assert free == (2 if noun == "nodes" else 0)
    dry = call(noun, "return", name, "--dry-run", "--state", home.path)
    assert dry.out == f"would return {name} to service (out of use: toy-1: lost)\n"
    assert len(home.store.records(SITE_STREAM)) == 1
    done = call(noun, "return", name, "-y", "--state", home.path)
    assert (done.code, done.out) == (0, f"{name}: returned to service\n")
    again = call(noun, "return", name, "-y", "--state", home.path)
    assert again.out == f"{name} is in service already\n"
    free = json.loads(call("racks", "ls", "-o", "json", "--state", home.path).out)["racks"][0]["nodes_free"]
    assert free == 3
    assert call(noun, "return", name + "x", "-y", "--state", home.path).code == 2


def test_plan_shows_seats_and_environment_and_makes_nothing(tmp_path: Path) -> None:
    file = job_file(tmp_path, "segment: {gpus: 8}\nrecover: {attempts: 3}\n", gpus=8)
    state = tmp_path / "state"
    answer = call("plan", file, "--rank", 5, "--state", state)
    assert answer.code == 0
    rows = [text.split() for text in answer.out.splitlines()]
    assert ["5", "r01-t02", "1", "1", "mlx5_1", "1", "0"] in rows
    env = dict(text.strip().split("=", 1) for text in answer.out.splitlines() if text.startswith("  ") and "=" in text)
    torchrun = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"}
    assert torchrun.items() <= env.items()
    assert env["TORCHELASTIC_MAX_RESTARTS"] == "2"
    assert env["NCCL_TOPO_FILE"].endswith("/nccl/r01-t02.xml")
    assert {"MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "NCCL_IB_HCA"} <= set(env)
    assert not state.exists()


@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.parametrize(("gpus", "code", "key"), [(8, 0, "placement"), (6, 1, "constraint")])
def test_plan_for_programs(tmp_path: Path, output: str, gpus: int, code: int, key: str) -> None:
    answer = call("plan", job_file(tmp_path, gpus=gpus), "-o", output, "--state", tmp_path / "state")
    assert (answer.code, answer.err) == (code, "")
    read = json.loads if output == "json" else lambda text: YAML(typ="safe").load(io.StringIO(text))
    assert key in read(answer.out)


def test_plan_without_a_seat_names_what_would_fit(tmp_path: Path) -> None:
    answer = call("plan", job_file(tmp_path, gpus=6), "--state", tmp_path / "state")
    assert answer.code == 1
    assert "6 GPUs do not divide over GB300 nodes of 4 GPUs" in answer.out and "fix: gpus: 4 or 8" in answer.out


@pytest.mark.parametrize(("gpus", "code"), [(8, 0), (6, 1)])
def test_a_recorded_decision_is_made_again(tmp_path: Path, gpus: int, code: int) -> None:
    state, case = tmp_path / "state", tmp_path / "case.json"
    assert call("plan", job_file(tmp_path, gpus=gpus), "--record", case, "--state", state).code == code
    answer = call("plan", case, "--again", "--state", state)
    assert answer.code == 0 and "the answer is the same as when it was recorded" in answer.out
    told = json.loads(case.read_text())
    case.write_text(json.dumps({**told, "site": {**told["site"], "digest": "0" * 64}}))
    answer = call("plan", case, "--again", "--state", state)
    assert answer.code == 2 and "another site" in answer.err
    case.write_text("{")
    assert "no JSON" in call("plan", case, "--again", "--state", state).err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(["--rank", 4], "there is no rank 4"), (["--site", "none.yaml"], "the site file does not exist")],
)
def test_plan_of_what_is_not_there(tmp_path: Path, words: list[str], complaint: str) -> None:
    answer = call("plan", job_file(tmp_path, gpus=4), *words, "--state", tmp_path / "state")
    assert answer.code == 2
    assert complaint in answer.err


def test_logs_are_followed_to_the_end(home: Home, tmp_path: Path) -> None:
    run = start("run", steps_file(tmp_path, 5), "-q", "--state", home.path)
    wait_until(lambda: [row for row in home.store.jobs() if row["step"] >= 1])
    answer = call("logs", "job", "-f", "--state", home.path)
    assert (answer.code, answer.out) == (0, "[0] rank 0\n")
    assert end(run).code == 0


def test_plan_tells_of_a_script_that_is_not_here_and_plans_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: x\nrun: python train.py\ngpus: 4\n")
    answer = call("plan", file, "--state", tmp_path / "state")
    assert answer.code == 0 and "placed: 4 ranks on 1 node" in answer.out
    assert "the script 'train.py' does not exist here, and without it the job would be refused" in answer.err
