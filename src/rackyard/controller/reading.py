"""Reading the store without writing to it: what `ps`, `why` and the like need.

SQLAlchemy takes a third of a second of CPU to import. A controller pays that once; a command that only looks would
pay it every time, so this is the standard library's sqlite3, with queries that `controller.store` shares.
"""

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackyard.errors import RackyardError, UsageError

if TYPE_CHECKING:
    from rackyard.jobs.events import Record
    from rackyard.jobs.state import JobState

STORE_FILE = "rackyard.db"
LOCK_FILE = "controller.lock"
JOB_COLUMNS = ("job", "name", "phase", "gpus", "attempt", "step", "submitted", "updated", "reason")
OVER = ("succeeded", "failed", "cancelled")

_JOBS = f"SELECT {', '.join(JOB_COLUMNS)} FROM jobs"  # noqa: S608 - our own names


class Reader:
    """Events and projections, read only. Without a store file there are simply no jobs."""

    def __init__(self, path: Path) -> None:
        """Nothing is opened or created yet."""
        self.path = path

    def rows(self, query: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """The rows of a query with `:name` parameters. RackyardError when the store can't be read."""
        if not self.path.exists():
            return []
        try:
            with contextlib.closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", 30, uri=True)) as link:
                return link.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise unreadable(self.path, error) from error

    def records(self, stream: str, after: int = 0) -> "list[Record]":
        """The stream's records with a sequence number above `after`."""
        from rackyard.jobs.events import Record

        query = "SELECT seq, wall, mono, kind, body FROM events WHERE stream = :stream AND seq > :after ORDER BY seq"
        return [
            Record(stream=stream, seq=seq, wall=wall, mono=mono, event=self._event(stream, seq, kind, body))
            for seq, wall, mono, kind, body in self.rows(query, {"stream": stream, "after": after})
        ]

    def _event(self, stream: str, seq: int, kind: str, body: bytes) -> Any:
        import msgspec

        from rackyard.jobs.events import decode

        try:
            return decode(kind, body)
        except (KeyError, msgspec.MsgspecError) as error:
            raise RackyardError(
                "the store holds an event that this version of Rackyard can't read",
                where=f"{self.path}, {stream} event {seq} ({kind})",
                why=str(error),
                fix="use the version that wrote it, or another state folder (--state)",
            ) from error

    def state(self, job: str) -> "JobState":
        """The job's state. UsageError when there is no such job."""
        from rackyard.jobs.state import fold

        state = fold(self.records(job))
        if state is None:
            raise self._unknown(job)
        return state

    def refresh(self, state: "JobState") -> "tuple[JobState, list[Record]]":
        """The state with what others stored since, and those records."""
        from rackyard.jobs.state import apply

        new = self.records(state.job, after=state.seq)
        for record in new:
            state = apply(record, state)
        return state, new

    def resolve(self, name: str) -> str:
        """A job's id from its id or its name (the newest job of that name). UsageError when there is none."""
        found = self.rows(
            "SELECT job FROM jobs WHERE job = :name OR name = :name ORDER BY rowid DESC LIMIT 1", {"name": name}
        )
        if not found:
            raise self._unknown(name)
        return str(found[0][0])

    def _unknown(self, name: str) -> UsageError:
        import difflib

        known = [
            str(value)
            for row in self.rows("SELECT job, name FROM jobs ORDER BY rowid DESC LIMIT 1000", {})
            for value in row
        ]
        near = difflib.get_close_matches(name, known, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        return UsageError(f"no job {name!r}", where=str(self.path), fix=f"{meant}`rackyard ps -a` lists the jobs")

    def jobs(self, *, live_only: bool = False) -> list[dict[str, Any]]:
        """The projection, newest job first."""
        # By row number, which grows as jobs come in, and not by time: the clock may have been set back between.
        live = f" WHERE phase NOT IN {OVER}" if live_only else ""
        return [
            dict(zip(JOB_COLUMNS, row, strict=True)) for row in self.rows(_JOBS + live + " ORDER BY rowid DESC", {})
        ]

    def count(self) -> int:
        """How many jobs there are, finished ones included."""
        found = self.rows("SELECT count(*) FROM jobs", {})
        return int(found[0][0]) if found else 0

    def cursor(self) -> dict[str, int]:
        """How far each journal has been read."""
        return {str(journal): int(at) for journal, at in self.rows('SELECT journal, "offset" FROM cursors', {})}

    def setting(self, key: str) -> str | None:
        """A stored setting, e.g. the site's YAML."""
        found = self.rows("SELECT value FROM settings WHERE key = :key", {"key": key})
        return str(found[0][0]) if found else None


def controller_pid(folder: Path) -> int | None:
    """The process that controls a state folder now, as far as can be told without getting in its way."""
    try:
        holder = int((folder / LOCK_FILE).read_text() or 0)
        # The state follows the name, which stands in parentheses and may hold anything.
        life = Path(f"/proc/{holder}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return None
    return holder if life not in "ZX" else None


def unreadable(path: Path, error: Exception) -> RackyardError:
    """The error for a store that can't be read."""
    return RackyardError(
        "the store can't be read",
        where=str(path),
        why=str(getattr(error, "orig", None) or error),
        fix="check the folder given by --state (its disk, its permissions, whether it is a store at all)",
    )
