"""The agent: a round of readings every so often, what it says shown, told and (in `act`) written."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rackyard.agent.derive import View, derive
from rackyard.agent.host import Memory
from rackyard.agent.readers import Readers

if TYPE_CHECKING:  # what the extra `kubernetes` brings is loaded only where it is used
    from rackyard.agent.metrics import Metrics
    from rackyard.agent.writing import Writer
    from rackyard.errors import RackyardError

_ACTS = {
    "read": "reading the node",
    "conditions": "writing conditions",
    "labels": "writing labels",
    "heartbeat": "writing the heartbeat",
}
_LATE = 3.0
"""Rounds that may be missed until the agent is called dead."""


@dataclass
class Agent:
    """One node's agent. Without a `writer` it writes nothing to the cluster (`observe`).

    `told` gets lines for people: what changed, and what went wrong. Conditions stay as they are when it ends: a host
    that goes down as planned has no fault to report, and none to take back.
    """

    readers: Readers
    every: float = 30.0
    writer: "Writer | None" = None
    metrics: "Metrics | None" = None
    told: Callable[[str], None] = lambda _line: None
    memory: Memory = field(default_factory=Memory)
    failed: tuple["RackyardError", ...] = ()
    """What of the last round could not be written."""
    _said: dict[str, str] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _last: float = field(default_factory=time.monotonic)

    def once(self) -> View:
        """One round."""
        now = time.monotonic()
        view, self.memory = derive(self.readers.node, self.readers.read(), self.memory, now)
        self._last = time.monotonic()  # an API server that does not answer is no reason to end an agent that looks
        if self.metrics is not None:
            self.metrics.show(view)
        for one in view.conditions:
            self._say(one.type, f"{one.status}: {one.reason}: {one.message}")
        if self.writer is not None:
            done = self.writer.write(view, time.monotonic())
            self.failed = tuple(wrote.error for wrote in done if wrote.error is not None)
            for wrote in done:
                if self.metrics is not None:
                    self.metrics.wrote(wrote.what, failed=wrote.error is not None)
                self._say(_ACTS.get(wrote.what, wrote.what), "done" if wrote.error is None else str(wrote.error))
        self._last = time.monotonic()
        return view

    def run(self) -> None:
        """Rounds until `stop`, the next one `every` seconds after the last began."""
        while not self._stop.is_set():
            began = time.monotonic()
            self.once()
            self._stop.wait(max(0.0, self.every - (time.monotonic() - began)))

    def stop(self) -> None:
        """End `run` after the round under way."""
        self._stop.set()

    def alive(self) -> bool:
        """Whether rounds are made."""
        most = self.readers.timeout + _LATE * self.every
        return time.monotonic() - self._last < most

    def _say(self, what: str, line: str) -> None:
        """Once for each change."""
        if self._said.get(what) != line:
            self._said[what] = line
            self.told(f"{self.readers.node}: {what}: {line}")
