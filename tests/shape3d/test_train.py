"""The trainer: same data for the same step, and a resumed run that equals an uninterrupted one bit for bit."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rackyard.checkpoint import Checkpointer
from rackyard.errors import UsageError
from rackyard.shape3d import train
from rackyard.shape3d.config import named
from rackyard.shape3d.data import LatentSet, batch_at, rows_at
from rackyard.shape3d.stored import fresh
from rackyard.shape3d.trainstate import TrainState

_GENERATOR = torch.Generator().manual_seed(0)
SOURCE = LatentSet(torch.randn(7, 32, 8, generator=_GENERATOR), torch.randn(7, 16, 32, generator=_GENERATOR))
# Three ranks for DDP: with two, a sum has only one order and proves nothing.
RANKS = {"ddp": 3, "fsdp2": 2}


def command(data: Path, checkpoint: Path, steps: int, mode: str) -> list[str]:
    return [
        *("--config", "micro", "--data", str(data), "--steps", str(steps), "--parallel", mode),
        *("--checkpoint", str(checkpoint), "--every", "4", "--batch", "2", "--seed", "5"),
    ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# One warm parent that forks the ranks of one run after the other, as the local backend does: torch is imported once.
LAUNCH = """
import contextlib, json, os, sys, rackyard.shape3d.train as train
for world, port, log, arguments in json.loads(sys.argv[1]):
    pids = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_PORT=str(port))
            with open(log if rank == 0 else os.devnull, "w") as out, contextlib.redirect_stdout(out):
                code = train.main(arguments)
            os._exit(code)
        pids.append(pid)
    worst = max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
    if worst:
        sys.exit(worst)
"""


def launch(runs: list[tuple[int, Path, list[str]]]) -> list[str]:
    """Run each (ranks, log, arguments) after the other; returns what rank 0 printed in each."""
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    plan = [(world, free_port(), str(log), arguments) for world, log, arguments in runs]
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, json.dumps(plan)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "find_unused_parameters" not in done.stderr
    return [log.read_text() for _, log, _ in runs]


def final_hex(output: str) -> str:
    (found,) = re.findall(r"^final loss=\S+ hex=(\S+)$", output, re.MULTILINE)
    return str(found)


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    """Model, average and moments of the newest checkpoint, read by one process."""
    state = TrainState(fresh(named("micro")).dit, rate=1e-3)
    checkpointer = Checkpointer(folder, read_only=True)
    found = checkpointer.latest()
    assert found is not None
    tensors = state.tensors()
    checkpointer.load(found, tensors)
    return {f"{part}.{name}": value for part, values in tensors.items() for name, value in values.items()}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory, sample_meshes: Path) -> dict[str, tuple[Path, list[str]]]:
    """For each mode: its folder, and what an uninterrupted run, its first half and the resumed half printed."""
    folders = {mode: tmp_path_factory.mktemp(mode) for mode in ("ddp", "fsdp2")}
    runs = [
        (RANKS[mode], folder / f"{name}-{steps}.log", command(sample_meshes, folder / name, steps, mode))
        for mode, folder in folders.items()
        for name, steps in (("whole", 8), ("parts", 4), ("parts", 8))
    ]
    printed = launch(runs)
    return {mode: (folder, printed[3 * i : 3 * i + 3]) for i, (mode, folder) in enumerate(folders.items())}


@pytest.mark.parametrize("mode", ["ddp", "fsdp2"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    outputs: dict[str, tuple[Path, list[str]]], mode: str
) -> None:
    folder, (straight, _, resumed) = outputs[mode]
    assert "resumed at step=4" in resumed
    assert re.findall(r"^step=(\d+) ", resumed, re.MULTILINE) == ["5", "6", "7", "8"]
    assert final_hex(straight) == final_hex(resumed)
    one, two = weights_in(folder / "whole"), weights_in(folder / "parts")
    assert one.keys() == two.keys()
    assert [name for name in one if not torch.equal(one[name], two[name])] == []


def test_one_process_reads_whole_tensors_of_a_sharded_run(outputs: dict[str, tuple[Path, list[str]]]) -> None:
    average = {k[4:]: v for k, v in weights_in(outputs["fsdp2"][0] / "whole").items() if k.startswith("ema.")}
    start = dict(fresh(named("micro"), seed=5).dit.named_parameters())  # what --seed 5 begins from
    assert average.keys() == start.keys()
    moved = [float((average[name] - start[name].detach()).abs().max()) for name in start]
    assert 0 < max(moved) < 0.1
    assert np.mean([value > 0 for value in moved]) > 0.9


def test_alone_and_without_torchrun(tmp_path: Path, sample_meshes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(command(sample_meshes, tmp_path, 3, "ddp")) == 0
    first = capsys.readouterr().out
    assert re.findall(r"step=(\d+) loss=[\d.]+", first) == ["1", "2", "3"]
    # Asked again with nothing left to do: the same answer, from the checkpoint.
    assert train.main(command(sample_meshes, tmp_path, 3, "ddp")) == 0
    assert final_hex(capsys.readouterr().out) == final_hex(first)


def test_training_on_a_few_shapes_lowers_the_loss() -> None:
    models = fresh(named("micro"))
    state = TrainState(models.dit.train(), rate=3e-3)
    args = train.parse(["--data", ".", "--steps", "60", "--checkpoint", ".", "--batch", "8", "--rate", "3e-3"])
    ranks = train.Ranks(0, 1, torch.device("cpu"))
    losses = [train.train_step(models.dit, state, SOURCE, args, ranks) for _ in range(60)]
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])
    assert state.step == 60
    assert state.consumed == 480


@given(size=st.integers(1, 40), seed=st.integers(0, 99), position=st.integers(0, 300), count=st.integers(1, 16))
def test_rows_are_a_function_of_position(size: int, seed: int, position: int, count: int) -> None:
    together = rows_at(size, seed, position, count)
    one_by_one = [int(rows_at(size, seed, position + i, 1)[0]) for i in range(count)]
    assert together.tolist() == one_by_one


@given(size=st.integers(1, 30), epoch=st.integers(0, 20))
def test_every_epoch_sees_every_shape_once(size: int, epoch: int) -> None:
    assert sorted(rows_at(size, 3, epoch * size, size).tolist()) == list(range(size))


def test_batches_repeat_and_differ_between_ranks_and_steps() -> None:
    def noise(position: int, rank: int, seed: int = 1) -> torch.Tensor:
        return batch_at(SOURCE, seed=seed, position=position, rank=rank, count=4).noise

    assert torch.equal(noise(0, 0), noise(0, 0))
    assert not torch.equal(noise(0, 0), noise(0, 1))
    assert not torch.equal(noise(0, 0), noise(8, 0))
    assert not torch.equal(noise(0, 0), noise(0, 0, seed=2))
    drawn = batch_at(SOURCE, seed=1, position=0, rank=0, count=4096)
    assert float(drawn.noise.std()) == pytest.approx(1, abs=0.01)
    dropped = (drawn.condition.abs().sum((1, 2)) == 0).float().mean()
    assert float(dropped) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("flags", [["--steps", "0"], ["--every", "0"], ["--batch", "-1"], ["--seed", "-1"]])
def test_impossible_flags_are_usage_errors(flags: list[str]) -> None:
    with pytest.raises(UsageError):
        train.parse(["--data", ".", "--steps", "1", "--checkpoint", ".", *flags])


def test_errors_are_messages_not_tracebacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = train.main(["--data", str(tmp_path), "--steps", "1", "--checkpoint", str(tmp_path / "c")])
    assert code == 1
    assert "no mesh files" in capsys.readouterr().err
    code = train.main(["--data", str(tmp_path), "--steps", "0", "--checkpoint", str(tmp_path / "c")])
    assert code == 2
