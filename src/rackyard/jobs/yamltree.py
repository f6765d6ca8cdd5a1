"""YAML text to plain values, with the line and column of every key and value.

This composes the parser's events itself, because a job file comes from anybody: depth and number of nodes are
bounded while reading, anchors, aliases, tags and directives are refused (so nothing can expand and no class is
ever named), and a key that is there twice is an error instead of the last one winning.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from ruamel.yaml.reader import ReaderError

from rackyard.errors import SpecError, Where
from rackyard.jobs.specchecks import Path

MAX_DEPTH = 16
MAX_NODES = 20_000
MAX_DIGITS = 18

# The core schema of YAML 1.2.2, section 10.3.2.
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


@dataclass
class Tree:
    """A file's values and where each was written."""

    file: str
    value: Any = None
    keys: dict[Path, Where] = field(default_factory=dict)
    values: dict[Path, Where] = field(default_factory=dict)
    raw: dict[Path, str] = field(default_factory=dict)
    """Scalars as written, for the places where `010` must not become a number."""

    def where(self, path: Path, key: bool = False) -> Where:
        """Where `path` is written, or the nearest part of it that is in the file."""
        table = self.keys if key else self.values
        while path and path not in table:
            path = path[:-1]
            table = self.values
        return table.get(path) or Where(self.file, 1, 1)


def read_tree(text: str, file: str) -> Tree:
    """Read one YAML document.

    Raises:
        SpecError: not YAML, or YAML with something refused here; with line and column.
    """
    tree = Tree(file)
    parser = YAML(typ="safe", pure=True)
    try:
        _Composer(tree, iter(parser.parse(text))).document()
    except SpecError:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = Where(file, mark.line + 1, mark.column + 1) if mark else Where(file)
        raise SpecError("not valid YAML", where=where, why=_reason(error)) from None
    except ReaderError as error:
        line, column = _position(text, error.position)
        why = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        raise SpecError("not valid YAML", where=Where(file, line, column), why=why) from None
    except (YAMLError, ValueError, LookupError, OverflowError, ArithmeticError, AttributeError, TypeError) as error:
        # The parser leaks these on a few malformed inputs, such as an escape beyond Unicode.
        raise SpecError("not valid YAML", where=Where(file), why=f"the YAML parser failed: {error}") from None
    return tree


def _reason(error: MarkedYAMLError) -> str:
    parts = [str(part) for part in (error.context, error.problem) if part]
    return ", ".join(parts) or "it can't be parsed"


def _position(text: str, index: int) -> tuple[int, int]:
    before = text[:index]
    return before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1


class _Composer:
    """Folds the parser's events into a tree. Recursion is bounded by MAX_DEPTH."""

    def __init__(self, tree: Tree, events: Iterator[Event]) -> None:
        self.tree = tree
        self.events = events
        self.nodes = 0

    def fail(self, event: Event, what: str, fix: str | None = None) -> NoReturn:
        raise SpecError(what, where=self.at(event), fix=fix)

    def at(self, event: Event) -> Where:
        mark = event.start_mark
        return Where(self.tree.file, mark.line + 1, mark.column + 1)

    def document(self) -> None:
        next(self.events)  # the start of the stream
        start = next(self.events)
        if isinstance(start, StreamEndEvent):
            return
        if isinstance(start, DocumentStartEvent) and (start.version or start.tags):
            self.fail(start, "YAML directives are not supported in a job file", "leave the % line out")
        self.tree.value = self.node(next(self.events), (), 0)
        next(self.events)  # the end of the document
        after = next(self.events)
        if not isinstance(after, StreamEndEvent):
            self.fail(after, "more than one YAML document", "one job a file: leave out the second --- and what follows")

    def node(self, event: Event, path: Path, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self.fail(event, f"more than {MAX_NODES:,} values in one job file")
        if depth > MAX_DEPTH:
            self.fail(event, f"nested more than {MAX_DEPTH} deep")
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
            self.fail(event, "anchors and aliases are not supported in a job file", "write the value out")
        if getattr(event, "tag", None) is not None:
            self.fail(event, "tags (!...) are not supported in a job file", "leave it out")
        self.tree.values[path] = self.at(event)
        if isinstance(event, MappingStartEvent):
            return self.mapping(path, depth)
        if isinstance(event, SequenceStartEvent):
            return self.sequence(path, depth)
        if isinstance(event, ScalarEvent):
            self.tree.raw[path] = event.value
            return self.scalar(event)
        self.fail(event, "not valid YAML")

    def mapping(self, path: Path, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            if not isinstance(event, ScalarEvent) or event.anchor or event.tag:
                self.fail(event, "keys must be plain text")
            key = event.value
            if key in result:
                first = self.tree.keys[*path, key]
                self.fail(event, f"{key[:60]!r} is given twice", f"keep one; the first is in line {first.line}")
            self.tree.keys[*path, key] = self.at(event)
            result[key] = self.node(next(self.events), (*path, key), depth + 1)
        return result

    def sequence(self, path: Path, depth: int) -> list[Any]:
        result: list[Any] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            result.append(self.node(event, (*path, len(result)), depth + 1))
        return result

    def scalar(self, event: ScalarEvent) -> Any:
        text = event.value
        if not event.implicit[0]:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            if len(text) > MAX_DIGITS:
                self.fail(event, f"a number of more than {MAX_DIGITS} digits", "put it in quotes if it is text")
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text, 10)
        return float(text.replace(".inf", "inf").replace(".nan", "nan")) if _FLOAT.fullmatch(text) else text
