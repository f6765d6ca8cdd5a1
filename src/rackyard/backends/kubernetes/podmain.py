"""A pod of a gang, from the inside: one process for each of its seats, with torchrun's environment.

    python -m rackyard.backends.kubernetes.podmain [--warm torch,...] [--hang SECONDS] -- COMMAND

Where its ranks are stands in the environment, filled from the annotations of the gang's release. Ranks are started,
forked, watched and ended by what does it on the local backend. Its output is `[rank] line` for each line of a rank,
and `[rackyard] ...` for what happens; it ends with a code other than 0 as soon as any rank does, and ends the others.
"""

import ctypes
import math
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackyard.backends.kubernetes import podenv
from rackyard.backends.local import reports
from rackyard.backends.local.crew import Crew
from rackyard.backends.local.journal import Journal
from rackyard.backends.local.loop import Loop
from rackyard.backends.local.nursery import Nursery
from rackyard.backends.local.ranks import Rank, read_order
from rackyard.errors import RackyardError, UsageError

_TICK = 0.25
_GRACE = 25.0
"""Seconds for ranks to end after SIGTERM: less than the pod has (`launch.volcano.GRACE`)."""
_ECHO = 2.0
"""The same when a rank has failed: the others only wait for it, or fail of it, and may say so in their logs."""
_LONGEST_LOG = 64 << 20
"""Bytes of a rank's log that are kept once they are printed: the pod's own log has them, and its disk may be small."""
_PR_SET_CHILD_SUBREAPER = 36
_TERMINATED = 128 + signal.SIGTERM
HUNG = 3
"""Exit code of a pod whose ranks made no step for too long."""


class _Facts(Journal):
    """The journal of a node, whose lines are also told to the pod."""

    def __init__(self, path: Path, heard: Callable[[str, Mapping[str, Any]], None]) -> None:
        super().__init__(path)
        self._heard = heard

    def write(self, kind: str, *, age: float = 0.0, **fields: Any) -> None:
        super().write(kind, age=age, **fields)
        self._heard(kind, fields)


class Pod:
    """The ranks of this pod, from their start to their end."""

    def __init__(self, seats: podenv.Seats, asked: "Asked", folder: Path) -> None:
        self._seats, self._hang = seats, asked.hang
        self._loop = Loop()
        self._journal = _Facts(folder / "journal.jsonl", self._heard)
        self._crew = Crew(seats.node, self._journal, self._loop, ())
        self._crew.before_exit = self._read_reports
        self._nursery = Nursery(seats.node, folder, self._journal, self._loop, self._crew)
        self._reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reports.bind(os.fspath(folder / "report"))
        self._reports.setblocking(False)
        plan = seats.plan(asked.run, asked.warm, os.getcwd(), folder)
        self._order = read_order(plan, os.environ, os.fspath(folder / "report"))
        self._all: list[Rank] = []
        self._printed: dict[int, tuple[int, bytes]] = {}
        """How far each rank's log is printed, and the beginning of a line whose end is not there yet."""
        self._step, self._code = "", 0
        self._moved: float | None = None
        """When a rank of this pod last finished a step; None before the first one."""

    def run(self) -> int:
        """Until all ranks have ended; the code to exit with."""
        self._loop.add(self._reports.fileno(), self._read_reports)
        self._loop.on_signals((signal.SIGCHLD, signal.SIGTERM, signal.SIGINT), self._on_signal)
        parent = self._nursery.parent_for(self._order)
        for rank in self._order.ranks():
            self._crew.accept(rank)
            self._all.append(rank)
            if parent is None:
                self._crew.start(rank)
            else:
                parent.submit(rank)
        self._tick()
        self._loop.run()
        self._nursery.close()
        return self._code

    def _tick(self) -> None:
        self._read_reports()
        self._crew.read_logs()
        self._show(final=not self._crew.ranks)
        self._nursery.reap()
        self._look_for_hang()
        if self._crew.ranks:
            self._loop.later(_TICK, self._tick)
        else:
            self._loop.stop()

    def _look_for_hang(self) -> None:
        """End ranks that made steps and make none any more, with their stacks in their logs. A pod whose ranks never
        tell of steps is not judged: another one's may.
        """
        if self._moved is None or self._code or time.monotonic() - self._moved < self._hang:
            return
        _say(f"no step for {self._hang:g} s: ending all ranks, whose stacks are in their logs")
        self._code = HUNG
        self._crew.stop(self._seats.gang.job, self._seats.gang.attempt, _ECHO, stacks=True)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self._nursery.reap()
            return
        _say(f"{signal.Signals(number).name}: ending all ranks")
        self._code = self._code or _TERMINATED
        self._crew.stop_all(_GRACE)

    def _read_reports(self) -> None:
        while True:
            try:
                data = self._reports.recv(1 << 16)
            except BlockingIOError:
                return
            if (fact := reports.read_report(data)) is not None:
                if fact.kind == "StepDone":
                    self._crew.heard_step((fact.fields["job"], fact.fields["attempt"], fact.fields["rank"]))
                self._journal.write(fact.kind, age=fact.age, **fact.fields)

    def _heard(self, kind: str, fields: Mapping[str, Any]) -> None:
        if kind == "RankExited":
            self._exited(fields)
        elif kind == "StepDone":
            self._moved = time.monotonic()
            if fields["rank"] == 0:
                self._step = podenv.step_line(fields["step"], fields["metrics"])
        elif (line := podenv.line_of(kind, fields)) is not None:
            _say(line)

    def _exited(self, fields: Mapping[str, Any]) -> None:
        code, number = fields["code"], fields["signal"]
        if not code and not number:
            return
        if self._code == 0:
            how = f"exit code {code}" if number is None else f"signal {signal.Signals(number).name}"
            _say(f"rank {fields['rank']} ended with {how}; ending the others")
            self._code = code or 128 + int(number)
            self._loop.later(_ECHO, lambda: self._crew.stop_all(_ECHO))

    def _show(self, *, final: bool) -> None:
        """Print what the ranks have written since."""
        for rank in self._all:
            self._show_log(rank, final=final)
        if self._step:
            _say(self._step)
            self._step = ""
        sys.stdout.flush()

    def _show_log(self, rank: Rank, *, final: bool) -> None:
        offset, rest = self._printed.get(rank.rank, (0, b""))
        try:
            with rank.log.open("rb") as file:
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return
        *lines, new_rest = (rest + data).split(b"\n")
        if final and new_rest:
            lines, new_rest = [*lines, new_rest], b""
        for line in lines:
            sys.stdout.buffer.write(b"[%d] %s\n" % (rank.rank, line.rstrip(b"\r")))
        self._printed[rank.rank] = offset + len(data), new_rest
        if offset + len(data) > _LONGEST_LOG and not final:
            self._shorten(rank)

    def _shorten(self, rank: Rank) -> None:
        """Begin the log anew. What the rank writes between our last look and this is lost: a moment in 64 MiB."""
        os.truncate(rank.log, 0)
        rank.log_from = 0
        if rank.steps is not None:
            rank.steps = reports.LogTail(rank.log, 0)
        self._printed[rank.rank] = 0, self._printed[rank.rank][1]


def _say(line: str) -> None:
    sys.stdout.buffer.write(f"[rackyard] {line}\n".encode())


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line of a pod."""

    run: str
    """The command as the user wrote it."""
    warm: tuple[str, ...] = ()
    """Modules to import before forking."""
    hang: float = math.inf
    """Seconds without a step after which the ranks are taken for hanging."""


def parse(arguments: list[str]) -> Asked:
    """UsageError for anything else than that."""
    at = arguments.index("--") if "--" in arguments else -1
    options = dict(zip(arguments[:at:2], arguments[1:at:2], strict=False)) if at > 0 else {}
    try:
        hang = float(options.get("--hang", "inf"))
    except ValueError:
        hang = 0.0
    if at < 0 or at % 2 or len(arguments) != at + 2 or options.keys() - {"--warm", "--hang"} or not hang > 0:
        fix = "podmain [--warm MODULE,...] [--hang SECONDS] -- 'COMMAND'"
        raise UsageError("a pod's command line can't be read", why=" ".join(arguments)[:400], fix=fix)
    warm = tuple(name for name in options.get("--warm", "").split(",") if name)
    return Asked(arguments[-1], warm, hang)


def main(arguments: list[str]) -> int:
    """Run the pod's ranks; the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="rackyard-", dir="/tmp"))  # a short path, for the socket in it
    try:
        asked = parse(arguments)
        seats = podenv.read(os.environ)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
        return Pod(seats, asked, folder).run()
    except RackyardError as error:
        print(f"[rackyard] error: {error}", flush=True)
        return error.exit_code
    finally:
        sys.stdout.flush()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
