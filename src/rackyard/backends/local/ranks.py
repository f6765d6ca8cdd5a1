"""A rank as its agent knows it."""

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackyard.backends.local import jobenv
from rackyard.backends.local.command import Command, parse
from rackyard.backends.local.reports import LogTail

Key = tuple[str, int, int]
"""Job, attempt, rank."""


@dataclass(slots=True, eq=False)
class Rank:
    """One rank, from the order to start it until it is reaped."""

    job: str
    attempt: int
    rank: int
    world: int
    command: Command
    cwd: str
    env: dict[str, str]
    log: Path
    log_from: int = 0
    """Where in the log, which is appended to, this process began."""
    pid: int = 0
    pidfd: int = -1
    forked: bool = False
    process: "subprocess.Popen[bytes] | None" = None
    """Kept until it is reaped: Popen would otherwise wait for the process itself."""
    steps: LogTail | None = None
    """Reads steps from the log, until the rank reports one itself."""
    stacks_from: int = -1
    """Where in the log the stacks asked for begin."""
    cancelled: bool = False

    @property
    def key(self) -> Key:
        return self.job, self.attempt, self.rank

    @property
    def who(self) -> dict[str, Any]:
        return {"job": self.job, "attempt": self.attempt, "rank": self.rank}

    def signal(self, number: int) -> None:
        """Signal the process itself: by its pidfd, so nobody else can ever be hit."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def signal_group(self, number: int) -> None:
        """Signal the process and what it has started. Only while it isn't reaped, so that the number is its own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def abort(self) -> None:
        """SIGABRT, at which Python writes the stacks of all threads and dies; a stopped process is woken for it."""
        self.stacks_from = self.log.stat().st_size
        with contextlib.suppress(OSError):
            # The dump of a training process's memory takes a minute to write, and nobody asked for it.
            resource.prlimit(self.pid, resource.RLIMIT_CORE, (0, 0))
        # Under a shell the Python that is meant is a child of ours.
        (self.signal_group if self.command.kind == "shell" else self.signal)(signal.SIGABRT)
        self.signal_group(signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Order:
    """A request to launch or prepare, as read by the agent."""

    plan: dict[str, Any]
    env: dict[str, str]
    """The job's environment, without what differs from rank to rank."""
    command: Command

    @property
    def job(self) -> str:
        return str(self.plan["job"])

    def ranks(self) -> list[Rank]:
        """The ranks to start on this node."""
        plan = self.plan
        folder = Path(plan["log_dir"], f"attempt-{plan['attempt']}")
        return [
            Rank(
                job=plan["job"],
                attempt=plan["attempt"],
                rank=rank["rank"],
                world=plan["world"],
                command=self.command,
                cwd=plan["cwd"],
                env={
                    **self.env,
                    "RANK": str(rank["rank"]),
                    "LOCAL_RANK": str(rank["local_rank"]),
                    **rank["env"],
                },
                log=folder / f"rank-{rank['rank']}.log",
            )
            for rank in plan["ranks"]
        ]


def read_order(plan: dict[str, Any], base: Mapping[str, str], socket: str) -> Order:
    """Read a launch request. `base` is the environment that the job's goes over."""
    env = jobenv.job_env(base, plan["env"], job=plan["job"], attempt=plan["attempt"], socket=socket)
    return Order(plan, env, parse(plan["run"], cwd=plan["cwd"], path=env.get("PATH")))


def open_log(rank: Rank) -> int:
    """Open the rank's log for appending, and note where it begins. Raises OSError."""
    rank.log.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(rank.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    rank.log_from = os.fstat(log).st_size
    return log


def start_fresh(rank: Rank, log: int) -> None:
    """Start the rank as a process of its own, in its own session. Raises OSError."""
    rank.process = subprocess.Popen(
        rank.command.argv,
        cwd=rank.cwd,
        env=rank.env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    rank.pid = rank.process.pid
