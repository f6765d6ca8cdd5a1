"""Bytes that a command was given: a file, or `-` for standard input. Whatever can't be read is one UsageError."""

import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

STDIN = "-"
_PIECE = 256 * 1024


def read_bytes(path: Path) -> bytes:
    """The whole file. UsageError when it can't be read, or is larger than any capture that is read."""
    from rackyard.errors import UsageError
    from rackyard.fabric.readers.reader import MAX_BYTES

    data = read_at_most(path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UsageError("the file is too large", where=str(path), why=f"more than {MAX_BYTES // 2**20} MiB")
    return data


def read_at_most(path: Path, limit: int) -> bytes:
    """The first `limit` bytes. UsageError when they can't be read."""
    from rackyard.errors import UsageError

    if str(path) == STDIN:
        if sys.stdin is None:
            raise UsageError("there is no standard input", fix="give a file")
        return _bounded(sys.stdin.buffer, limit)
    try:
        with path.open("rb", buffering=0) as handle:
            size = os.fstat(handle.fileno()).st_size
            return handle.readall() if 0 < size < limit else _bounded(handle, limit)
    except IsADirectoryError:
        raise UsageError("a file is wanted here", where=str(path), why="it is a folder") from None
    except OSError as error:
        raise UsageError("the file can't be read", where=str(path), why=error.strerror or str(error)) from None


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None:
        """At most so many bytes."""


def _bounded(handle: _Readable, limit: int) -> bytes:
    # Piece by piece: `read(limit)` takes room for all of it first, be the file ever so small.
    parts = []
    while limit > 0 and (part := handle.read(min(limit, _PIECE))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def one_of(name: str, names: Sequence[str], what: str) -> str:
    """`name` when it is one of `names`. UsageError with the nearest one, or with some of them, when it is not."""
    from rackyard.errors import UsageError

    if name in names:
        return name
    near = difflib.get_close_matches(name, names, 1)
    some = f"one of {some_of(names)}" if names else f"the site has no {what}s"
    raise UsageError(f"there is no {what} {name!r}", fix=f"did you mean {near[0]}?" if near else some)


def some_of(names: Sequence[str], shown: int = 5) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def counted(number: int, noun: str, many: str = "") -> str:
    """A number with its noun, e.g. `1 node`, `18 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {many or noun + 's'}"
