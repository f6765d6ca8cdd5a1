"""The value types of the job spec: text in the file on one side, plain Python values on the other."""

import difflib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from rackyard.units import MAX_SECONDS, format_duration, format_steps, parse_duration, parse_steps

STORED = "stored"
"""Validation context of `JobSpec.from_dict`: durations may be seconds, as `to_dict` writes them. In a file they
carry a unit, because nobody can tell what a bare 60 was meant to be."""

MAX_RAIL = 63
"""The highest number a rail can have; today's racks have 4 to 8 rails."""

_DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h|d)$"
_EVERY_PATTERN = r"^(auto|[0-9]+ ?steps?|[0-9]+(\.[0-9]+)? ?(ms|s|m|h|d))$"
_SPREADS = ("pack", "spread", "isolate")
_RAILS = ("aligned", "any")
_RACKS_SCHEMA = {
    "type": "object",
    "properties": {"racks": {"type": "integer", "minimum": 1}},
    "required": ["racks"],
    "additionalProperties": False,
}


def _problem(what: str, fix: str = "") -> PydanticCustomError:
    # The text goes in as a value, not as the template: users' braces must not be read as fields.
    return PydanticCustomError("value", "{text}", {"text": what, "fix": fix})


@dataclass(frozen=True, slots=True)
class Every:
    """How often to checkpoint: every so many steps, every so many seconds, or (both None) chosen for the user."""

    steps: int | None = None
    seconds: float | None = None

    @property
    def auto(self) -> bool:
        """Whether the interval is left to Rackyard."""
        return self.steps is None and self.seconds is None

    @classmethod
    def parse(cls, text: str) -> "Every":
        """Read `auto`, `20 steps` or a duration.

        Raises:
            ValueError: none of the three, or a duration of nothing.
        """
        if text.strip() == "auto":
            return cls()
        if re.search(r"steps?\s*$", text):
            return cls(steps=parse_steps(text))
        seconds = parse_duration(text)
        if seconds <= 0:
            raise ValueError(f"{text!r} is no time at all")
        return cls(seconds=seconds)

    def __str__(self) -> str:
        if self.steps is not None:
            return format_steps(self.steps)
        return "auto" if self.seconds is None else format_duration(self.seconds)


@dataclass(frozen=True, slots=True)
class Spread:
    """Exactly so many racks."""

    racks: int


def _read_duration(value: Any, info: ValidationInfo) -> Any:
    if info.context == STORED and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        raise _problem("must be a duration with its unit", "write, for example, 60s, 10m or 1.5h")
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise _problem(str(error)) from None
    if seconds <= 0:
        raise _problem("must be longer than nothing")
    return seconds


def _read_every(value: Any) -> Any:
    if isinstance(value, Every):
        return value
    if not isinstance(value, str):
        raise _problem("must be a number of steps, a duration or auto", "write 20 steps, 10m or auto")
    try:
        return Every.parse(value)
    except ValueError as error:
        raise _problem(str(error), "write 20 steps, 10m or auto") from None


def _read_spread(value: Any) -> Any:
    if isinstance(value, Spread) or (isinstance(value, str) and value in _SPREADS):
        return value
    racks = value.get("racks") if isinstance(value, dict) and set(value) == {"racks"} else None
    if isinstance(racks, bool) or not isinstance(racks, int) or not 1 <= racks <= 1_000_000:
        near = _near(value, _SPREADS) or "write, for example, spread: {racks: 2}"
        raise _problem("must be pack, spread, isolate or {racks: K} with K at least 1", near)
    return Spread(racks)


def _write_spread(value: Any) -> Any:
    return {"racks": value.racks} if isinstance(value, Spread) else value


def _read_rails(value: Any) -> Any:
    if value in _RAILS or (type(value) is int and 0 <= value <= MAX_RAIL):
        return value
    raise _problem(
        f"must be aligned, any or the number of a rail, 0 to {MAX_RAIL}",
        _near(value, _RAILS) or "write, for example, rails: 0",
    )


def _near(word: Any, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word[:100].lower(), known, 1) if isinstance(word, str) else []
    return f"did you mean {near[0]}?" if near else ""


def _check_command(value: str) -> str:
    if "\0" in value:
        raise _problem("holds a NUL character")
    if not value.strip():
        raise _problem("must name a command", "write, for example, run: python train.py")
    # Only a single line is judged: in a script, quotes may stand in a here-document or a comment.
    if "\n" not in value.strip():
        try:
            shlex.split(value, comments=True)
        except ValueError as error:
            raise _problem(f"can't be split into words: {error}", "close the quotes") from None
    return value


def _read_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise _problem("must be text", "write the value in quotes")
    if "\0" in value:
        raise _problem("holds a NUL character")
    return value


def _as_label(word: str) -> str:
    label = re.sub(r"[^a-z0-9]+", "-", word[:200].lower())[:63].strip("-")
    return f"write, for example, {label or 'train'}"


def _named(pattern: str, most: int, what: str, near: Callable[[str], str] = lambda _: "") -> Callable[[Any], Any]:
    compiled = re.compile(pattern, re.ASCII)

    def check(value: Any) -> Any:
        if not isinstance(value, str):
            raise _problem(f"must be {what}", "write it in quotes" if isinstance(value, int | float) else "")
        if len(value) > most or not compiled.fullmatch(value):
            raise _problem(f"must be {what}", near(value))
        return value

    return check


_DNS = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_MODULE = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"
_GPU = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_is_dns_label = _named(_DNS, 63, "a DNS label: a-z, 0-9 and - (not at the ends), at most 63 characters", _as_label)
_is_module = _named(_MODULE, 200, "the dotted name of a Python module")
_is_gpu_kind = _named(_GPU, 63, "the name of a kind of GPU, such as GB300")


def _schema(pattern: str, most: int, title: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$", "maxLength": most, "title": title})


DnsLabel = Annotated[str, BeforeValidator(_is_dns_label), _schema(_DNS, 63, "DNS label")]
ModuleName = Annotated[str, BeforeValidator(_is_module), _schema(_MODULE, 200, "module")]
GpuKind = Annotated[str, BeforeValidator(_is_gpu_kind), _schema(_GPU, 63, "name")]
PathText = Annotated[str, Field(min_length=1, max_length=4096, title="path"), BeforeValidator(_read_text)]
NodeName = Annotated[str, Field(min_length=1, max_length=253, title="name"), BeforeValidator(_read_text)]
NodeNames = Annotated[tuple[NodeName, ...], Field(strict=False, max_length=100_000)]
EnvValue = Annotated[str, Field(max_length=131_072), BeforeValidator(_read_text)]
Command = Annotated[str, Field(min_length=1, max_length=65_536, title="command"), AfterValidator(_check_command)]
Duration = Annotated[
    float,
    BeforeValidator(_read_duration),
    Field(gt=0, le=MAX_SECONDS),
    WithJsonSchema({"type": "string", "pattern": _DURATION_PATTERN, "title": "duration"}),
]
EveryValue = Annotated[
    Every,
    PlainValidator(_read_every),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _EVERY_PATTERN, "title": "steps, duration or auto"}),
]
RailsValue = Annotated[
    Literal["aligned", "any"] | int,
    PlainValidator(_read_rails),
    WithJsonSchema(
        {
            "anyOf": [{"enum": list(_RAILS)}, {"type": "integer", "minimum": 0, "maximum": MAX_RAIL}],
            "title": "aligned, any or a rail's number",
        }
    ),
]
SpreadValue = Annotated[
    Literal["pack", "spread", "isolate"] | Spread,
    PlainValidator(_read_spread),
    PlainSerializer(_write_spread),
    WithJsonSchema(
        {"anyOf": [{"enum": list(_SPREADS)}, _RACKS_SCHEMA], "title": "pack, spread, isolate or {racks: K}"}
    ),
]
