"""The ranks of a node: started once each, watched, stopped, and every ending put on record."""

import errno
import os
import signal
from collections.abc import Callable, Iterable
from functools import partial

from rackyard.backends.local import procs, reports
from rackyard.backends.local.journal import Journal
from rackyard.backends.local.loop import Loop
from rackyard.backends.local.ranks import Key, Rank, open_log, start_fresh

_STACKS_WAIT = 2.0
_LONGEST_STACKS = 1 << 16


class Crew:
    """Every rank that was accepted gets one `RankExited` in the end, whatever becomes of it."""

    def __init__(self, node: str, journal: Journal, loop: Loop, known: Iterable[Key]) -> None:
        self._node, self._journal, self._loop = node, journal, loop
        self._known = set(known)
        self._stopped: set[tuple[str, int]] = set()
        self.ranks: dict[Key, Rank] = {}
        self.before_exit: Callable[[], None] = lambda: None
        """Reads what ranks have said, so that it is on record before their end is."""

    def accept(self, rank: Rank) -> bool:
        """Whether the rank is new and may be started."""
        if rank.key in self._known or (rank.job, rank.attempt) in self._stopped:
            return False
        self._known.add(rank.key)
        self.ranks[rank.key] = rank
        return True

    def start(self, rank: Rank) -> None:
        """Start an accepted rank as a fresh process."""
        if rank.cancelled:
            return
        log = -1
        try:
            log = open_log(rank)
            start_fresh(rank, log)
        except OSError as error:
            self.fail(rank, log, error)
        else:
            self.started(rank)
        finally:
            if log >= 0:
                os.close(log)

    def fail(self, rank: Rank, log: int, error: OSError) -> None:
        """Record that the rank can't be started, with the exit code a shell would give."""
        text = f"rackyard: can't start rank {rank.rank}: {error.strerror}: {error.filename or rank.command.argv[0]}\n"
        if log >= 0:
            os.write(log, text.encode())
        code = 127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126
        self._gone(rank, code=code, tail=text)

    def started(self, rank: Rank) -> None:
        """Record and watch a rank whose process exists and is our child."""
        rank.pidfd = os.pidfd_open(rank.pid)
        rank.steps = reports.LogTail(rank.log, rank.log_from)
        found = procs.stat(rank.pid)
        self._journal.write(
            "RankStarted",
            **rank.who,
            node=self._node,
            pid=rank.pid,
            start=found.start if found else 0,
            forked=rank.forked,
        )
        self._loop.add(rank.pidfd, lambda: self._exited(rank))

    def stop(self, job: str, attempt: int, grace: float, stacks: bool) -> None:
        """End an attempt's ranks, and see that none of it starts later."""
        self._stopped.add((job, attempt))
        for rank in [r for r in self.ranks.values() if (r.job, r.attempt) == (job, attempt)]:
            if not rank.pid:
                rank.cancelled = True
                self._gone(
                    rank,
                    signal=int(signal.SIGTERM),
                    tail="rackyard: stopped before it was started",
                )
            elif stacks:
                if rank.stacks_from < 0:
                    rank.abort()
                self._loop.later(_STACKS_WAIT, partial(self._kill, rank))
            else:
                rank.signal_group(signal.SIGTERM)
                # A stopped process would not see it.
                rank.signal_group(signal.SIGCONT)
                self._loop.later(grace, partial(self._kill, rank))

    def stop_all(self, grace: float) -> None:
        """End every rank."""
        for job, attempt in {(rank.job, rank.attempt) for rank in self.ranks.values()}:
            self.stop(job, attempt, grace, stacks=False)

    def heard_step(self, key: Key) -> None:
        """A rank that reports its steps isn't read for them."""
        if key in self.ranks:
            self.ranks[key].steps = None

    def read_logs(self) -> None:
        """Put on record the steps of those ranks that only log them."""
        for rank in self.ranks.values():
            self._read_log(rank, final=False)

    def _read_log(self, rank: Rank, *, final: bool) -> None:
        for step, metrics in rank.steps.poll(final=final) if rank.steps else ():
            self._journal.write("StepDone", **rank.who, step=step, metrics=metrics)

    def _kill(self, rank: Rank) -> None:
        if rank.key in self.ranks:
            rank.signal_group(signal.SIGKILL)

    def _exited(self, rank: Rank) -> None:
        self.before_exit()
        self._read_log(rank, final=True)
        # What the rank has started ends with it; its number is still its own, for it isn't reaped yet.
        rank.signal_group(signal.SIGKILL)
        _, status = os.waitpid(rank.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if rank.process is not None:
            rank.process.returncode = code
        self._loop.remove(rank.pidfd)
        os.close(rank.pidfd)
        if rank.stacks_from >= 0:
            text = reports.tail(rank.log, rank.stacks_from, lines=_LONGEST_STACKS, size=_LONGEST_STACKS)
            self._journal.write("StacksCaptured", **rank.who, node=self._node, text=text)
        tail = reports.tail(rank.log, rank.log_from)
        self._gone(
            rank,
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            tail=tail,
        )

    def _gone(
        self,
        rank: Rank,
        *,
        code: int | None = None,
        signal: int | None = None,
        tail: str,
    ) -> None:
        del self.ranks[rank.key]
        self._journal.write(
            "RankExited",
            **rank.who,
            node=self._node,
            code=code,
            signal=signal,
            tail=tail,
        )
