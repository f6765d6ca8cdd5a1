"""Starts programs that outlive this process, and ends those and no others.

A program is ended only if it is the very process that was started (pid, start time and boot), or carries the mark of
its cluster in its environment: that finds those whose pid could not be written down any more.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rackyard.backends.local.procs import Identity, alive, identify
from rackyard.errors import RackyardError

MARK = "RACKYARD_TESTBED"
"""The environment variable that names the cluster a process belongs to."""

GRACE = 3.0
"""Seconds a program has to end by itself after SIGTERM."""

_KILLED = 10.0
"""Seconds after SIGKILL until we say that a process did not go; the kernel needs milliseconds."""


@dataclass(frozen=True, slots=True)
class Running:
    """A program that was started, by the name it has in its cluster."""

    name: str
    who: Identity


class _Detached(subprocess.Popen[bytes]):
    """A child that outlives us: nobody waits for it here, and that is no mistake to warn of."""

    def __del__(self) -> None:
        pass


def start(argv: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]) -> Identity:
    """Start a program in `folder`, in a session of its own, its output appended to `log`. RackyardError when it can't
    be. What it creates is its owner's only.
    """
    try:
        with log.open("ab") as output:
            process = _Detached(
                argv,
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                umask=0o077,
            )
    except OSError as error:
        raise RackyardError("a program of the test bed can't be started", where=argv[0], why=str(error)) from None
    who = identify(process.pid)
    assert who is not None  # it is our child, and stays in the process table until we reap it
    return who


def note(pids: Path, running: Running) -> None:
    """Write a program's identity into its pid file, whole or not at all."""
    unfinished = pids / f".{running.name}"
    unfinished.write_bytes(msgspec.json.encode(running.who._asdict()))
    unfinished.rename(pids / f"{running.name}.json")


def noted(pids: Path) -> tuple[Running, ...]:
    """The programs with a pid file, running or not, by name. A file that is no pid file is left out."""
    found = []
    for file in sorted(pids.glob("*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError, TypeError):
            said = msgspec.json.decode(file.read_bytes(), type=dict[str, int | str])
            found.append(Running(file.stem, _identity(said)))
    return tuple(found)


def _identity(said: Mapping[str, int | str]) -> Identity:
    pid, began, boot = said.get("pid"), said.get("start"), said.get("boot")
    if not isinstance(pid, int) or not isinstance(began, int) or not isinstance(boot, str) or pid <= 1:
        raise TypeError("no identity of a process")
    return Identity(pid, began, boot)


def marked(mark: str) -> tuple[Identity, ...]:
    """The running processes, of this user, whose environment carries the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        who = identify(int(entry.name))
        try:
            if who and wanted in entry.joinpath("environ").read_bytes().split(b"\0") and alive(who):
                found.append(who)
        except OSError:  # it ended, or is somebody else's
            continue
    return tuple(found)


def stop(processes: Iterable[Identity], grace: float = GRACE) -> None:
    """SIGTERM, up to `grace` seconds, then SIGKILL, all of them together. RackyardError for one that stays."""
    with contextlib.ExitStack() as files:
        left = {pidfd: who for who in processes if (pidfd := _open(who, files)) is not None}
        ours = tuple(left.values())
        if grace > 0:
            _signal(left, signal.SIGTERM)
            left = _wait(left, grace)
        _signal(left, signal.SIGKILL)
        left = _wait(left, _KILLED)
        for who in ours:
            reap(who)
    if left:
        pids = ", ".join(str(who.pid) for who in left.values())
        raise RackyardError("processes did not end after SIGKILL", where=f"pid {pids}", fix="is a disk hanging?")


def _open(who: Identity, files: contextlib.ExitStack) -> int | None:
    """A pidfd of this very process; None when it is gone."""
    try:
        pidfd = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return None
    files.callback(os.close, pidfd)
    # Opened before the check, so that what is checked is what will be signalled. A zombie counts: it may be the first
    # thread only, while others still hold its sockets.
    return pidfd if identify(who.pid) == who else None


def _signal(processes: Iterable[int], number: signal.Signals) -> None:
    for pidfd in processes:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)


def _wait(processes: Mapping[int, Identity], timeout: float) -> dict[int, Identity]:
    """Those that have not ended, with all their threads, after `timeout` seconds."""
    left = dict(processes)
    deadline = time.monotonic() + timeout
    while left and (remaining := deadline - time.monotonic()) > 0:
        for pidfd in select.select(list(left), [], [], remaining)[0]:
            del left[pidfd]
    return left


def reap(who: Identity) -> None:
    """Take a child that ended out of the process table; for others' children, nothing."""
    if identify(who.pid) == who:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(who.pid, os.WNOHANG)


def ended(who: Identity, timeout: float) -> bool:
    """Whether the process is gone, waiting up to `timeout` seconds for that."""
    with contextlib.ExitStack() as files:
        pidfd = _open(who, files)
        return pidfd is None or not _wait({pidfd: who}, timeout)


def resident(who: Identity) -> int:
    """Resident memory in bytes, 0 when it is gone (proc(5), VmRSS)."""
    try:
        text = Path(f"/proc/{who.pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
