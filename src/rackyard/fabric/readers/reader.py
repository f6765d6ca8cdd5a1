"""What a reader is: it knows its own kind of capture when it sees one, and turns it into facts."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from rackyard.fabric.facts import Facts

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

MAX_BYTES = 512 * 1024 * 1024
"""The largest capture that is read. A fabric of 100,000 HCAs is 60 MB of ibnetdiscover."""


@dataclass(frozen=True, slots=True)
class Capture:
    """A file as it was captured. `node` is the host it was taken on, empty when that is not known."""

    file: str
    data: bytes
    node: str = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """`knows(head, file)` looks at the first 4 KiB as text; `read` gives facts, or raises RackyardError with a line."""

    name: str
    knows: Callable[[str, str], bool]
    read: Callable[[Capture], Facts]


def head_of(capture: Capture) -> str:
    """The first 4 KiB as `text_of` would give them, for `Reader.knows`."""
    return _plain(capture.data[:4096])


def text_of(capture: Capture) -> str:
    """The whole capture as text. Bytes that are not UTF-8 become U+FFFD; CRLF, terminal colours and a byte order mark
    are taken off.
    """
    return _plain(capture.data)


def _plain(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if "\x1b[" in text:
        text = _COLOURS.sub("", text)
    return text.removeprefix("\ufeff")
