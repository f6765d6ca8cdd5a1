"""Says what happens to gangs, once for each change: to whoever listens, and on the gang's first pod."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from typing import NamedTuple

from rackyard.controller.kube.acts import Acts, Note
from rackyard.controller.kube.cache import Cache

MOST = 64
"""Notes that are written at a time: a tenth of a second."""
CALM = 5.0
"""Seconds between two lines to the same word about a gang."""
TRIES, PAUSE = 10, 30.0
"""How often a note is tried again, and seconds before that."""
_SILENT = frozenset({"Finishing"})


class _Said(NamedTuple):
    """What was said last of a gang, with its pod's uid, and when."""

    word: str
    line: str
    pod: str
    at: datetime


_NOTHING = _Said("", "", "", datetime.min)


@dataclass
class Voice:
    """`write`: also as an Event and a condition of the pod, when `flush` is called."""

    acts: Acts
    cache: Cache
    tell: Callable[[str, str, str], None]
    write: bool = True
    _said: dict[str, _Said] = field(default_factory=dict)
    """By gang."""
    _later: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Words and lines that wait until what was said of the gang before is old enough."""
    _notes: list[Note] = field(default_factory=list)
    """Not yet written."""

    def say(self, gang: str, word: str, line: str, now: datetime) -> None:
        """Tell it unless it was the last that was told of the gang; a pod that was made anew does not know. Another
        line to the same word is told after a while: of a large gang there are some more pods every moment.
        """
        if word in _SILENT:
            return
        self._later.pop(gang, None)
        pod = min(self.cache.members(gang), key=lambda pod: pod.key, default=None)
        new = _Said(word, line, pod.metadata.uid if pod is not None else "", now)
        before = self._said.get(gang, _NOTHING)
        changed = (before.word, before.line) != (word, line)
        if changed and before.word == word and before.pod == new.pod and 0 <= (now - before.at).total_seconds() < CALM:
            self._later[gang] = (word, line)
            return
        if changed:
            self.tell(gang, word, line)
        if changed or before.pod != new.pod:
            self._said[gang] = new
            if pod is not None and self.write:
                self._notes.append(Note(pod, word, line, now))

    def flush(self, now: datetime) -> float:
        """Write what was said, the oldest first; in how many seconds to go on with the rest, infinite for none."""
        for gang, (word, line) in list(self._later.items()):
            self.say(gang, word, line, now)
        batch, rest = self._notes[:MOST], self._notes[MOST:]
        errors = self.acts.note(batch) if batch else []
        failed = [note for note, error in zip(batch, errors, strict=True) if error is not None]
        if failed:
            told = next(error for error in errors if error is not None)
            self.tell("", "Trouble", f"{len(failed)} notes on pods could not be written: {told}")
        newer = {note.pod.metadata.uid for note in rest}
        again = [note for note in failed if note.tries < TRIES and note.pod.metadata.uid not in newer]
        self._notes = [*rest, *(replace(note, tries=note.tries + 1) for note in again)]
        if rest:
            return 0.0
        return CALM if self._later else PAUSE if self._notes else inf

    def forget_all_but(self, gangs: Collection[str]) -> None:
        """Gangs that are gone need no memory."""
        for gang in [gang for gang in self._said if gang and gang not in gangs]:
            del self._said[gang]
            self._later.pop(gang, None)
