"""Says what happens to gangs, once for each change: to whoever listens, and on the gang's first pod."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime

from rackyard.controller.kube.acts import Acts
from rackyard.controller.kube.cache import Cache
from rackyard.errors import RackyardError

_SILENT = frozenset({"Finishing"})


@dataclass
class Voice:
    """`write`: also as an Event and a condition of the pod."""

    acts: Acts
    cache: Cache
    tell: Callable[[str, str, str], None]
    write: bool = True
    _said: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def say(self, gang: str, word: str, line: str, now: datetime) -> None:
        """Tell it unless it was the last that was told of the gang; a pod that was made anew does not know."""
        if word in _SILENT:
            return
        pod = min(self.cache.members(gang), key=lambda pod: pod.key, default=None)
        before, new = self._said.get(gang, ("", "", "")), (word, line, pod.metadata.uid if pod is not None else "")
        self._said[gang] = new
        if before[:2] != new[:2]:
            self.tell(gang, word, line)
        if pod is not None and self.write and before != new:
            try:
                self.acts.note(pod, word, line, now)
            except RackyardError as error:
                self.tell(gang, "Trouble", str(error))

    def forget_all_but(self, gangs: Collection[str]) -> None:
        """Gangs that are gone need no memory."""
        for gang in [gang for gang in self._said if gang and gang not in gangs]:
            del self._said[gang]
