"""What ranks report, and what their logs tell when they don't."""

import sys
from pathlib import Path

import pytest
from localsite import LocalSite

from rackyard.backends.local.reports import LogTail, read_report
from rackyard.faults.observations import CheckpointDamaged, CheckpointDone, RankExited, RankStarted, Resumed, StepDone


def test_everything_a_worker_says_is_observed(site: LocalSite) -> None:
    site.script("""
        import os
        from rackyard import worker
        worker.report_damage("/ckpt/9", "torn")
        worker.report_resumed(4, 0.5)
        print("step 3 loss 9")
        worker.report_step(5, loss=0.25)
        worker.report_checkpoint(5, "/ckpt/5", seconds=1.5)
    """)
    site.exits(site.plan(f"{sys.executable} train.py", nodes=("n0", "n1"), attempt=3))
    kinds = [type(seen) for seen in site.seen if getattr(seen, "rank", 0) == 0]
    assert kinds.index(RankStarted) < kinds.index(Resumed) < kinds.index(StepDone) < kinds.index(RankExited)
    steps = site.all(StepDone, step=5)
    assert {(step.job, step.attempt, step.rank, step.metrics["loss"]) for step in steps} == {
        ("job", 3, 0, 0.25),
        ("job", 3, 1, 0.25),
    }
    assert [(r.step, r.seconds) for r in site.all(Resumed)] == [(4, 0.5)] * 2
    assert site.all(CheckpointDone)[0].path == "/ckpt/5"
    assert site.all(CheckpointDamaged)[0].why == "torn"


def test_steps_are_read_from_the_log_of_a_silent_rank(site: LocalSite) -> None:
    site.script("""
        import time
        for step in range(1, 4):
            print(f"[epoch 0] step: {step}  loss={2 / step:.3f}")
            time.sleep(0.4)
        print("step=4", end="")
    """)
    site.backend.launch(site.plan(f"{sys.executable} train.py"))
    site.wait(StepDone, 2)
    assert not site.all(RankExited)
    site.wait(RankExited)
    assert [(step.step, dict(step.metrics)) for step in site.all(StepDone)] == [
        (1, {"loss": 2.0}),
        (2, {"loss": 1.0}),
        (3, {"loss": 0.667}),
        (4, {}),
    ]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (b"step 7\n", [(7, {})]),
        (b"Step: 7, Loss: 1e-3\n", [(7, {"loss": 1e-3})]),
        (b"global_step=8 train_loss=nan loss=--\n", [(8, {})]),
        (b" iteration       10/     500 | lm loss: 1.5E+00 |\n", [(10, {"loss": 1.5})]),
        (b"a\rstep 1\rstep 1\rstep 2\r", [(1, {}), (2, {})]),
        (b"timestep 3\nsteps: 4\nfootstep=2\nstep 5", [(5, {})]),
        (b"step 6" * 0 + b"x" * 100_000 + b"\nstep 9\n", [(9, {})]),
        (b"\xff\xfe step 1\n", [(1, {})]),
    ],
)
def test_log_lines(tmp_path: Path, text: bytes, steps: list[tuple[int, dict[str, float]]]) -> None:
    log = tmp_path / "log"
    tail = LogTail(log, 0)
    assert list(tail.poll()) == []
    log.write_bytes(text)
    assert list(tail.poll(final=True)) == steps
    assert list(tail.poll(final=True)) == []


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"1", b"\xff", b'{"kind":"step","job":"j","attempt":"x"}'])
def test_what_is_not_a_report_is_refused(data: bytes) -> None:
    assert read_report(data) is None
