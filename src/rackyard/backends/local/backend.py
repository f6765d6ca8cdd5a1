"""The local backend: what the controller calls."""

import heapq
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from rackyard.backends.base import Cursor
from rackyard.backends.local import client, fence, journal, places
from rackyard.backends.local.decode import decode
from rackyard.backends.local.places import AgentCard
from rackyard.backends.local.watch import Watch, node_folders
from rackyard.errors import UsageError
from rackyard.faults.observations import Observation
from rackyard.launch.plan import LaunchPlan

_REQUEST_TIMEOUT = 5.0
_LOOK_AROUND = 0.5
"""How often agents started by others are looked for, and silences measured."""


class LocalBackend:
    """Simulated nodes on this machine, each an agent with real processes. Implements `backends.base.Backend`.

    Keeps nothing that matters in memory: another one on the same folder, with the same cursor, goes on from there.
    """

    def __init__(self, state_dir: Path, *, lost_after: float = 5.0, idle: float = 600.0) -> None:
        self._nodes_dir = state_dir.absolute() / "nodes"
        self._idle = idle
        self._watch = Watch(self._nodes_dir, lost_after, fence.fence)

    def prepare(self, nodes: Iterable[str], plan: LaunchPlan) -> None:
        """Bring up the agents of `nodes` and warm them. Raises ConflictError for a node that is lost."""
        names = list(dict.fromkeys(nodes))
        self._bring_up(names)
        for node in names:
            self._order(node, "warm", plan=_plan_for(plan, ()))

    def launch(self, plan: LaunchPlan) -> None:
        """Start the attempt's ranks. A node that dies meanwhile is no error here: it will be observed."""
        self._bring_up(plan.nodes())
        for node in plan.nodes():
            self._order(node, "launch", plan=_plan_for(plan, (node,)))

    def stop(self, job: str, attempt: int, *, grace: float, stacks: bool = False) -> None:
        """End the attempt's ranks wherever they are. After it, none of the attempt starts any more."""
        for node in self._cards():
            self._ask(node, "stop", job=job, attempt=attempt, grace=grace, stacks=stacks)

    def observe(self, cursor: Cursor, timeout: float) -> tuple[list[Observation], Cursor]:
        """What happened since `cursor`, oldest first."""
        deadline = time.monotonic() + timeout
        while True:
            self._watch.check()
            seen, moved = self._read(cursor)
            remaining = deadline - time.monotonic()
            if seen or remaining <= 0:
                return seen, moved
            # Lines that say nothing to the caller need not be read twice.
            cursor = moved
            self._watch.wait(min(remaining, _LOOK_AROUND))

    def nodes(self) -> Mapping[str, bool]:
        """The nodes that have an agent, and whether it answers; a lost one is there, and doesn't."""
        lost = {folder.name: False for folder in self._folders() if (folder / places.LOST).exists()}
        return lost | {node: self._ask(node, "hello") is not None for node in self._cards()}

    def release(self, nodes: Iterable[str]) -> None:
        """Let the agents of `nodes` end as soon as they have nothing to run."""
        for node in nodes:
            self._ask(node, "release")

    def revive(self, node: str) -> None:
        """Declare a lost node repaired: its agent may be started again."""
        (self._folder(node) / places.LOST).unlink(missing_ok=True)

    def ranks(self) -> list[dict[str, Any]]:
        """The ranks that run or are about to: job, attempt, rank, pid (0 before it has one), node."""
        answers = {node: self._ask(node, "ranks") for node in self._cards()}
        return [{**rank, "node": node} for node, answer in answers.items() if answer for rank in answer["ranks"]]

    def ask(self, node: str, op: str, **fields: Any) -> dict[str, Any] | None:
        """Send the agent of `node` a command; None when it doesn't answer. For fault injection and tests."""
        return self._ask(node, op, **fields)

    def crash(self, node: str) -> bool:
        """End the node's agent and all it runs, as a loss of power would; False when there is nothing to end."""
        card = self._card(node)
        if card is not None:
            fence.end_all(self._folder(node), card)
        return card is not None

    def shutdown(self, *, grace: float = 5.0) -> None:
        """End every rank and every agent. Returns at once."""
        for node in self._cards():
            self._ask(node, "shutdown", grace=grace)

    def close(self) -> None:
        """Hang up on the agents, which live on."""
        self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bring_up(self, nodes: Iterable[str]) -> None:
        down = []
        for node in nodes:
            folder = self._folder(node)
            if (folder / places.LOST).exists():
                raise client.lost_error(node)
            if not (folder / places.AGENT).exists():
                down.append(folder)
        client.start_agents(down, self._idle)

    def _order(self, node: str, op: str, **fields: Any) -> None:
        """Ask for something that needs an agent: one that has ended itself meanwhile, being idle, is started again."""
        while self._ask(node, op, **fields) is None and self._card(node) is None:
            self._bring_up([node])

    def _ask(self, node: str, op: str, **fields: Any) -> dict[str, Any] | None:
        card = self._card(node)
        if card is None:
            return None
        try:
            return client.request(card, _REQUEST_TIMEOUT, op, **fields)
        except client.Unreachable:
            # Dead, dying or stuck: `observe` finds out which, and says so with evidence.
            return None

    def _read(self, cursor: Cursor) -> tuple[list[Observation], dict[str, int]]:
        moved, streams = dict(cursor), []
        for folder in self._folders():
            lines, offset = journal.read(folder / places.JOURNAL, moved.get(folder.name, 0))
            if lines:
                streams.append(_dated(lines))
            if offset:
                moved[folder.name] = offset
        merged = heapq.merge(*streams, key=lambda dated: dated[0])
        return [observation for _, observation in merged], moved

    def _folders(self) -> list[Path]:
        return node_folders(self._nodes_dir)

    def _folder(self, node: str) -> Path:
        if node in ("", ".", "..") or "/" in node:
            raise UsageError(f"{node!r} can't be the name of a node.")
        return self._nodes_dir / node

    def _card(self, node: str) -> AgentCard | None:
        return places.read_card(self._folder(node) / places.AGENT)

    def _cards(self) -> list[str]:
        return [folder.name for folder in self._folders() if (folder / places.AGENT).exists()]


def _dated(lines: list[journal.Line]) -> Iterator[tuple[float, Observation]]:
    """Observations with the time to merge by, which never falls: a node's own order stands, reboots included."""
    latest = 0.0
    for line in lines:
        observation = decode(line)
        latest = max(latest, line["mono"])
        if observation is not None:
            yield latest, observation


def _plan_for(plan: LaunchPlan, nodes: tuple[str, ...]) -> dict[str, Any]:
    """What an agent needs of the plan: its own ranks only."""
    ranks = [
        {"rank": rank.rank, "local_rank": rank.local_rank, "env": dict(rank.env)}
        for rank in plan.ranks
        if rank.node in nodes
    ]
    return {
        "job": plan.job,
        "attempt": plan.attempt,
        "run": plan.run,
        "cwd": plan.cwd,
        "env": {"PATH": _search_path(), **plan.env},
        "warm": list(plan.warm),
        "world": len(plan.ranks),
        "log_dir": plan.log_dir,
        "ranks": ranks,
    }


def _search_path() -> str:
    """PATH with Rackyard's own interpreter first: `python` in a job is the Python that Rackyard runs in."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
