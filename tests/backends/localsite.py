"""A local site for each test, and the certainty that no process of it survives the test."""

import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rackyard.backends.local import LocalBackend, fence, journal, places, procs
from rackyard.faults.observations import Observation, RankExited
from rackyard.launch.plan import LaunchPlan, RankPlan

PYTHON = sys.executable


class LocalSite:
    """A backend, scripts to run on it, and everything it has observed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.backend = LocalBackend(self.state, lost_after=2.0, idle=30)
        self.cursor: Mapping[str, int] = {}
        self.seen: list[Observation] = []

    def script(self, text: str, name: str = "train.py") -> str:
        """Write a script into the working folder; returns its name."""
        (self.work / name).write_text(textwrap.dedent(text))
        return name

    def plan(self, run: str, nodes: Sequence[str] = ("n0",), **changes: Any) -> LaunchPlan:
        """A plan with one rank for each name in `nodes`."""
        ranks = tuple(RankPlan(rank, list(nodes[:rank]).count(node), node, {}) for rank, node in enumerate(nodes))
        known: dict[str, Any] = {"job": "job", "attempt": 1, "warm": (), "env": {}, "cwd": str(self.work)}
        return LaunchPlan(**known | {"run": run, "ranks": ranks, "log_dir": str(self.folder / "logs")} | changes)

    def observe(self, timeout: float = 0.0) -> None:
        """Observe once."""
        seen, self.cursor = self.backend.observe(self.cursor, timeout)
        self.seen += seen

    def all(self, kind: type[Any], **fields: Any) -> list[Any]:
        """The observations of a kind with these fields."""
        return [o for o in self.seen if isinstance(o, kind) and all(getattr(o, k) == v for k, v in fields.items())]

    def wait(self, kind: type[Any], count: int = 1, timeout: float = 20.0, **fields: Any) -> list[Any]:
        """Observe until there are `count` such observations."""
        deadline = time.monotonic() + timeout
        while len(found := self.all(kind, **fields)) < count:
            assert time.monotonic() < deadline, f"no {count} {kind.__name__} {fields} in {self.seen}"
            self.observe(0.5)
        return found

    def exits(self, plan: LaunchPlan, timeout: float = 20.0) -> list[RankExited]:
        """Launch, and wait for every rank's end."""
        self.backend.launch(plan)
        found = self.wait(RankExited, len(plan.ranks), timeout, job=plan.job, attempt=plan.attempt)
        return sorted(found, key=lambda exited: exited.rank)

    def log(self, plan: LaunchPlan, rank: int = 0) -> str:
        """A rank's log."""
        return (Path(plan.log_dir) / f"attempt-{plan.attempt}" / f"rank-{rank}.log").read_text()

    def processes(self) -> list[procs.Identity]:
        """Every process of the site that still lives: agents, and the sessions they have started."""
        boot, found = procs.boot_id(), set()
        for folder in (self.state / "nodes").glob("*"):
            for line in journal.scan(folder / places.JOURNAL, "NodeUp", "RankStarted", "WarmStarted"):
                found.update(procs.session_of(procs.Identity(line["pid"], line["start"], boot)))
        return sorted(found)

    def clean_up(self) -> None:
        """End all of it, by identity."""
        self.backend.close()
        for folder in (self.state / "nodes").glob("*"):
            if card := places.read_card(folder / places.AGENT):
                fence.end_all(folder, card)
                places.remove_sockets(Path(card.sockets))
        deadline = time.monotonic() + 5
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        procs.end(left, 5)
        assert not left
