"""JSON captures: decoding with errors that have line and column, and the line on which an object starts."""

import re
from typing import TypeVar

import msgspec

from rackyard.errors import UsageError, Where
from rackyard.fabric.readers.reader import Capture

_BYTE = re.compile(r" ?\(byte ([0-9]+)\)")
_BOM = b"\xef\xbb\xbf"

_Shape = TypeVar("_Shape")


def json_bytes(capture: Capture) -> bytes:
    """The capture without a byte order mark."""
    return capture.data.removeprefix(_BOM)


def decode(capture: Capture, data: bytes | msgspec.Raw, shape: type[_Shape], *, line: int = 1) -> _Shape:
    """`data` as `shape`. `line` is that on which it starts in the capture.

    Raises:
        UsageError: malformed or truncated, with line and column; or not of that shape, with the path inside.
    """
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        text = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        at = _BYTE.search(text)
        offset = int(at[1]) if at else len(bytes(data)) if "truncated" in text else None
        raise UsageError(
            "the JSON can't be read",
            where=_where(capture.file, bytes(data), offset, line),
            why=_BYTE.sub("", text),
            fix="capture it again and keep the whole answer",
        ) from None


def _where(file: str, data: bytes, offset: int | None, line: int) -> Where:
    if offset is None:
        return Where(file, line)
    above = data.count(b"\n", 0, offset)
    # Columns count characters, as editors do; bytes that begin no character are not counted.
    begun = data[data.rfind(b"\n", 0, offset) + 1 : offset].decode("utf-8", "replace")
    return Where(file, line + above, len(begun) + 1)


class Lines:
    """Lines of objects, asked for in the order in which they stand: a walk over the text once, not once for each."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._line = 1

    def of(self, part: bytes | msgspec.Raw) -> int:
        """The line, from 1, on which the next `part` starts; that of the one before when there is none."""
        at = self._data.find(bytes(part), self._at)
        if at > self._at:
            self._line += self._data.count(b"\n", self._at, at)
            self._at = at
        return self._line
