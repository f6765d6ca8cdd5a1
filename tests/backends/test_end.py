"""Ending ranks: by themselves, by request, and with their stacks."""

import os
import signal
import sys
import time

import pytest
from localsite import LocalSite

from rackyard.faults.observations import RankExited, RankStarted, StacksCaptured, StepDone

STUBBORN = """
    import os, signal, subprocess, sys, threading, time
    import rackyard
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "600"])
    def busy():
        time.sleep(600)
    threading.Thread(target=busy, daemon=True).start()
    rackyard.report_step(1, child=child.pid)
    def stuck_here():
        time.sleep(600)
    stuck_here()
"""
MODES = pytest.mark.parametrize("warm", [(), ("json",)], ids=["fresh", "forked"])


def _gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@MODES
def test_a_script_that_ignores_sigterm_is_killed_after_grace_with_its_children(
    site: LocalSite, warm: tuple[str, ...]
) -> None:
    site.script(STUBBORN)
    plan = site.plan(f"{sys.executable} train.py", nodes=("n0", "n1"), warm=warm)
    site.backend.launch(plan)
    children = [int(step.metrics["child"]) for step in site.wait(StepDone, 2)]
    began = time.monotonic()
    site.backend.stop("job", 1, grace=0.4)
    assert time.monotonic() - began < 0.3
    exits = site.wait(RankExited, 2)
    assert [exited.signal for exited in exits] == [signal.SIGKILL] * 2
    assert 0.3 < exits[0].mono - began < 2
    assert all(_gone(child) for child in children)


def test_sigterm_reaches_a_script_that_handles_it(site: LocalSite) -> None:
    site.script("""
        import signal, sys, time, rackyard
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        rackyard.report_step(1)
        time.sleep(600)
    """)
    plan = site.plan(f"{sys.executable} train.py")
    site.backend.launch(plan)
    site.wait(StepDone)
    site.backend.ask("n0", "kill", job="job", attempt=1, rank=0, signal=int(signal.SIGSTOP))
    site.backend.stop("job", 1, grace=10)
    assert site.wait(RankExited)[0].code == 5


@MODES
def test_stacks_of_a_stopped_rank_are_captured(site: LocalSite, warm: tuple[str, ...]) -> None:
    site.script(STUBBORN)
    plan = site.plan(f"{sys.executable} train.py", warm=warm)
    site.backend.launch(plan)
    site.wait(StepDone)
    time.sleep(0.3)  # until it is stuck
    site.backend.ask("n0", "kill", job="job", attempt=1, rank=0, signal=int(signal.SIGSTOP))
    site.backend.stop("job", 1, grace=10, stacks=True)
    (exited,) = site.wait(RankExited)
    (stacks,) = site.wait(StacksCaptured)
    assert exited.signal == signal.SIGABRT
    assert "in stuck_here" in stacks.text
    assert "in busy" in stacks.text


def test_a_rank_that_can_not_write_stacks_is_killed_all_the_same(site: LocalSite) -> None:
    plan = site.plan("trap '' ABRT; echo step 1; while true; do sleep 1; done")
    site.backend.launch(plan)
    site.wait(StepDone)
    site.backend.stop("job", 1, grace=10, stacks=True)
    assert site.wait(RankExited)[0].signal == signal.SIGKILL
    assert site.wait(StacksCaptured)[0].rank == 0


def test_ranks_that_wait_for_the_warm_parent_are_dropped(site: LocalSite) -> None:
    site.script("import time; time.sleep(1)", "slow_import.py")
    site.script("print('ran')")
    plan = site.plan(f"{sys.executable} train.py", nodes=("n0",) * 2, warm=("slow_import",))
    site.backend.launch(plan)
    site.backend.stop("job", 1, grace=1)
    for exited in site.wait(RankExited, 2):
        assert exited.signal == signal.SIGTERM
        assert "before it was started" in exited.tail
    # Nor does a launch that comes late start them.
    site.backend.launch(plan)
    site.exits(site.plan(f"{sys.executable} train.py", attempt=2, warm=("slow_import",)))
    assert not site.all(RankStarted, attempt=1)


def test_the_tail_of_the_log_comes_with_the_exit(site: LocalSite) -> None:
    site.script("for i in range(100): print('line', i, 'x' * 30)")
    (exited,) = site.exits(site.plan(f"{sys.executable} train.py"))
    lines = exited.tail.splitlines()
    assert len(lines) == 20
    assert lines[-1].startswith("line 99 ")


def test_leftovers_and_orphans_of_a_rank_end_and_are_reaped(site: LocalSite) -> None:
    site.script("""
        import subprocess, rackyard
        child = subprocess.Popen(["sleep", "600"])
        orphan = subprocess.Popen(["sh", "-c", "setsid sleep 0.2 &"])
        orphan.wait()
        rackyard.report_step(1, child=child.pid)
    """)
    plan = site.plan(f"{sys.executable} train.py")
    site.exits(plan)
    assert _gone(int(site.wait(StepDone)[0].metrics["child"]))
