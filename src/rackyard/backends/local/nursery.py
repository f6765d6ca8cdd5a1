"""The warm parents of a node, one a job."""

import os
from pathlib import Path

from rackyard.backends.local.crew import Crew
from rackyard.backends.local.journal import Journal
from rackyard.backends.local.loop import Loop
from rackyard.backends.local.ranks import Order
from rackyard.backends.local.warmparent import WarmParent, spec_of

_MOST_PARENTS = 4
"""Each holds a few hundred MB once torch is imported; the least recently used goes first."""


class Nursery:
    """Starts, finds and ends warm parents."""

    def __init__(self, node: str, folder: Path, journal: Journal, loop: Loop, crew: Crew) -> None:
        self._node, self._folder, self._journal, self._loop, self._crew = (
            node,
            folder,
            journal,
            loop,
            crew,
        )
        self._parents: dict[str, WarmParent] = {}
        self._ending: list[WarmParent] = []
        self._told: set[str] = set()

    @property
    def busy(self) -> bool:
        """Whether any fork is on its way."""
        return any(parent.busy for parent in [*self._parents.values(), *self._ending])

    def parent_for(self, order: Order) -> WarmParent | None:
        """The order's warm parent, started if need be; None when its ranks are started fresh."""
        if not order.plan["warm"]:
            return None
        if not order.command.forkable:
            self._tell(
                order.job,
                "only `python script.py` and `python -m module` of Rackyard's own Python can be forked",
            )
            return None
        parent = self._parents.get(order.job)
        if parent and (parent.spec != spec_of(order) or (parent.state == "ended" and parent.was_ready)):
            self._end(parent)
            parent = None
        if parent is None:
            parent = WarmParent(self._node, order, self._journal, self._loop, self._crew)
            self._parents[order.job] = parent
            log = self._folder / f"warm-{order.job.replace('/', '_')}.log"
            parent.start(log)
            self._evict()
        return parent

    def reap(self) -> None:
        """Reap orphans of ranks, and warm parents. Ranks are reaped when their own ending is read."""
        while not self.busy:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or any(rank.pid == found.si_pid for rank in self._crew.ranks.values()):
                return
            _, status = os.waitpid(found.si_pid, 0)
            self._reaped(found.si_pid, os.waitstatus_to_exitcode(status))

    def _reaped(self, pid: int, code: int) -> None:
        for parent in [*self._parents.values(), *self._ending]:
            if parent.process is not None and parent.process.pid == pid:
                parent.process.returncode = code
        self._ending = [p for p in self._ending if p.busy or (p.process is not None and p.process.returncode is None)]

    def close(self) -> None:
        """End them all."""
        for parent in list(self._parents.values()):
            self._end(parent)

    def _end(self, parent: WarmParent) -> None:
        del self._parents[parent.job]
        self._ending.append(parent)
        parent.close()

    def _evict(self) -> None:
        serving = {rank.job for rank in self._crew.ranks.values()}
        idle = [p for p in self._parents.values() if p.job not in serving and not p.waiting]
        idle.sort(key=lambda parent: parent.used)
        for parent in idle[: max(0, len(self._parents) - _MOST_PARENTS)]:
            self._end(parent)

    def _tell(self, job: str, problem: str) -> None:
        if job not in self._told:
            self._told.add(job)
            self._journal.write(
                "NodeWarm",
                node=self._node,
                job=job,
                seconds=0.0,
                modules=[],
                problem=problem,
            )
