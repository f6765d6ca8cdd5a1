"""The same trouble is told once while it lasts: four watches without rights say the same again and again."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rackyard.controller.kube.loop import Told

REMIND = 180.0
"""Seconds after which trouble that lasts is told again."""
QUIET = 60.0
"""Seconds without it after which it is over: what comes then is told at once. Longer than a watch ever waits."""


@dataclass
class Once:
    """Tells `tell` all but trouble that was told of late; from any thread."""

    tell: Told
    clock: Callable[[], float] = time.monotonic
    _lasting: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """When it was told, and when it was heard last."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, subject: str, word: str, line: str) -> None:
        """As `tell`."""
        if word != "Trouble" or self._new(subject, line):
            self.tell(subject, word, line)

    def _new(self, subject: str, line: str) -> bool:
        with self._lock:
            now = self.clock()
            self._lasting = {key: times for key, times in self._lasting.items() if now - times[1] < QUIET}
            told = self._lasting.get((subject, line), (float("-inf"), now))[0]
            new = now - told >= REMIND
            self._lasting[subject, line] = (now if new else told, now)
            return new
