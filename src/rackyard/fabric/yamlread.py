"""YAML values that know where they stand, so that every complaint has a line and a column."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from rackyard.errors import SpecError, Where

MAX_CHARS = 32 * 2**20
"""A site of 10,000 nodes takes about 1 MiB; what is longer than this is no site file."""

_KINDS = {"mapping": "a mapping of keys to values", "sequence": "a list", "scalar": "a single value"}


class Value:
    """One node of the document. The readers raise SpecError for anything else than what they are named for."""

    __slots__ = ("_node", "file", "path")

    def __init__(self, node: Any, file: str, path: str) -> None:
        """`node` is one of ruamel's, whose types say less than they have."""
        self._node = node
        self.file = file
        self.path = path

    def fail(self, what: str, *, why: str | None = None, fix: str | None = None) -> NoReturn:
        """Complain about this value."""
        mark = self._node.start_mark
        raise SpecError(what, where=Where(self.file, mark.line + 1, mark.column + 1), why=why, fix=fix)

    @property
    def line(self) -> int:
        """The line on which the value starts, from 1."""
        return int(self._node.start_mark.line) + 1

    @property
    def column(self) -> int:
        """The column at which the value starts, from 1."""
        return int(self._node.start_mark.column) + 1

    @property
    def is_scalar(self) -> bool:
        """Whether it is a single value."""
        return str(self._node.id) == "scalar"

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return str(self._node.id) == "sequence"

    def entries(self) -> dict[str, "Value"]:
        """The keys and values of a mapping, in file order; a key that is there twice is an error."""
        found: dict[str, Value] = {}
        for key, value in self._children("mapping"):
            name = Value(key, self.file, self.path).text()
            if name in found:
                first = found[name].line
                Value(key, self.file, self.path).fail(f"{name!r} is given twice", fix=f"the first is in line {first}")
            found[name] = Value(value, self.file, f"{self.path}.{name}".lstrip("."))
        return found

    def fields(self, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, "Value"]:
        """The entries of a mapping whose keys are fixed."""
        required = tuple(required)
        known = (*required, *optional)
        found = self.entries()
        for key, _ in self._children("mapping"):
            if key.value not in known:
                at = Value(key, self.file, self.path)
                at.fail(f"unknown key {key.value[:60]!r}{self._inside()}", fix=did_you_mean(key.value, known))
        for name in required:
            if name not in found:
                self.fail(f"{name!r} is missing{self._inside()}", fix=f"the keys here are {', '.join(known)}")
        return found

    def items(self) -> list["Value"]:
        """The parts of a list."""
        parts = self._children("sequence")
        return [Value(part, self.file, f"{self.path}[{at}]") for at, part in enumerate(parts)]

    def plain(self) -> object:
        """The value as dicts, lists and texts; null and a key with nothing after it are None."""
        if not self.is_scalar:
            if self.is_list:
                return [part.plain() for part in self.items()]
            return {name: value.plain() for name, value in self.entries().items()}
        empty = self._node.value in ("", "~", "null") and self._node.style is None
        return None if empty else str(self._node.value)

    def text(self) -> str:
        """Any single value as it was written."""
        return str(self._scalar())

    def integer(self, low: int = 0, high: int = 2**63 - 1) -> int:
        """A whole number in that range."""
        text = self._scalar()
        try:
            number = int(text[:20])
        except ValueError:
            self.fail(f"{text[:60]!r} is not a whole number{self._at()}")
        if not low <= number <= high or len(text) > 20:
            self.fail(f"{text[:60]} is out of range{self._at()}", fix=f"a whole number from {low} to {high}")
        return number

    def number(self) -> float:
        """A finite number."""
        text = self._scalar()
        try:
            number = float(text)
        except ValueError:
            self.fail(f"{text[:60]!r} is not a number{self._at()}")
        if number != number or number in (float("inf"), float("-inf")):
            self.fail(f"{text[:60]} is not a finite number{self._at()}")
        return number

    def flag(self) -> bool:
        """True or false."""
        return self.choice(("true", "false")) == "true"

    def choice(self, known: Iterable[str]) -> str:
        """One of a few words."""
        text = self._scalar()
        words = tuple(known)
        if text not in words:
            self.fail(f"{text[:60]!r} is not known{self._at()}", fix=did_you_mean(text, words))
        return text

    def _scalar(self) -> str:
        if self._node.id != "scalar":
            self.fail(f"expected a single value{self._at()}, found {_KINDS[self._node.id]}")
        return str(self._node.value)

    def _children(self, kind: str) -> list[Any]:
        if self._node.id == "scalar" and self._node.value in ("", "~", "null") and self._node.style is None:
            return []  # `racks:` with nothing after it is an empty mapping
        if self._node.id != kind:
            self.fail(f"expected {_KINDS[kind]}{self._at()}, found {_KINDS[self._node.id]}")
        return list(self._node.value)

    def _at(self) -> str:
        return f" for {self.path}" if self.path else ""

    def _inside(self) -> str:
        return f" in {self.path}" if self.path else ""


def read(text: str, file: str, what: str = "site file", example: str = "simulate: {racks: 2}") -> Value:
    """The document as a value; `what` it is and an `example` are for complaints. SpecError for what is not one
    document.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if len(text) > MAX_CHARS:
        raise SpecError(f"the {what} is too large", where=Where(file), fix=f"at most {MAX_CHARS // 2**20} MiB")
    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = Where(file, mark.line + 1, mark.column + 1) if mark else Where(file)
        raise SpecError("not valid YAML", where=where, why=str(error.problem or error.context or "")) from None
    except (YAMLError, ValueError, LookupError, ArithmeticError, AttributeError, TypeError, RecursionError) as error:
        # ruamel leaks these on malformed input: an escape beyond Unicode, ten thousand brackets
        why = f"the YAML parser failed: {type(error).__name__}"
        raise SpecError("not valid YAML", where=Where(file), why=why) from None
    if node is None:
        raise SpecError(f"the {what} is empty", where=Where(file, 1, 1), fix=f"write `{example}`")
    return Value(node, file, "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Advice for a misspelt word: the nearest known one, or all of them."""
    words = list(known)
    near = difflib.get_close_matches(word[:60].lower(), [name.lower() for name in words], 1)
    for name in words:
        if near and name.lower() == near[0]:
            return f"did you mean {name}?"
    return f"one of {', '.join(words[:20])}" + (" ..." if len(words) > 20 else "")


def scalar(value: str | float | bool) -> str:
    """A value as YAML 1.2 reads it back: bare where that is safe, else in double quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    words = ("true", "false", "null", "yes", "no", "on", "off", "y", "n", "none")
    plain = value.isascii() and value.replace("-", "a").replace("_", "a").replace(".", "a").isalnum()
    if plain and value[0].isalpha() and value.lower() not in words:
        return value
    return '"' + "".join(_escaped(char) for char in value) + '"'


def flow(entries: Mapping[str, str]) -> str:
    """A mapping on one line; the values are YAML already."""
    return "{" + ", ".join(f"{scalar(key)}: {value}" for key, value in entries.items()) + "}"


def flow_list(values: Iterable[str]) -> str:
    """A list on one line; the values are YAML already."""
    return "[" + ", ".join(values) + "]"


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\U{ord(char):08X}"
