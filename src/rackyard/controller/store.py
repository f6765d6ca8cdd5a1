"""The event store: streams of events, and nothing that could not be told again from them.

One stream a job, and `site` for the site itself. `jobs` is a projection, one row a job, written in the same
transaction, so that listing a thousand jobs does not fold a thousand streams. `cursors` says how far the nodes'
journals have been read; it moves in the same transaction as the events made of what was read.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from rackyard.errors import RackyardError, UsageError
from rackyard.jobs.events import Event, Record, decode, encode
from rackyard.jobs.state import JobState, apply, fold

_meta = sa.MetaData()
_events = sa.Table(
    "events",
    _meta,
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("wall", sa.Float, nullable=False),
    sa.Column("mono", sa.Float, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
_jobs = sa.Table(
    "jobs",
    _meta,
    sa.Column("job", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, index=True),
    sa.Column("phase", sa.Text, nullable=False, index=True),
    sa.Column("gpus", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("submitted", sa.Float, nullable=False),
    sa.Column("updated", sa.Float, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)
_cursors = sa.Table(
    "cursors", _meta, sa.Column("journal", sa.Text, primary_key=True), sa.Column("offset", sa.Integer, nullable=False)
)
_values = sa.Table(
    "settings", _meta, sa.Column("key", sa.Text, primary_key=True), sa.Column("value", sa.Text, nullable=False)
)


class Store:
    """Events in SQLite (WAL). Every method is one transaction."""

    def __init__(self, path: Path) -> None:
        """Open or create the store. RackyardError when the file can't be opened or is no store."""
        self.path = path
        self._engine = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})
        sa.event.listen(self._engine, "connect", _configure)
        sa.event.listen(self._engine, "begin", _begin)
        self._writer = self._engine.execution_options(rackyard_writes=True)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _meta.create_all(self._writer)
        except (sa.exc.DatabaseError, OSError) as error:
            raise RackyardError(
                "the store can't be opened",
                where=str(path),
                why=str(getattr(error, "orig", None) or error),
                fix="check the folder given by --state (its disk, its permissions, whether it is a store at all)",
            ) from error

    def append(self, stream: str, events: Sequence[Event], *, cursor: Mapping[str, int] | None = None) -> list[Record]:
        """Store events at the end of a stream, with the journal cursor if given, all or nothing."""
        return self.commit({stream: events}, cursor=cursor).get(stream, [])

    def commit(
        self, batch: Mapping[str, Sequence[Event]], *, cursor: Mapping[str, int] | None = None
    ) -> dict[str, list[Record]]:
        """Store events of several streams in one transaction."""
        written: dict[str, list[Record]] = {}
        try:
            with self._writer.begin() as connection:
                for stream, events in batch.items():
                    if events:
                        written[stream] = self._append(connection, stream, events)
                for journal, offset in (cursor or {}).items():
                    connection.execute(_upsert(_cursors, {"journal": journal, "offset": offset}))
        except sa.exc.OperationalError as error:
            raise RackyardError(
                "the event could not be stored; nothing was done",
                where=str(self.path),
                why=str(error.orig),
                fix="free space on the disk or end whoever locks the store; the job goes on where it was",
            ) from error
        return written

    def _append(self, connection: sa.Connection, stream: str, events: Sequence[Event]) -> list[Record]:
        last = connection.execute(sa.select(sa.func.max(_events.c.seq)).where(_events.c.stream == stream)).scalar()
        wall, mono = time.time(), time.monotonic()
        records = [
            Record(stream=stream, seq=seq, wall=wall, mono=mono, event=event)
            for seq, event in enumerate(events, start=(last or 0) + 1)
        ]
        rows = [
            {
                "stream": record.stream,
                "seq": record.seq,
                "wall": wall,
                "mono": mono,
                "kind": type(record.event).__name__,
                "body": encode(record.event),
            }
            for record in records
        ]
        connection.execute(sa.insert(_events), rows)
        return records

    def project(self, state: JobState, reason: str) -> None:
        """Refresh the job's row in the projection that `ps` reads."""
        attempt = state.attempt
        row = {
            "job": state.job,
            "name": state.name,
            "phase": state.phase.value,
            "gpus": state.gpus,
            "attempt": attempt.number if attempt else 0,
            "step": state.best_step,
            "submitted": state.submitted.wall,
            "updated": time.time(),
            "reason": reason,
        }
        with self._writer.begin() as connection:
            connection.execute(_upsert(_jobs, row))

    def records(self, stream: str, after: int = 0) -> list[Record]:
        """The stream's records with a sequence number above `after`."""
        query = sa.select(_events).where(_events.c.stream == stream, _events.c.seq > after).order_by(_events.c.seq)
        with self._engine.connect() as connection:
            return [
                Record(stream=row.stream, seq=row.seq, wall=row.wall, mono=row.mono, event=decode(row.kind, row.body))
                for row in connection.execute(query)
            ]

    def state(self, job: str) -> JobState:
        """The job's state. UsageError when there is no such job."""
        state = fold(self.records(job))
        if state is None:
            raise UsageError(f"no job {job!r}", where=str(self.path), fix="`rackyard ps` lists the jobs")
        return state

    def refresh(self, state: JobState) -> tuple[JobState, list[Record]]:
        """The state with what others stored since, and those records."""
        new = self.records(state.job, after=state.seq)
        for record in new:
            state = apply(record, state)
        return state, new

    def resolve(self, name: str) -> str:
        """A job's id from its id or its name (the newest job of that name). UsageError when there is none."""
        query = (
            sa.select(_jobs.c.job)
            .where((_jobs.c.job == name) | (_jobs.c.name == name))
            .order_by(_jobs.c.submitted.desc())
            .limit(1)
        )
        with self._engine.connect() as connection:
            found = connection.execute(query).scalar()
        if found is None:
            raise UsageError(f"no job {name!r}", where=str(self.path), fix="`rackyard ps` lists the jobs")
        return str(found)

    def jobs(self, *, live_only: bool = False) -> list[Mapping[str, object]]:
        """The projection, newest job first."""
        query = sa.select(_jobs).order_by(_jobs.c.submitted.desc())
        if live_only:
            query = query.where(_jobs.c.phase.not_in(("succeeded", "failed", "cancelled")))
        with self._engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def cursor(self) -> dict[str, int]:
        """How far each journal has been read."""
        with self._engine.connect() as connection:
            return {row.journal: row.offset for row in connection.execute(sa.select(_cursors))}

    def setting(self, key: str) -> str | None:
        """A stored setting, e.g. the site's YAML."""
        with self._engine.connect() as connection:
            value = connection.execute(sa.select(_values.c.value).where(_values.c.key == key)).scalar()
        return None if value is None else str(value)

    def set_setting(self, key: str, value: str) -> None:
        """Store a setting."""
        with self._writer.begin() as connection:
            connection.execute(_upsert(_values, {"key": key, "value": value}))


def _upsert(table: sa.Table, row: Mapping[str, object]) -> sa.Executable:
    """Insert the row, or replace the one with its primary key."""
    keys = [column.name for column in table.primary_key]
    return insert(table).values(row).on_conflict_do_update(index_elements=keys, set_=dict(row))


def _begin(connection: sa.Connection) -> None:
    # A writer takes its lock first, so that reading the last sequence number and adding the next is one act.
    writes = connection.get_execution_options().get("rackyard_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _configure(connection: object, _record: object) -> None:
    # WAL: readers (`ps`, `why`) never wait for the controller. FULL: an event that was acted on is on the disk.
    cursor = connection.cursor()  # type: ignore[attr-defined]
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()
    connection.isolation_level = None  # type: ignore[attr-defined]  # we say BEGIN ourselves
