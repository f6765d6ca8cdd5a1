"""What a reader keeps while it goes through a trace: jobs, dropped rows, and how often it had to assume something."""

from collections import Counter
from dataclasses import replace

from rackyard.placement.traces.job import Dropped, Trace, TraceJob

NO_GPU = "no GPU"
NEVER_RAN = "never scheduled"
NO_TIME = "no running time"
STILL_RUNNING = "no end: still running when the log was taken, or lost from it"
TWICE = "a job of this name came before"


class Gather:
    """Collects one trace. Names stay unique, for everything later finds jobs by name."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.jobs: list[TraceJob] = []
        self._dropped: list[Dropped] = []
        self._names: set[str] = set()
        self._counts: Counter[str] = Counter()

    def drop(self, line: int, why: str) -> None:
        """This row gives no job."""
        self._dropped.append(Dropped(self.origin, line, why))

    def usable(self, line: int, name: str, gpus: int, duration: float) -> bool:
        """Whether these make a job; the row is dropped where not."""
        why = NO_GPU if gpus < 1 else NO_TIME if duration <= 0 else TWICE if name in self._names else ""
        if why:
            self.drop(line, why)
            return False
        self._names.add(name)
        return True

    def count(self, what: str) -> None:
        """One more row of which `what` was assumed."""
        self._counts[what] += 1

    def shift(self, start: float) -> None:
        """Take `start` for second 0 of the trace, where the jobs were gathered with times of a calendar."""
        for at, job in enumerate(self.jobs):
            self.jobs[at] = replace(job, submit=max(0.0, job.submit - start))

    def trace(self, source: str, *notes: str) -> Trace:
        """The trace, with `notes` and the counted assumptions."""
        counted = (f"{what}: {count:,} row{'s' if count > 1 else ''}" for what, count in self._counts.items())
        return Trace(tuple(self.jobs), source, tuple(self._dropped), (*notes, *counted))
