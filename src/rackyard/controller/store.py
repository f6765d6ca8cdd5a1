"""The event store: streams of events, and nothing that could not be told again from them.

One stream a job, and `site` for the site itself. `jobs` is a projection, one row a job, written in the same
transaction, so that listing a thousand jobs does not fold a thousand streams. `cursors` says how far the nodes'
journals have been read; it moves in the same transaction as the events made of what was read.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from rackyard.controller.reading import Reader, unreadable
from rackyard.errors import RackyardError
from rackyard.jobs.events import Event, Record, Submitted, encode
from rackyard.jobs.state import JobState, apply
from rackyard.jobs.why import why

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


class Store(Reader):
    """Events in SQLite (WAL). Every method is one transaction."""

    def __init__(self, path: Path) -> None:
        """Open or create the store. RackyardError when the file can't be opened or is no store."""
        super().__init__(path)
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
        with self._writing() as connection:
            for stream, events in batch.items():
                if events:
                    written[stream] = self._append(connection, stream, events)
            for journal, offset in (cursor or {}).items():
                connection.execute(_upsert(_cursors, {"journal": journal, "offset": offset}))
        return written

    def create(self, event: Submitted) -> bool:
        """Store a new job, event and projection in one transaction. False, and nothing stored, when the id is taken."""
        with self._writing() as connection:
            taken = sa.select(sa.func.count()).select_from(_events).where(_events.c.stream == event.job)
            if connection.execute(taken).scalar():
                return False
            (record,) = self._append(connection, event.job, [event])
            state = apply(record, None)
            connection.execute(_upsert(_jobs, _row(state, why(state).reason)))
        return True

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """One transaction that writes. RackyardError when the disk or a lock refuses; then nothing was stored."""
        try:
            with self._writer.begin() as connection:
                yield connection
        except sa.exc.DatabaseError as error:
            raise RackyardError(
                "the event could not be stored; nothing was done",
                where=str(self.path),
                why=str(error.orig),
                fix="free space on the disk or end whoever locks the store; `rackyard up` then goes on where it was",
            ) from error

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
        with self._writing() as connection:
            connection.execute(_upsert(_jobs, _row(state, reason)))

    def rows(self, query: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """As `Reader.rows`, over the writer's own connections."""
        try:
            with self._engine.connect() as connection:
                return connection.execute(sa.text(query), values).fetchall()
        except sa.exc.DatabaseError as error:
            raise unreadable(self.path, error) from error

    def set_setting(self, key: str, value: str) -> None:
        """Store a setting."""
        with self._writing() as connection:
            connection.execute(_upsert(_values, {"key": key, "value": value}))


def _row(state: JobState, reason: str) -> dict[str, object]:
    attempt = state.attempt
    return {
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
