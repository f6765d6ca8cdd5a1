"""The processes of a container on disk and in the machine: one folder for each, `<pod uid>/<container>/<number>`.

What is running is read from there and from /proc, so that a kubelet that was killed finds its processes again. A
process is signalled only while its pid and start time are those that its shim wrote down, or while it descends from
one such.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rackyard.backends.local import procs
from rackyard.backends.local.procs import Identity
from testbed.kubelet import shim
from testbed.kubelet.lifecycle import Exit, Ran, Run

LOG = "log"
_START_WITHIN = 10.0
"""Seconds that a shim may take to say who it is; on a machine full of starting processes Python is slow."""
_KILL_WITHIN = 5.0

_shims: dict[Path, "subprocess.Popen[bytes]"] = {}
"""Children of this very process, kept until they are reaped."""


class _Order(msgspec.Struct, frozen=True):
    at: float


class _Shim(msgspec.Struct, frozen=True):
    pid: int
    start: int
    boot: str


@dataclass(slots=True)
class Processes:
    """All processes of one container. `lost` is the exit given to one that ended without anyone writing down how."""

    folder: Path
    lost: tuple[str, str] = ("ContainerStatusUnknown", "the process ended, and nobody saw how")
    _ended: dict[int, Run] = field(default_factory=dict)
    _asked: int = -1
    _running: int = -1

    def ran(self) -> Ran:
        """What there is and was, as it is now."""
        runs: list[Run] = []
        while (self.folder / str(len(runs)) / "run.json").exists():
            runs.append(self._run(len(runs)))
        ran = Ran(tuple(runs), asked=self._asked == len(runs) - 1)
        self._running = len(runs) - 1 if ran.running else -1
        return ran

    def has_ended(self) -> bool:
        """Whether one that ran at the last look has ended since: a cheap look, and no more than that."""
        return self._running >= 0 and (self.folder / str(self._running) / "exit.json").exists()

    def start(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: str) -> None:
        """Start the next one. OSError when not even its folder can be made."""
        folder = self.folder / str(len(self.ran().runs))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write(folder / "run.json", {"argv": argv, "env": dict(env), "cwd": cwd, "at": time.time()})
        (folder / LOG).touch(mode=0o600)
        _spawn(folder)

    def fail(self, reason: str, message: str) -> None:
        """Put on record a start that could not even be tried."""
        folder = self.folder / str(len(self.ran().runs))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        now = time.time()
        write(folder / "exit.json", msgspec.to_builtins(Exit(128, now, 0, reason, message)))
        write(folder / "run.json", {"at": now})

    def terminate(self) -> None:
        """SIGTERM to the process itself, as a container's first process gets it."""
        number, who = self._newest()
        if who is None:
            return
        self._asked = number
        _signal(who, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to all of it; the shim stays, and writes down the end."""
        _, who = self._newest()
        if who is not None:
            procs.end(below(who) - {who}, _KILL_WITHIN)

    def wipe(self) -> None:
        """SIGKILL to all of it at once, the shim first stopped and then ended: a loss of power writes nothing down."""
        _, who = self._newest(wait=_START_WITHIN)
        if who is None:
            return
        _signal(who, signal.SIGSTOP)
        for _ in range(3):  # what forks meanwhile is found by the next look
            if not (found := below(who) - {who}):
                break
            procs.end(found, _KILL_WITHIN)
        procs.end([who], _KILL_WITHIN)

    def _newest(self, wait: float = 0.0) -> tuple[int, Identity | None]:
        """The last one's number and shim. `wait`: seconds for one that is just being started to say who it is; it does
        so before it starts the process.
        """
        ran = self.ran()
        number, deadline = len(ran.runs) - 1, time.monotonic() + wait
        while (who := _who(self.folder / str(number))) is None and ran.running and time.monotonic() < deadline:
            time.sleep(0.005)
            ran = self.ran()
        return number, who

    def _run(self, number: int) -> Run:
        if number in self._ended:
            return self._ended[number]
        folder = self.folder / str(number)
        started = _read(folder / "run.json", _Order).at
        # Is it alive first, and only then its record: it writes before it goes.
        alive = _alive(folder, started)
        end = _read(folder / "exit.json", Exit) if (folder / "exit.json").exists() else None
        if end is None and not alive:
            end = Exit(137, time.time(), 9, *self.lost)
            write(folder / "exit.json", msgspec.to_builtins(end))
        if end is not None:
            self._ended[number] = Run(started, end)
        return Run(started, end)


def below(who: Identity) -> set[Identity]:
    """The running processes that descend from this one or are of its session, itself included where it runs."""
    found = set(procs.session_of(who))
    if procs.alive(who):
        table = {pid: one for pid in _pids() if (one := _parent(pid)) is not None}
        members = {who.pid}
        grown = True
        while grown:
            more = {pid for pid, (parent, _) in table.items() if parent in members} - members
            members |= more
            grown = bool(more)
        found |= {Identity(pid, table[pid][1], who.boot) for pid in members if pid in table}
    return {one for one in found if procs.alive(one)}


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a record whole or not at all, for the owner's eyes: environments hold secrets."""
    new = path.with_name(f"{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(content))
    new.replace(path)


def reap() -> None:
    """Take leave of shims that have ended."""
    for folder, process in list(_shims.items()):
        if process.poll() is not None and (folder / "shim.json").exists():
            del _shims[folder]


def _spawn(folder: Path) -> None:
    with open(folder / "shim.log", "ab") as log:
        argv = [sys.executable, "-I", "-S", os.path.abspath(shim.__file__), os.fspath(folder)]
        _shims[folder] = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={}, start_new_session=True
        )


def _alive(folder: Path, started: float) -> bool:
    who = _who(folder)
    if who is not None:
        return procs.alive(who)
    if (process := _shims.get(folder)) is not None:
        return process.poll() is None
    if time.time() - started < _START_WITHIN and not (folder / "exit.json").exists():
        _spawn(folder)  # the kubelet died between its order and the start; should a shim be there, this one leaves
        return True
    return False


def _signal(who: Identity, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(who.pid)
        try:
            if procs.alive(who):  # checked after it was opened: what is checked is what is signalled
                signal.pidfd_send_signal(pidfd, number)
        finally:
            os.close(pidfd)


def _who(folder: Path) -> Identity | None:
    path = folder / "shim.json"
    if not path.exists():
        return None
    found = _read(path, _Shim)
    return Identity(found.pid, found.start, found.boot)


def _read(path: Path, kind: type[Any]) -> Any:
    return msgspec.json.decode(path.read_bytes(), type=kind)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> tuple[int, int] | None:
    """Parent and start time of a process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[1]), int(fields[19])
