"""One look at all gangs: what has a plan goes on, what lost its place is taken off, what waits is placed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from rackyard.controller.kube.acts import Acts
from rackyard.controller.kube.cache import Cache
from rackyard.controller.kube.gangs import Gang, Unready
from rackyard.controller.kube.going import Going
from rackyard.controller.kube.plans import newest
from rackyard.controller.kube.records import Records
from rackyard.controller.kube.voice import Voice
from rackyard.controller.kube.waiting import Waiting
from rackyard.controller.kube.world import out_of_use
from rackyard.fabric import Site
from rackyard.placement import Columns, Occupancy, Request, Yard, decide

BATCHES = 8
"""Of notes, in a round that nothing waits for: about a second."""


@dataclass
class Round:
    """The gangs of a cluster. `tell` is told what happens to them, once for each change."""

    acts: Acts
    site: Site
    cache: Cache
    tell: Callable[[str, str, str], None]
    act: bool = True
    _columns: tuple[dict[str, str], Columns] | None = None
    _voice: Voice = field(init=False)
    _records: Records = field(init=False)
    _going: Going = field(init=False)
    _waiting: Waiting = field(init=False)

    def __post_init__(self) -> None:
        """What takes long and is always the same is done before a gang waits for it."""
        self._voice = Voice(self.acts, self.cache, self.tell, self.act)
        self._records = Records(self.acts, self.cache, self._voice)
        self._going = Going(self._records, self.site)
        self._waiting = Waiting(self._records, self.site, self.act, self.site.digest())
        decide(Request(1), Yard.on(self._yard(), Occupancy()))

    def look(self, now: datetime) -> float:
        """One round; in how many seconds to look again though nothing happens. What is said is written last."""
        columns = self._yard()  # before anybody waits for it
        changed = self._records.open(now)
        found = self.cache.gangs()
        latest = newest(self.cache.plans.values())
        for key, gang in found.items():
            if isinstance(gang, Unready) and key in changed and gang.reason != "Ended":
                self._records.say(key, gang.reason, gang.message)
        if self.act:
            self._going.on(latest, changed)
            self._records.tidy(latest.keys() | self.cache.gangs().keys())
        self._waiting.place([gang for gang in found.values() if isinstance(gang, Gang)], columns)
        self._tell(now)
        return self._records.soon

    def _tell(self, now: datetime) -> None:
        """Write what was said: a little where gangs have to go on at once, more where they don't."""
        for _ in range(1 if self._records.soon <= 0 else BATCHES):
            pause = self._voice.flush(now)
            if pause > 0:
                break
        self._records.again(pause)

    def _yard(self) -> Columns:
        """The columns of the site, made anew only when a node's state has changed."""
        out = out_of_use(self.site, self.cache.nodes)
        if self._columns is None or self._columns[0] != out:
            self._columns = (out, Columns.of(self.site.with_cordon(out)))
        return self._columns[1]
