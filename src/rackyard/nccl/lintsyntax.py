"""Finds every spot where NCCL's reader stops: after each, the cause is blanked and the file is read again.

Blanks take the place of what is removed, so lines and columns stay those of the file.
"""

import re
from dataclasses import dataclass

from rackyard.errors import Where
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import Parsed, read_tree
from rackyard.nccl.xmlrefused import TopologyRefused
from rackyard.nccl.xmltoken import TagReader

_ROUNDS = 12
_ROOM = 4096
_NO_ELEMENTS = (
    ("prolog", re.compile(rb"<\?[^<>]{0,1000}\?>")),
    ("doctype", re.compile(rb"<!DOCTYPE[^>]{0,1000}>", re.IGNORECASE)),
    ("cdata", re.compile(rb"<!\[CDATA\[.{0,1000}?\]\]>", re.DOTALL)),
)
_TAG = re.compile(rb"<[a-z][^<>]{0,5000}>")


@dataclass(frozen=True, slots=True)
class Stop:
    """A spot where NCCL stops: the rule's name, the line of the cause, and NCCL's refusal."""

    rule: str
    line: int
    refusal: TopologyRefused


@dataclass(frozen=True, slots=True)
class Reading:
    """What could be read. `parsed` is None if the rest could not be read after the last stop."""

    stops: tuple[Stop, ...]
    parsed: Parsed | None


def read_on(data: bytes, file: str, version: Version) -> Reading:
    """Reads as far as it can be made out what is meant."""
    stops: list[Stop] = []
    text: bytes = data
    room = version.file_nodes
    for _ in range(_ROUNDS):
        try:
            return Reading(tuple(stops), read_tree(TagReader(text, file, version, data), room))
        except TopologyRefused as refusal:
            at = _offset(data, refusal.where)
            if refusal.nccl_message.endswith(f" {room} nodes") and room < _ROOM:
                stops.append(Stop("node-limit", data.count(b"\n", 0, at) + 1, refusal))
                room = _ROOM
                continue
            rule, at, repaired = _repair(text, at, refusal.nccl_message)
            stops.append(Stop(rule, data.count(b"\n", 0, at) + 1, refusal))
            if repaired is None:
                return Reading(tuple(stops), None)
            text = repaired
    return Reading(tuple(stops), None)


def _repair(text: bytes, at: int, message: str) -> tuple[str, int, bytes | None]:
    """The name of the cause, where it is, and the text without it; None if that can't be told."""
    if text.startswith(b"\xef\xbb\xbf"):
        return "byte-order-mark", 0, b"   " + text[3:]
    start = max(text.rfind(b"<", 0, at + 1), 0)
    late = message.startswith(("XML Parse : unterminated", "XML Mismatch"))
    for rule, pattern in _NO_ELEMENTS:
        # NCCL may take these for an element that is never closed, and only notices far below.
        found = pattern.search(text) if late else pattern.match(text, start)
        if found:
            return rule, found.start(), _blank(text, found.start(), found.end())
    if text[at : at + 1] == b"\t":
        return "tab", at, text.replace(b"\t", b" ")
    if text[at : at + 1] in (b"\n", b"\r") and _TAG.match(text, start):
        return "line-break-in-tag", at, _TAG.sub(_one_line, text)
    return _by_message(message), at, None


def _one_line(found: re.Match[bytes]) -> bytes:
    return found[0].replace(b"\n", b" ").replace(b"\r", b" ").replace(b"\t", b" ")


def _blank(text: bytes, start: int, end: int) -> bytes:
    blanked = bytes(10 if byte == 10 else 32 for byte in text[start:end])
    return text[:start] + blanked + text[end:]


def _offset(data: bytes, where: Where | str | None) -> int:
    """The byte at a place of the file."""
    if not isinstance(where, Where) or where.line is None or where.column is None:
        return 0
    at = 0
    for _ in range(where.line - 1):
        at = data.find(b"\n", at) + 1
    return at + where.column - 1


_MESSAGES: tuple[tuple[str, str], ...] = (
    ("XML Mismatch", "closing-tag"),
    ("XML Parse : unterminated", "not-closed"),
    ("XML Parse : Unexpected EOF", "cut-off"),
    ("XML Parse error : unterminated comment", "comment"),
    ("XML Parse : Unexpected value", "equals-sign"),
    ("XML Parse : Expected (double) quote", "no-quote"),
    ("Attribute version", "version"),
    ("XML Topology has wrong version", "version"),
    ("Error : name", "too-long"),
    ("Error : value", "too-long"),
    ("XML Parse error : expecting", "text"),
    ("XML Parse error : unexpected trailing", "closing-tag"),
)


def _by_message(message: str) -> str:
    return next((rule for start, rule in _MESSAGES if message.startswith(start)), "syntax")
