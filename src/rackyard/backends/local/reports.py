"""What ranks say, turned into journal lines: datagrams on the report socket, or lines in their logs."""

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_STEP = re.compile(rb"(?<![a-z])step[=:\s]+(\d+)|(?<![a-z])iteration\s+(\d+)/", re.IGNORECASE)
_LOSS = re.compile(rb"(?<![a-z])loss[=:\s]+([-+0-9.e]+)", re.IGNORECASE)
_LONGEST_LINE = 1 << 16
_BLOCK = 1 << 20
_OLDEST = 5.0


class Fact(NamedTuple):
    """A journal line to be: its kind, how many seconds ago it was said, and its fields."""

    kind: str
    age: float
    fields: dict[str, Any]


def read_report(data: bytes) -> Fact | None:
    """Read one datagram of `rackyard.worker`; None when it is not one."""
    try:
        said = json.loads(data)
        who = {"job": str(said["job"]), "attempt": int(said["attempt"])}
        # The rank's own clock says when; one that is off by more than a queue can explain is not believed.
        age = time.time() - float(said["t"])
        age = age if 0 <= age <= _OLDEST else 0.0
        rank, kind = int(said["rank"]), said["kind"]
        if kind == "step":
            metrics = {str(name): float(value) for name, value in said["metrics"].items()}
            return Fact(
                "StepDone",
                age,
                {**who, "rank": rank, "step": int(said["step"]), "metrics": metrics},
            )
        seconds = float(said.get("seconds", 0.0))
        if kind == "checkpoint":
            step, path = int(said["step"]), str(said["path"])
            return Fact(
                "CheckpointDone",
                age,
                {**who, "step": step, "path": path, "seconds": seconds},
            )
        if kind == "damage":
            return Fact(
                "CheckpointDamaged",
                age,
                {**who, "path": str(said["path"]), "why": str(said["why"])},
            )
        if kind == "resumed":
            return Fact(
                "Resumed",
                age,
                {**who, "rank": rank, "step": int(said["step"]), "seconds": seconds},
            )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return None


class LogTail:
    """Finds steps in the log of a rank that doesn't report them."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path, self._offset, self._rest, self._last = path, offset, b"", -1

    def poll(self, *, final: bool = False) -> Iterator[tuple[int, dict[str, float]]]:
        """The steps logged since the last call; `final` also reads a last line without an end."""
        for line in self._lines(final):
            found = _STEP.search(line)
            if found is None:
                continue
            step = int(found[1] or found[2])
            if step != self._last:
                self._last = step
                yield step, _loss(line)

    def _lines(self, final: bool) -> Iterator[bytes]:
        try:
            if self._path.stat().st_size > self._offset:
                with self._path.open("rb") as file:
                    file.seek(self._offset)
                    while block := file.read(_BLOCK):
                        self._offset += len(block)
                        # Progress bars end their lines with a carriage return.
                        *whole, rest = re.split(rb"[\r\n]", self._rest + block)
                        self._rest = rest[-_LONGEST_LINE:]
                        yield from whole
        except FileNotFoundError:
            return
        if final:
            rest, self._rest = self._rest, b""
            yield rest


def _loss(line: bytes) -> dict[str, float]:
    found = _LOSS.search(line)
    try:
        return {"loss": float(found[1])} if found else {}
    except ValueError:
        return {}


def tail(path: Path, offset: int = 0, *, lines: int = 20, size: int = 4096) -> str:
    """The last lines of the file, of what follows `offset`."""
    try:
        with path.open("rb") as file:
            file.seek(max(offset, os.fstat(file.fileno()).st_size - size))
            data = file.read(size)
    except FileNotFoundError:
        return ""
    return "\n".join(data.decode("utf-8", "replace").splitlines()[-lines:])
