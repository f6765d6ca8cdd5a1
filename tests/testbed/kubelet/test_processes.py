"""Real processes: started, found again, ended, and nothing of them left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rackyard.backends.local import procs
from testbed.api import until
from testbed.kubelet import processes
from testbed.kubelet.lifecycle import Exit
from testbed.kubelet.processes import Processes, below

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def part(tmp_path: Path) -> Iterator[Processes]:
    """A container without any process yet; what it has in the end is ended."""
    found = Processes(tmp_path / "uid" / "main")
    yield found
    found.wipe()
    processes.reap()


def ended(part: Processes) -> Exit:
    found = until("the process ends", lambda: part.ran().exit)
    assert isinstance(found, Exit)
    return found


def log(part: Processes, run: int = 0) -> str:
    path = part.folder / str(run) / "log"
    return path.read_text() if path.exists() else ""


def says(part: Processes, word: str) -> list[str]:
    until(f"it says {word}", lambda: word in log(part))
    return log(part).split()


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 0", 0, 0), ("exit 42", 42, 0), ("kill -ABRT $$", 134, 6), ("kill -9 $$", 137, 9)],
)
def test_ends_are_told_as_a_shell_would(part: Processes, script: str, code: int, number: int) -> None:
    part.start(("sh", "-c", script), ENV, "/")
    assert part.ran().runs[0].started == pytest.approx(time.time(), abs=60)
    found = ended(part)
    assert (found.code, found.signal, found.reason) == (code, number, "")


def test_environment_folder_and_log(part: Processes, tmp_path: Path) -> None:
    part.start(("sh", "-c", "echo $WORD; pwd; echo no >&2; env | wc -l"), ENV | {"WORD": "a b"}, str(tmp_path))
    ended(part)
    assert log(part).splitlines()[:3] == ["a b", str(tmp_path), "no"]
    assert (part.folder / "0" / "run.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("argv", "cwd"), [(("/no/such/program",), "/"), (("true",), "/no/such/folder")])
def test_what_can_not_be_started(part: Processes, argv: tuple[str, ...], cwd: str) -> None:
    part.start(argv, ENV, cwd)
    found = ended(part)
    assert (found.code, found.reason) == (128, "StartError") and "/no/such" in found.message


def test_runs_are_counted_and_kept(part: Processes) -> None:
    for code in (1, 2):
        part.start(("sh", "-c", f"echo run; exit {code}"), ENV, "/")
        ended(part)
    part.fail("NoCommand", "none")
    assert [run.exit.code for run in part.ran().runs if run.exit] == [1, 2, 128]
    assert log(part, 1) == "run\n"


def test_sigterm_goes_to_the_process_and_it_may_take_its_time(part: Processes) -> None:
    part.start(("sh", "-c", "trap 'echo asked; exit 7' TERM; echo up; while :; do sleep 0.05; done"), ENV, "/")
    says(part, "up")
    assert not part.ran().asked
    part.terminate()
    assert part.ran().asked or not part.ran().running
    assert ended(part).code == 7 and "asked" in log(part)


STRAYS = """
import os, subprocess, sys, time
for new in (False, True):
    child = subprocess.Popen(["sleep", "1000"], start_new_session=new)
    print("child", child.pid, flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:  # an orphan in a session of its own
        print("child", os.getpid(), flush=True)
        time.sleep(1000)
    os._exit(0)
print("ready", flush=True)
time.sleep(float(sys.argv[1]))
"""


def strays(part: Processes, seconds: str) -> list[procs.Identity]:
    part.start((sys.executable, "-c", STRAYS, seconds), ENV, "/")
    until("all have started", lambda: log(part).count("child") == 3 and "ready" in log(part))
    words = log(part).split()
    pids = [int(words[at + 1]) for at, word in enumerate(words) if word == "child"]
    found = [who for pid in pids if (who := procs.identify(pid)) is not None]
    assert len(found) == 3
    return found


def test_the_end_of_the_first_process_ends_all_it_has_started(part: Processes) -> None:
    left = strays(part, "0.2")
    assert ended(part).code == 0
    assert not any(map(procs.alive, left))


def test_kill_ends_all_and_is_written_down(part: Processes) -> None:
    left = strays(part, "1000")
    part.kill()
    found = ended(part)
    assert (found.code, found.signal) == (137, 9)
    assert not any(map(procs.alive, left))


def test_a_loss_of_power_leaves_nothing_and_writes_nothing(part: Processes) -> None:
    left = strays(part, "1000")
    part.lost = ("NodeLost", "[simulated]")
    part.wipe()
    assert not any(map(procs.alive, left))
    assert not (part.folder / "0" / "exit.json").exists()
    found = ended(part)
    assert (found.code, found.reason) == (137, "NodeLost")
    assert Processes(part.folder).ran().exit == found  # told once, and the same ever after


def test_a_loss_of_power_right_at_the_start(part: Processes) -> None:
    part.start(("sh", "-c", "echo up; sleep 1000"), ENV, "/")
    part.wipe()
    assert ended(part).reason == "ContainerStatusUnknown"


def test_another_kubelet_finds_the_process_and_its_end(part: Processes) -> None:
    part.start(("sh", "-c", "sleep 0.5; exit 9"), ENV, "/")
    until("its shim says who it is", lambda: (part.folder / "0" / "shim.json").exists())
    assert Processes(part.folder).ran().running
    assert ended(Processes(part.folder)).code == 9


def test_an_order_whose_start_never_came_is_carried_out(part: Processes) -> None:
    folder = part.folder / "0"
    folder.mkdir(parents=True)
    processes.write(folder / "run.json", {"argv": ["sh", "-c", "exit 5"], "env": ENV, "cwd": "/", "at": time.time()})
    assert part.ran().running
    assert ended(part).code == 5


def test_two_shims_for_one_order_run_it_once(part: Processes) -> None:
    part.start(("sh", "-c", "echo once; sleep 0.5"), ENV, "/")
    command = [sys.executable, "-I", "-S", processes.shim.__file__, str(part.folder / "0")]
    assert subprocess.run(command, check=False).returncode == 0
    assert ended(part).code == 0
    assert log(part) == "once\n"


def test_a_process_that_is_not_ours_is_not_touched(part: Processes) -> None:
    """Our own pid with another start time: a number that was used again."""
    folder = part.folder / "0"
    folder.mkdir(parents=True)
    processes.write(folder / "run.json", {"argv": [], "env": {}, "cwd": "/", "at": time.time()})
    who = procs.identify(os.getpid())
    assert who is not None
    processes.write(folder / "shim.json", who._replace(start=who.start - 1)._asdict())
    handled = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("hit"))
    try:
        part.terminate()
        part.kill()
        part.wipe()
    finally:
        signal.signal(signal.SIGTERM, handled)
    assert below(who._replace(start=who.start - 1)) == set()
    assert ended(part).reason == "ContainerStatusUnknown"


def test_a_shim_that_somebody_killed(part: Processes) -> None:
    left = strays(part, "1000")
    shim = msgspec.json.decode((part.folder / "0" / "shim.json").read_bytes())
    os.kill(shim["pid"], signal.SIGKILL)
    assert ended(part).reason == "ContainerStatusUnknown"
    part.wipe()
    alive = [who for who in left if procs.alive(who)]
    procs.end(alive, 5)  # with the shim gone, only those of its session can be told from others
    assert len(alive) <= 2
