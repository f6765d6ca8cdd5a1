"""One tag of a topology file at a time, by NCCL's rules: what ends a name, a value, a tag and a comment.

Read in src/graph/xml.cc (xmlGetToken, xmlGetValue, xmlSkipComment, xmlGetNode), NCCL 2.18 to 2.30.
"""

import re
from dataclasses import dataclass, field

from rackyard.errors import Where
from rackyard.nccl.version import Version
from rackyard.nccl.xmlrefused import TopologyRefused, printable

SLOTS = 16
"""Attributes that one element has room for."""
_ROOM = 255
_NOTES = 200
_NAME = re.compile(rb"[^= >/\n\r]{0,%d}" % _ROOM)
_BLANKS = re.compile(rb"[ \n\r]*")


@dataclass(frozen=True, slots=True)
class Note:
    """Something that NCCL drops or changes without telling; `line` and `column` count from 1."""

    rule: str
    line: int
    column: int
    text: str


@dataclass(slots=True)
class Tag:
    """One tag. `attrs` has the first attribute of each name, `repeats` the later ones; NCCL keeps both."""

    name: str
    line: int
    column: int
    closes: bool = False
    single: bool = False
    attrs: dict[str, str] = field(default_factory=dict)
    repeats: list[tuple[str, str]] = field(default_factory=list)


class TagReader:
    """Walks over the bytes of a file. Raises TopologyRefused where NCCL stops."""

    def __init__(self, data: bytes, file: str, version: Version, original: bytes | None = None) -> None:
        self.data = data
        self.file = file
        self.version = version
        self.at = 0
        self.notes: list[Note] = []
        self.unnoted = 0
        self.comment = ""
        self._original = data if original is None else original
        self._counted = (0, 0, -1)  # bytes looked at, line breaks in them, the last of these

    def place(self, at: int | None = None) -> tuple[int, int]:
        """Line and column of a byte of the original file, by default of the next one to be read."""
        at = self.at if at is None else at
        upto, breaks, last = self._counted if self._counted[0] <= at else (0, 0, -1)
        breaks += self._original.count(b"\n", upto, at)
        last = max(last, self._original.rfind(b"\n", upto, at))
        self._counted = (at, breaks, last)
        return breaks + 1, at - last

    def next_tag(self) -> Tag | None:
        """The next tag that is no comment; None at the end of the file."""
        self.comment = ""
        while True:
            start = _end(_BLANKS, self.data, self.at)
            if start == len(self.data):
                self.at = start
                return None
            if self.data[start] != ord("<"):
                raise self._no_tag(start)
            self.at = start + 1
            name, last = self._word()
            if not name.startswith("!--"):
                return self._tag(start, name, last)
            self.comment = name
            self._comment(start, name, last)

    def _tag(self, start: int, name: str, last: int) -> Tag:
        line, column = self.place(start)
        tag = Tag(name, line, column)
        if name == "" and last == ord("/"):
            tag.closes = True
            tag.name, last = self._word()
            if last != ord(">"):
                message = f"XML Parse error : unexpected trailing {chr(last)} in closing tag {tag.name}"
                raise self.refused(message, self.at - 1, "write a closing tag as </name> without blanks")
            return tag
        while last == ord(" "):
            last = self._attribute(tag)
        if last == ord("/"):
            tag.single = True
            _, last = self._word()
        if last != ord(">"):
            raise self._tag_open(self.at - 1, last)
        return tag

    def _attribute(self, tag: Tag) -> int:
        """Reads one attribute into the tag; the byte after it."""
        start = self.at
        key, last, value = self._key_value()
        if len(tag.attrs) + len(tag.repeats) == SLOTS:
            self._note("extra-attribute", start, f"{printable(key)}: only the first {SLOTS} attributes are kept")
            return last
        if key in tag.attrs:
            tag.repeats.append((key, value or ""))
            if key:
                kept = printable(tag.attrs[key])
                self._note("duplicate-attribute", start, f'{printable(key)} is there twice: "{kept}" counts')
        else:
            tag.attrs[key] = value or ""
            if value is None and key:
                self._note("no-value", start, f"{printable(key)} has no value: read as empty text")
        return last

    def _key_value(self) -> tuple[str, int, str | None]:
        start = self.at
        end = _end(_NAME, self.data, start)
        if end < len(self.data) and self.data[end] == ord("=") and end - start < _ROOM:
            self.at = end + 1
            value, last = self._value()
            return _text(self.data[start:end]), last, value
        word, last = self._word()
        return word, last, None

    def _word(self) -> tuple[str, int]:
        """A name that no value follows, and the byte that ends it."""
        start = self.at
        end = _end(_NAME, self.data, start)
        equals = end < len(self.data) and self.data[end] == ord("=")
        if end - start >= _ROOM - (0 if equals else 1) and start + _ROOM <= len(self.data):
            kept = _text(self.data[start : start + _ROOM - 1])
            message = f"Error : name {kept} too long (max {_ROOM})"
            raise self.refused(message, start, f"shorten the name to {_ROOM - 2} bytes")
        if end == len(self.data):
            raise self._end_of_file()
        name = _text(self.data[start:end])
        if equals:
            message = f"XML Parse : Unexpected value with name {name}"
            fix = "no = may stand in the first word of a comment, in an element's name or after the slash of a tag"
            raise self.refused(message, end, fix)
        if end - start != len(name):
            self._note("nul", start, f"the name ends at its NUL byte: {printable(name)}")
        self.at = end + 1
        return name, self.data[end]

    def _value(self) -> tuple[str, int]:
        """A quoted value, and the byte after it."""
        if self.at == len(self.data):
            raise self._end_of_file()
        quote = self.data[self.at : self.at + 1]
        if quote not in (b'"', b"'"):
            raise self.refused("XML Parse : Expected (double) quote.", self.at, 'put the value in double quotes: x="1"')
        start = self.at + 1
        if self.version.matches_quotes:
            end = self.data.find(quote, start, start + _ROOM - 1)
        else:
            end = self.data.find(b'"', start)
        if end < 0 and (not self.version.matches_quotes or len(self.data) - start < _ROOM):
            raise self._end_of_file()
        if end < 0 or end - start > _ROOM:
            raise self._long_value(start)
        if end + 1 == len(self.data):
            raise self._end_of_file()
        self.at = end + 2
        value = _text(self.data[start:end])
        if len(value) != end - start:
            self._note("nul", start, f"the value ends at its NUL byte: {printable(value)}")
        elif b"&" in self.data[start:end]:
            self._note("entity", start, f"entities are not decoded: {printable(value)}")
        return value, self.data[end + 1]

    def _comment(self, start: int, name: str, last: int) -> None:
        # The last three bytes decide; those of the first word count, but a comment never ends inside the "<!--".
        seen = ("..." + name[3:]).encode("latin-1")[-2:] + bytes([last])
        if seen == b"-->":
            return
        tail = seen[1:] + self.data[self.at : self.at + 2]
        for length in (1, 2):
            if tail[length - 1 : length + 2] == b"-->":
                self.at += length
                return
        end = self.data.find(b"-->", self.at)
        if end < 0:
            self.at = len(self.data)
            raise self.refused("XML Parse error : unterminated comment", start, "end the comment with -->")
        self.at = end + 3

    def _no_tag(self, at: int) -> TopologyRefused:
        char = chr(self.data[at])
        fix = "indent with blanks, not tabs" if char == "\t" else "nothing but blanks and line ends between tags"
        fix = "save the file without a byte order mark" if self.data[at : at + 3] == b"\xef\xbb\xbf" else fix
        return self.refused(f"XML Parse error : expecting '<', got '{char}'", at, fix)

    def _tag_open(self, at: int, last: int) -> TopologyRefused:
        fix = "one blank between attributes, the whole tag in one line"
        if self.data[at - 1 : at + 1] == b"?>" or self.data.rfind(b"<?", 0, at) > self.data.rfind(b">", 0, at):
            fix = "remove the <?xml ...?> line"
        return self.refused(f"XML Parse : expected >, got '{chr(last)}'", at, fix)

    def _long_value(self, start: int) -> TopologyRefused:
        if not self.version.matches_quotes:
            return self.refused("", start, f"shorten the value to {_ROOM} bytes", crashes=True)
        kept = _text(self.data[start : start + _ROOM - 1])
        message = f"Error : value {kept} too long (max {_ROOM})"
        return self.refused(message, start, f"shorten the value to {_ROOM - 2} bytes")

    def _end_of_file(self) -> TopologyRefused:
        return self.refused("XML Parse : Unexpected EOF", len(self.data), "the file is cut off: write it again")

    def refused(self, message: str, at: int, fix: str, *, crashes: bool = False) -> TopologyRefused:
        """The error for a byte of the file."""
        where = Where(self.file, *self.place(min(at, len(self.data))))
        return TopologyRefused(message, where=where, fix=fix, crashes=crashes)

    def _note(self, rule: str, at: int, text: str) -> None:
        line, column = self.place(at) if len(self.notes) < _NOTES else (0, 0)
        self.note(rule, line, column, text)

    def note(self, rule: str, line: int, column: int, text: str) -> None:
        """Keeps a note, up to a number that somebody would read; counts the rest."""
        if len(self.notes) < _NOTES:
            self.notes.append(Note(rule, line, column, text))
        else:
            self.unnoted += 1


def _end(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at


def _text(data: bytes) -> str:
    """Bytes as C text: they end at a NUL."""
    return data.split(b"\0", 1)[0].decode("latin-1")
