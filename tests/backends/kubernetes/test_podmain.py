"""A pod from the inside: real ranks, their environment, and how it ends."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rackyard.backends.kubernetes.podenv import line_of, progress, read, step_line
from rackyard.backends.kubernetes.podmain import parse
from rackyard.errors import UsageError
from rackyard.fabric import simulate
from rackyard.launch import Gang, build
from rackyard.placement import Occupancy, Placement, Request, place

TOLD = {
    "RACKYARD_JOB": "j",
    "RACKYARD_POD_SEATS": "4:0:mlx5_0,5:1:mlx5_1",
    "RACKYARD_POD_MASTER": "r01-t01:23000",
    "RACKYARD_POD_COUNT": "3",
    "RACKYARD_POD_RANK": "2",
    "RACKYARD_POD_ATTEMPT": "2",
    "RACKYARD_POD_SEGMENT": "1",
    "RACKYARD_POD_RACK": "r01",
    "RACKYARD_POD_RAILS": "0,1",
    "RACKYARD_NODE": "r01-t03",
    "TORCHELASTIC_MAX_RESTARTS": "4",
}
SCRIPT = """\
import os, sys, time
import rackyard
rank = int(os.environ["RANK"])
print("rank", rank, "of", os.environ["WORLD_SIZE"], "gpus", os.environ["CUDA_VISIBLE_DEVICES"])
print("rack", os.environ["RACKYARD_RACK"], "rail", os.environ["RACKYARD_RAIL"])
rackyard.report_step(7, loss=0.1)
if "wait" in sys.argv:
    print("waits", flush=True)
    time.sleep(60)
if "fail" in sys.argv:
    if rank == 5:
        sys.exit(7)
    time.sleep(60)
if rank == 4:
    rackyard.report_checkpoint(7, "/ckpt/7")
print("no end", end="")
"""


def start(folder: Path, word: str = "", **more: str) -> "subprocess.Popen[str]":
    (folder / "script.py").write_text(SCRIPT)
    env = {**os.environ, **TOLD, **more, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        env.pop(name, None) if name not in more else None
    command = [sys.executable, "-m", "rackyard.backends.kubernetes.podmain", "--warm", "json", "--"]
    return subprocess.Popen(
        [*command, f"python {folder / 'script.py'} {word}"], env=env, stdout=subprocess.PIPE, text=True, cwd=folder
    )


def run(folder: Path, word: str = "", **more: str) -> tuple[int, list[str]]:
    process = start(folder, word, **more)
    out, _ = process.communicate(timeout=90)
    return process.returncode, out.splitlines()


def test_every_rank_runs_and_its_lines_bear_its_number(tmp_path: Path) -> None:
    code, lines = run(tmp_path)
    assert code == 0
    for rank in ("4", "5"):
        mine = [line for line in lines if line.startswith(f"[{rank}]")]
        where = f"[{rank}] rack r01 rail {int(rank) - 4}"
        assert mine == [f"[{rank}] rank {rank} of 6 gpus 0,1", where, f"[{rank}] no end"]
    assert "[rackyard] checkpoint step 7 published: /ckpt/7" in lines


def test_rank_0_tells_of_steps_to_the_last_bit(tmp_path: Path) -> None:
    code, lines = run(tmp_path, RACKYARD_POD_SEATS="0:0:a", RACKYARD_POD_COUNT="1", RACKYARD_POD_RANK="0")
    assert code == 0 and "[rackyard] step 7 loss=0.1" in lines


def test_a_rank_that_fails_ends_the_pod_and_the_others(tmp_path: Path) -> None:
    code, lines = run(tmp_path, "fail")
    assert code == 7
    assert "[rackyard] rank 5 ended with exit code 7; ending the others" in lines
    assert not any(line.endswith("no end") for line in lines)


def test_sigterm_ends_the_ranks(tmp_path: Path) -> None:
    process = start(tmp_path, "wait")
    assert process.stdout is not None
    while "waits" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 143 and "[rackyard] SIGTERM: ending all ranks" in out


def test_ranks_that_make_no_step_any_more_are_ended_with_their_stacks(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(
        "import time, rackyard\ndef stuck():\n    time.sleep(600)\nrackyard.report_step(1)\nstuck()\n"
    )
    command = [sys.executable, "-m", "rackyard.backends.kubernetes.podmain", "--hang", "0.5", "--"]
    made = subprocess.run(
        [*command, f"{sys.executable} {tmp_path / 'hangs.py'}"],
        env={**os.environ, **TOLD}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert made.returncode == 3 and "[rackyard] no step for 0.5 s" in made.stdout
    assert re.search(r"^\[4\]   File .* in stuck$", made.stdout, re.M)


@pytest.mark.parametrize("words", [[], ["--"], ["--", "a", "b"], ["--warm", "--", "a"], ["--hang", "x", "--", "a"]])
def test_a_command_line_that_can_not_be_read(words: list[str]) -> None:
    with pytest.raises(UsageError, match="command line"):
        parse(words)


def test_a_command_that_can_not_be_started_says_so(tmp_path: Path) -> None:
    env = {**os.environ, **TOLD}
    command = [sys.executable, "-m", "rackyard.backends.kubernetes.podmain", "--", "no-such-program"]
    made = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert made.returncode == 127 and "[4] rackyard: can't start rank 4" in made.stdout


@pytest.mark.parametrize("missing", ["RACKYARD_POD_SEATS", "RACKYARD_POD_MASTER", "RACKYARD_POD_RANK"])
def test_a_pod_that_was_let_go_without_a_plan_says_so(missing: str) -> None:
    with pytest.raises(UsageError, match="does not know its ranks") as raised:
        read({**TOLD, missing: ""})
    assert missing in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("RACKYARD_POD_SEATS", "4:x"), ("RACKYARD_POD_MASTER", "nowhere"), ("RACKYARD_POD_ATTEMPT", "two")],
)
def test_what_is_in_no_form_we_know_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match="does not know its ranks"):
        read({**TOLD, name: value})


def test_the_device_plugin_has_the_last_word_on_gpus() -> None:
    def gpus(**more: str) -> str:
        (rank, _) = read({**TOLD, "RACKYARD_POD_SEATS": "4:2:a,5:3:b", **more}).plan("x", (), "/", Path("/f"))["ranks"]
        return str(rank["env"]["CUDA_VISIBLE_DEVICES"])

    assert gpus() == "2,3"
    assert gpus(CUDA_VISIBLE_DEVICES="6,7", NVIDIA_VISIBLE_DEVICES="GPU-a,GPU-b") == "6,7"
    assert gpus(NVIDIA_VISIBLE_DEVICES="GPU-a,GPU-b") == "0,1"


def test_the_environment_is_that_of_the_local_backend() -> None:
    """Every rank of a gang over two nodes: what a pod makes of its annotations, and what `launch` makes of the plan."""
    site = simulate(1, 2)
    placed = place(Request(8, segment_gpus=8), site, Occupancy())
    assert isinstance(placed, Placement)
    gang = Gang("j", 2, 5, "r01-t01", 23000, None, "/topology")
    spec = {"run": "x", "env": {}, "checkpoint": None}
    local = build(spec, placed, gang, "/", Path("/f"))
    for index, node in enumerate(placed.nodes()):
        seats = ",".join(f"{seat.rank}:{seat.gpu}:{seat.nic}" for seat in placed.seats if seat.node == node)
        told = {"RACKYARD_POD_SEATS": seats, "RACKYARD_POD_COUNT": "2", "RACKYARD_POD_RANK": str(index)}
        told["RACKYARD_POD_RAILS"] = ",".join(str(seat.rail) for seat in placed.seats if seat.node == node)
        plan = read({**TOLD, **told, "RACKYARD_POD_SEGMENT": "0", "RACKYARD_NODE": node}).plan("x", (), "/", Path("/f"))
        for rank in plan["ranks"]:
            theirs = dict(local.ranks[rank["rank"]].env)
            del theirs["NCCL_TOPO_FILE"]  # in a pod, NCCL looks at the machine itself
            assert rank["env"] == theirs


def test_what_a_pod_says_is_read_back() -> None:
    lines = [
        "resumed from step 4",
        step_line(5, {"loss": 0.1 + 0.2, "lr": 1e-5}),
        str(line_of("CheckpointDone", {"step": 5, "path": "/a b/c"})),
        "rank 3 ended with exit code 1; ending the others",
    ]
    found = progress(lines)
    assert (found.step, found.resumed, found.checkpoint, found.path) == (5, 4, 5, "/a b/c")
    assert found.metrics == {"loss": 0.1 + 0.2, "lr": 1e-5}
    assert progress(["resumed from step 9"]).step == 9 and progress([]).step == 0
    assert progress(["step 3 loss=what"]).metrics == {}


def test_a_log_that_grows_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line is printed once, though the file is cut below our feet."""
    (tmp_path / "many.py").write_text(
        "import time\nfor n in range(400):\n    print(n, 'x' * 50)\n    time.sleep(0.005)\n"
    )
    env = {**os.environ, **TOLD, "RACKYARD_POD_SEATS": "0:0:a", "RACKYARD_POD_COUNT": "1", "RACKYARD_POD_RANK": "0"}
    code = (
        "import sys; from rackyard.backends.kubernetes import podmain; podmain._LONGEST_LOG = 4000;"
        f"sys.exit(podmain.main(['--', '{sys.executable} {tmp_path / 'many.py'}']))"
    )
    made = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    numbers = [int(found) for found in re.findall(r"^\[0\] (\d+) x", made.stdout, re.M)]
    assert made.returncode == 0 and numbers == sorted(set(numbers)) and len(numbers) > 390
