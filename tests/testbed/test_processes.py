"""Only the very processes that were started are ended."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackyard.backends.local.procs import Identity, alive, identify
from rackyard.errors import RackyardError
from testbed import processes
from testbed.processes import Running

SLEEP = ("/bin/sleep", "600")


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Identity]:
    who = processes.start(SLEEP, tmp_path, tmp_path / "log", {processes.MARK: "m-1"})
    yield who
    processes.stop([who], grace=0)


def test_a_program_runs_in_its_folder_with_its_log_and_a_session_of_its_own(tmp_path: Path) -> None:
    who = processes.start(("/bin/sh", "-c", "pwd; echo $X >&2; umask"), tmp_path, tmp_path / "log", {"X": "1"})
    assert os.getsid(who.pid) == who.pid
    assert processes.ended(who, 10)
    assert (tmp_path / "log").read_text().split() == [str(tmp_path), "1", "0077"]
    processes.reap(who)


def test_what_cannot_be_started_is_told(tmp_path: Path) -> None:
    with pytest.raises(RackyardError, match="can't be started"):
        processes.start((str(tmp_path / "nothing"),), tmp_path, tmp_path / "log", {})


def test_a_pid_file_is_read_back_and_damaged_ones_are_left_out(tmp_path: Path, sleeper: Identity) -> None:
    processes.note(tmp_path, Running("a", sleeper))
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.json").write_text('{"pid": 1, "start": 1, "boot": "x"}')
    (tmp_path / "d.json").write_text('{"pid": "12"}')
    assert processes.noted(tmp_path) == (Running("a", sleeper),)


def test_a_used_again_pid_is_not_killed(sleeper: Identity) -> None:
    earlier = Identity(sleeper.pid, sleeper.start - 1, sleeper.boot)
    rebooted = Identity(sleeper.pid, sleeper.start, "another boot")
    for other in (earlier, rebooted):
        processes.stop([other])
        processes.stop([other], grace=0)
        assert alive(sleeper)
        assert processes.ended(other, 0)
    processes.stop([sleeper])
    assert not alive(sleeper)


def test_stop_asks_first_and_then_does_not(tmp_path: Path) -> None:
    trap = "trap 'echo asked; trap : TERM' TERM; echo ready; while :; do sleep 0.05; done"
    who = processes.start(("/bin/sh", "-c", trap), tmp_path, tmp_path / "log", {})
    while "ready" not in (tmp_path / "log").read_text():
        time.sleep(0.01)
    processes.stop([who], grace=0.5)
    assert not alive(who)
    assert "asked" in (tmp_path / "log").read_text()


def test_ended_children_leave_no_zombie(sleeper: Identity) -> None:
    processes.stop([sleeper])
    assert identify(sleeper.pid) != sleeper


def test_the_mark_finds_a_process_whose_pid_file_is_missing(sleeper: Identity, tmp_path: Path) -> None:
    with subprocess.Popen(SLEEP, env={processes.MARK: "m-10"}) as other:
        try:
            assert processes.marked("m-1") == (sleeper,)
            assert processes.marked("m") == ()
        finally:
            other.kill()


def test_resident_memory_is_known_while_it_runs(sleeper: Identity) -> None:
    assert processes.resident(sleeper) > 100_000
    processes.stop([sleeper])
    assert processes.resident(sleeper) == 0
