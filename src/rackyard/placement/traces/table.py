"""Rows of a delimited text, read one by one, with cells whose complaints name line and column."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn

from rackyard.errors import SpecError, UsageError, Where

MAX_CHARS = 256 * 1024 * 1024
"""The longest trace that is read, in characters. The whole of Helios (four clusters, six months) is 343 MB in four
files."""

MAX_ROWS = 5_000_000
"""Rows that are read of one trace, which take 2 GB of memory. The whole of Helios has 3.4 million."""

MAX_SECONDS = 1e11
"""The largest time in seconds: 3,000 years, and Unix times well inside."""

MAX_GPUS = 10_000_000
"""The largest count of GPUs a row may ask for."""

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,15})?(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)?", re.ASCII)
_ABSENT = frozenset({"", "nan", "none", "null", "nat"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Row:
    """One record: `line` is its first line, `raw` its last line as it stands in the file."""

    file: str
    line: int
    raw: str
    header: Mapping[str, int]
    cells: Sequence[str]

    def text(self, name: str) -> str:
        """The cell under `name`, stripped; empty where the trace has no such column."""
        at = self.header.get(name)
        return "" if at is None else self.cells[at].strip()

    def present(self, name: str) -> bool:
        """Whether the cell says anything: the traces leave it empty, or write NaN or None."""
        return self.text(name).lower() not in _ABSENT

    def number(self, name: str, most: float = MAX_SECONDS) -> float:
        """A number from 0 to `most`. SpecError where it is none."""
        text = self.text(name)
        value = float(text) if _NUMBER.fullmatch(text) else -1.0
        if not 0 <= value <= most:
            self.fail(name, why=f"expected a number from 0 to {most:,.0f}")
        return value

    def whole(self, name: str, most: int = MAX_GPUS) -> int:
        """A whole number from 0 to `most`, also written as `8.0`. SpecError where it is none."""
        value = self.number(name, most)
        if value != int(value):
            self.fail(name, why=f"expected a whole number from 0 to {most:,}")
        return int(value)

    def moment(self, name: str) -> float:
        """Seconds since 1970 of a date and time. SpecError where it is none."""
        value = seconds_of(self.text(name))
        if value is None:
            self.fail(name, why="expected a date and time such as 2020-06-09 18:41:01, from 1970 on")
        return value

    def fail(self, name: str, *, why: str, fix: str = "correct this row, or take it out") -> NoReturn:
        """Complain about the cell under `name`."""
        text = self.text(name)
        shown = text if len(text) <= 40 else f"{text[:39]}…"
        where = Where(self.file, self.line, self._column(self.header[name]))
        raise SpecError(f"{name} is {shown!r}", where=where, why=why, fix=fix)

    def _column(self, at: int) -> int | None:
        """Where a cell starts. Quotes are gone from the cells, so that a row with quotes has no known columns."""
        exact = sum(map(len, self.cells)) + len(self.cells) - 1 == len(self.raw.rstrip("\r\n"))
        return 1 + sum(len(cell) + 1 for cell in self.cells[:at]) if exact else None


def rows(text: str, origin: str) -> Iterator[Row]:
    """The records of a CSV under its header, blank lines passed over.

    Raises:
        SpecError: not CSV, a column named twice, or a row with more or fewer cells than the header.
        UsageError: longer than MAX_CHARS, or more than MAX_ROWS.
    """
    return _rows(text, origin, None)


def tabbed(text: str, origin: str, columns: Sequence[str]) -> Iterator[Row]:
    """The records of a text with tabs between the cells and no header; quotes mean nothing. Raises as `rows` does."""
    return _rows(text, origin, columns)


def header_of(line: str) -> tuple[str, ...]:
    """The column names in a CSV's first line; nothing where it is not CSV."""
    try:
        return tuple(cell.strip() for cell in next(csv.reader([line.removeprefix("\ufeff")], strict=True), []))
    except csv.Error:
        return ()


def seconds_of(text: str) -> float | None:
    """Seconds since 1970 of `2020-06-09 18:41:01`, also with a zone; without one it counts as UTC. None: no such."""
    if not _MOMENT.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (moment - _EPOCH).total_seconds()
    except (ValueError, OverflowError):
        return None
    return seconds if seconds >= 0 else None


def check_size(text: str, origin: str) -> None:
    """UsageError where `text` is longer than MAX_CHARS."""
    if len(text) > MAX_CHARS:
        fix = f"cut it into parts of at most {MAX_CHARS // 2**20} MiB"
        raise UsageError("the trace is too large", where=Where(origin), why=f"{len(text):,} characters", fix=fix)


class _Lines:
    """The lines of a text, one at a time, with their ends; `last` is the one given out last."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0
        self.last = ""

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        if self._at >= len(self._text):
            raise StopIteration
        end = self._text.find("\n", self._at) + 1 or len(self._text)
        self.last, self._at = self._text[self._at : end], end
        return self.last


def _rows(text: str, origin: str, columns: Sequence[str] | None) -> Iterator[Row]:
    check_size(text, origin)
    lines = _Lines(text)
    header = None if columns is None else _header(columns, origin, 1)
    for count, (line, cells) in enumerate(_records(lines, origin, tabs=columns is not None)):
        if count > MAX_ROWS:
            fix = f"cut it into parts of at most {MAX_ROWS:,} rows"
            raise UsageError("the trace has too many rows", where=Where(origin, line), fix=fix)
        if header is None:
            header = _header(cells, origin, line)
            continue
        if len(cells) != len(header):
            why = f"this row has {len(cells)} cells, its header {len(header)}"
            raise SpecError("a row does not fit the header", where=Where(origin, line), why=why, fix=_WHOLE)
        yield Row(origin, line, lines.last, header, cells)


def _records(lines: _Lines, origin: str, *, tabs: bool) -> Iterator[tuple[int, list[str]]]:
    """Line and cells of every record that is not blank."""
    reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else csv.reader(lines, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            where = Where(origin, reader.line_num)
            raise SpecError("this line can't be read as CSV", where=where, why=str(error), fix=_WHOLE) from None
        if len(cells) > 1 or "".join(cells).strip():
            yield line, cells


def _header(cells: Sequence[str], origin: str, line: int) -> Mapping[str, int]:
    names = [cell.strip() for cell in cells]
    header = {name: at for at, name in enumerate(names)}
    if len(header) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SpecError(f"the column {twice[:40]!r} stands twice in the header", where=Where(origin, line), fix=_WHOLE)
    return header


_WHOLE = "take the file as it was published, whole"
