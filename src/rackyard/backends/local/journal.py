"""The journal of a node: one JSON line a fact, only ever appended to. The one channel by which facts go up.

Whoever reads keeps a byte offset; a reader that is killed and started again reads on from the offset it kept.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Journal:
    """The writing end. One `write` a line, so that a reader never sees two halves mixed."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._pending = b""
        self.on_write: Callable[[], None] = lambda: None
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            # The last writer died within a line: end it, and readers skip it.
            self._pending = b"\n"

    def write(self, kind: str, *, age: float = 0.0, **fields: Any) -> None:
        """Append a fact that happened `age` seconds ago."""
        line = {
            "wall": time.time() - age,
            "mono": time.monotonic() - age,
            "kind": kind,
            **fields,
        }
        self._pending += json.dumps(line, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write what a full disk has kept back. What is not written stays here and is tried again."""
        if not self._pending:
            return
        try:
            written = os.write(self._fd, self._pending)
        except OSError as error:
            sys.stderr.write(f"journal: {error}\n")
            return
        self._pending = self._pending[written:]
        self.on_write()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def read(path: Path, offset: int, limit: int = 4 << 20) -> tuple[list[Line], int]:
    """The whole lines from byte `offset` on, at most `limit` bytes of them (but one line at least)."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(limit)
            if len(data) == limit and b"\n" not in data:
                data += file.readline()
    except FileNotFoundError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    return list(_parse(whole)), offset + len(whole)


def scan(path: Path, *kinds: str) -> Iterator[Line]:
    """Every line of these kinds, from the beginning."""
    marks = [f'"kind":"{kind}"'.encode() for kind in kinds]
    try:
        with path.open("rb") as file:
            for line in file:
                if any(mark in line for mark in marks) and line.endswith(b"\n"):
                    yield from _parse(line)
    except FileNotFoundError:
        return


def _parse(data: bytes) -> Iterator[Line]:
    for line in data.splitlines():
        try:
            fact = json.loads(line)
        except ValueError:
            # A line cut short by the death of its writer says nothing.
            continue
        if isinstance(fact, dict) and "kind" in fact:
            yield fact
