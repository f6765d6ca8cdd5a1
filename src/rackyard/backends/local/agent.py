"""The agent of a node: a daemon that starts, watches and ends ranks, and writes down what happens.

    python -m rackyard.backends.local.agent --node NAME --dir STATE/nodes/NAME [--idle SECONDS]

Exits once the daemon is up (0), or can't be: 3 another agent holds the node, 4 the node is lost and not revived,
1 anything else (see agent.log). Standard library only, and little of it: it must start in no time.
"""

import ctypes
import fcntl
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from rackyard.backends.local import journal as journals
from rackyard.backends.local import places, procs, reports
from rackyard.backends.local.commands import CommandServer
from rackyard.backends.local.crew import Crew
from rackyard.backends.local.journal import Journal
from rackyard.backends.local.loop import Loop
from rackyard.backends.local.nursery import Nursery
from rackyard.backends.local.ranks import read_order

_TICK = 0.25
_PR_SET_CHILD_SUBREAPER = 36


class Agent:
    """Wires the rooms of the agent together and answers commands."""

    def __init__(self, node: str, folder: Path, idle: float) -> None:
        self._node, self._folder, self._idle = node, folder, idle
        self._sockets = places.sockets_dir(folder)
        self._loop, self._journal = Loop(), Journal(folder / places.JOURNAL)
        started = journals.scan(folder / places.JOURNAL, "RankStarted", "RankExited")
        known = [(line["job"], line["attempt"], line["rank"]) for line in started]
        self._crew = Crew(node, self._journal, self._loop, known)
        self._crew.before_exit = self._read_reports
        self._nursery = Nursery(node, folder, self._journal, self._loop, self._crew)
        self._reports = self._bind(places.REPORT, socket.SOCK_DGRAM)
        listener = self._bind(places.COMMAND, socket.SOCK_STREAM)
        listener.listen(64)
        self._server = CommandServer(listener, self._loop, self._handle)
        self._journal.on_write = lambda: self._server.push(b"\n")
        self._base = dict(os.environ)
        self._released = False
        self._used, self._ticks = time.monotonic(), 0

    def run(self, announce: Any) -> None:
        """Announce the agent, and run until it is released, told to, or idle for too long."""
        self._loop.add(self._reports.fileno(), self._read_reports)
        self._loop.on_signals((signal.SIGCHLD, signal.SIGTERM, signal.SIGINT), self._on_signal)
        me = procs.identify(os.getpid())
        assert me is not None
        self._journal.write("NodeUp", node=self._node, **me._asdict())
        card = places.AgentCard(self._node, me, os.fspath(self._sockets))
        places.write_card(self._folder / places.AGENT, card)
        announce(places.UP)
        self._tick()
        self._loop.run()
        # First the card: from here on nobody takes our silence for a death.
        (self._folder / places.AGENT).unlink()
        self._nursery.close()
        self._server.close()
        places.remove_sockets(self._sockets)
        self._journal.close()

    def _bind(self, name: str, kind: socket.SocketKind) -> socket.socket:
        path = self._sockets / name
        # Whoever left it is gone: we hold the node's lock.
        path.unlink(missing_ok=True)
        bound = socket.socket(socket.AF_UNIX, kind)
        bound.bind(os.fspath(path))
        bound.setblocking(False)
        return bound

    def _tick(self) -> None:
        self._ticks += 1
        self._read_reports()
        self._crew.read_logs()
        self._journal.flush()
        if self._ticks % 2:
            self._server.push(b".")
        now = time.monotonic()
        if self._crew.ranks or self._server.clients:
            self._used = now
        if not self._crew.ranks and (self._released or now - self._used > self._idle):
            self._loop.stop()
        self._nursery.reap()
        self._loop.later(_TICK, self._tick)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self._nursery.reap()
        else:
            self._shutdown(5.0)

    def _shutdown(self, grace: float) -> None:
        self._crew.stop_all(grace)
        self._released = True

    def _read_reports(self) -> None:
        while True:
            try:
                data = self._reports.recv(1 << 16)
            except BlockingIOError:
                return
            fact = reports.read_report(data)
            if fact is None:
                sys.stderr.write(f"agent: not a report: {data[:200]!r}\n")
                continue
            if fact.kind == "StepDone":
                self._crew.heard_step((fact.fields["job"], fact.fields["attempt"], fact.fields["rank"]))
            self._journal.write(fact.kind, age=fact.age, **fact.fields)

    def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        operation = request["op"]
        if operation in ("warm", "launch"):
            return self._launch(request["plan"])
        if operation == "stop":
            self._crew.stop(request["job"], request["attempt"], request["grace"], request["stacks"])
        elif operation == "kill":
            return {"killed": self._kill(request)}
        elif operation == "fabric":
            return {"killed": self._fabric(request)}
        elif operation == "ranks":
            return {"ranks": [{**rank.who, "pid": rank.pid} for rank in self._crew.ranks.values()]}
        elif operation == "release":
            self._released = True
        elif operation == "shutdown":
            self._shutdown(request["grace"])
        elif operation != "hello":
            raise ValueError(f"unknown operation {operation!r}")
        return {"node": self._node, "pid": os.getpid()}

    def _launch(self, plan: dict[str, Any]) -> dict[str, Any]:
        self._released = False
        self._used = time.monotonic()
        order = read_order(plan, self._base, os.fspath(self._sockets / places.REPORT))
        parent = self._nursery.parent_for(order)
        ranks = [rank for rank in order.ranks() if self._crew.accept(rank)]
        for rank in ranks:
            if parent is None:
                self._crew.start(rank)
            else:
                parent.submit(rank)
        return {"started": [rank.rank for rank in ranks]}

    def _kill(self, request: dict[str, Any]) -> bool:
        rank = self._crew.ranks.get((request["job"], request["attempt"], request["rank"]))
        if rank is None or not rank.pid:
            return False
        rank.signal(request["signal"])
        return True

    def _fabric(self, request: dict[str, Any]) -> int:
        """A simulated loss of the NVLink fabric: what spans several GPUs dies of it, at once and uncleanly."""
        if request["text"]:
            fields = {
                "rack": request["rack"],
                "part": request["part"],
                "text": request["text"],
            }
            self._journal.write("FabricDown", **fields, simulated=True)
        hit = [rank for rank in self._crew.ranks.values() if rank.world > 1 and rank.pid]
        for rank in hit:
            rank.signal_group(signal.SIGKILL)
        return len(hit)


def _serve(node: str, folder: Path, idle: float, announce: Any) -> None:
    lock = os.open(folder / places.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        announce(places.HELD)
        return
    if any((folder / name).exists() for name in (places.AGENT, places.LOST)):
        # The last agent died; whoever fences the node decides when it comes back.
        announce(places.UNFENCED)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    Agent(node, folder, idle).run(announce)


def main(arguments: list[str]) -> int:
    """Start the daemon and wait until it is up."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    node, folder = options["--node"], Path(options["--dir"]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(write_end)
        said = os.read(read_end, 1)
        return said[0] if said else places.FAILED
    os.close(read_end)
    os.setsid()
    log = os.open(folder / places.LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for old, new in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
        os.dup2(old, new)
    os.chdir(folder)

    def announce(status: int) -> None:
        os.write(write_end, bytes([status]))
        os.close(write_end)

    try:
        _serve(node, folder, float(options.get("--idle", "600")), announce)
    except BaseException:  # noqa: BLE001 - a daemon's last words; it ends either way
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(places.FAILED)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
