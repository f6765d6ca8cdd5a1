"""The agent's side of a warm parent: started once, asked for ranks, given up when it is not fit to fork."""

import array
import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from rackyard.backends.local import jobenv, procs, toplevel
from rackyard.backends.local.crew import Crew
from rackyard.backends.local.journal import Journal
from rackyard.backends.local.loop import Loop
from rackyard.backends.local.ranks import Order, Rank, open_log
from rackyard.backends.local.warm import BOOTSTRAP, GO


class Spec(NamedTuple):
    """All that the imports may depend on: a parent serves only orders of the same spec."""

    env: dict[str, str]
    cwd: str
    first_path: str
    modules: tuple[str, ...]


def spec_of(order: Order) -> Spec:
    """What a parent for this order must look like."""
    command, cwd = order.command, order.plan["cwd"]
    first_path = toplevel.first_path(command.kind, command.target, cwd)
    return Spec(jobenv.import_env(order.env), cwd, first_path, tuple(order.plan["warm"]))


class WarmParent:
    """States: importing (ranks queue) → ready (ranks are forked) → unfit or ended (ranks start fresh)."""

    def __init__(self, node: str, order: Order, journal: Journal, loop: Loop, crew: Crew) -> None:
        self.job, self.spec, self.state = order.job, spec_of(order), "importing"
        self.used = time.monotonic()
        self.was_ready = False
        self.process: subprocess.Popen[bytes] | None = None
        self._env, self._node, self._journal, self._loop, self._crew = (
            order.env,
            node,
            journal,
            loop,
            crew,
        )
        self._control: socket.socket | None = None
        self._log = Path()
        self._queue: list[Rank] = []
        self._forking: set[Rank] = set()

    @property
    def busy(self) -> bool:
        """Whether forks are on their way: their pids are not known yet, so nothing unknown may be reaped."""
        return bool(self._forking)

    @property
    def waiting(self) -> bool:
        """Whether ranks wait for it."""
        return bool(self._queue or self._forking)

    def start(self, log: Path) -> None:
        """Start the process, and its imports."""
        self._log = log
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.setblocking(False)
        config = json.dumps({"modules": self.spec.modules, "first_path": self.spec.first_path})
        arguments = [sys.executable, "-c", BOOTSTRAP, str(theirs.fileno()), config]
        with theirs, log.open("ab") as output:
            try:
                self.process = subprocess.Popen(
                    arguments,
                    env=self._env,
                    cwd=self.spec.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError as error:
                control.close()
                self._give_up("unfit", f"the warm parent can't be started: {error}")
                return
        self._control = control
        found = procs.stat(self.process.pid)
        self._journal.write(
            "WarmStarted",
            job=self.job,
            pid=self.process.pid,
            start=found.start if found else 0,
        )
        self._loop.add(control.fileno(), self._on_message)

    def submit(self, rank: Rank) -> None:
        """Start an accepted rank, the best way there is."""
        self.used = time.monotonic()
        if self.state == "importing":
            self._queue.append(rank)
        elif self.state == "ready":
            self._fork(rank)
        else:
            self._crew.start(rank)

    def close(self, state: str = "ended") -> None:
        """End the process. Ranks that wait for it start fresh."""
        if self._control is not None:
            self._loop.remove(self._control.fileno())
            self._control.close()
            self._control = None
        self.state = state
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self._start_queued()

    def _on_message(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            self._give_up("ended", f"the warm parent ended by itself; {self._log} may say why")
            return
        said: dict[str, Any] = json.loads(data)
        if said["problem"]:
            self._give_up(
                "unfit",
                said["problem"],
                said.get("seconds", 0.0),
                said.get("modules", ()),
            )
            return
        self.state, self.was_ready = "ready", True
        self._report("", said["seconds"], said["modules"])
        self._start_queued()

    def _give_up(self, state: str, problem: str, seconds: float = 0.0, modules: Any = ()) -> None:
        self._report(problem, seconds, modules)
        self.close(state)

    def _report(self, problem: str, seconds: float, modules: Any) -> None:
        said: dict[str, Any] = {
            "seconds": seconds,
            "modules": list(modules),
            "problem": problem,
        }
        self._journal.write("NodeWarm", node=self._node, job=self.job, **said)

    def _start_queued(self) -> None:
        queue, self._queue = self._queue, []
        for rank in queue:
            if not rank.cancelled:
                self.submit(rank)

    def _fork(self, rank: Rank) -> None:
        log = -1
        try:
            log = open_log(rank)
            if not Path(rank.cwd).is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), rank.cwd)
            self._request_fork(rank, log)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            # The parent is stuck or dying, which shows elsewhere; this rank need not wait for it.
            self._crew.start(rank)
        except OSError as error:
            self._crew.fail(rank, log, error)
        finally:
            if log >= 0:
                os.close(log)

    def _request_fork(self, rank: Rank, log: int) -> None:
        assert self._control is not None
        command = rank.command
        order = {
            "kind": command.kind,
            "target": command.target,
            "args": command.args,
            "argv": command.argv,
        }
        gate, theirs = socket.socketpair()
        memory = os.memfd_create("order")
        with theirs, os.fdopen(memory, "wb") as file:
            file.write(json.dumps({**order, "env": rank.env, "cwd": rank.cwd}).encode())
            file.flush()
            try:
                socket.send_fds(self._control, [b"fork"], [theirs.fileno(), memory, log])
            except OSError:
                gate.close()
                raise
        self._forking.add(rank)
        self._loop.add(gate.fileno(), lambda: self._on_gate(rank, gate))

    def _on_gate(self, rank: Rank, gate: socket.socket) -> None:
        """The forked process says its pid, and waits until it is on record; or there is none."""
        with gate, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._loop.remove(gate.fileno())
            self._forking.discard(rank)
            try:
                said = gate.recv(4)
            except ConnectionResetError:
                said = b""
            if rank.cancelled:
                return
            if len(said) < 4:
                self._crew.start(rank)
                return
            rank.pid, rank.forked = array.array("i", said)[0], True
            self._crew.started(rank)
            gate.send(GO)
