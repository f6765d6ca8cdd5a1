"""From what pydantic found to one error for the user: where, what, why and how to write it instead."""

import difflib
from collections.abc import Callable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from rackyard.errors import SpecError, Where
from rackyard.jobs.specchecks import Path, Problem

Locate = Callable[[Path, bool], Where]
"""Where the value (or, with True, the key) at a path is written."""

_SHOWN = 10  # problems listed in one error
_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": "a mapping of keys to values",
    "tuple_type": "a list",
    "model_type": "a mapping of keys to values",
}
_KEY_ERRORS = ("extra_forbidden",)


def spec_error(error: ValidationError, model: type[BaseModel], origin: str, locate: Locate | None = None) -> SpecError:
    """One `SpecError` for all that pydantic found, the first problem in file order leading."""
    found: list[tuple[Problem, Where]] = []
    for item in error.errors(include_url=False):
        for problem in _problems(item, model):
            at = locate(problem.path, item["type"] in _KEY_ERRORS) if locate else Where(origin)
            found.append((problem, at))
    found.sort(key=lambda pair: (pair[1].line or 0, pair[1].column or 0))
    return joined(found)


def joined(found: list[tuple[Problem, Where]]) -> SpecError:
    """One error that leads with the first problem and lists the others."""
    (first, where), *others = found
    what = _sentence(first)
    if not others:
        return SpecError(what, where=where, fix=first.fix or None)
    more = f"and {len(others)} more problem{'s' if len(others) > 1 else ''}"
    lines = [_other(problem, at) for problem, at in others[:_SHOWN]]
    lines += [f"... and {len(others) - _SHOWN} more"] if len(others) > _SHOWN else []
    why = "\n".join([f"{more}:", *(f"       {line}" for line in lines)])
    return SpecError(what, where=where, why=why, fix=first.fix or None)


def dotted(path: Path) -> str:
    """`watch.slow.ratio`, `warm[2]`: how a value is named in messages. Shortened where the user's keys are long."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
    return text if len(text) <= 100 else f"{text[:97]}..."


def did_you_mean(word: str, known: list[str]) -> str:
    """Advice for a misspelt word: the nearest known one, or all of them."""
    near = difflib.get_close_matches(word[:100].lower(), known, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"


def section_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The model of the section that `path` leads to, or of the sections in the list there; None where it leads to a
    plain value.
    """
    for part in path:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        inner = [] if field is None else [field.annotation, *get_args(field.annotation)]
        models = [kind for kind in inner if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not models:
            return None
        model = models[0]
    return model


def _sentence(problem: Problem) -> str:
    return f"{dotted(problem.path)}: {problem.what}" if problem.path else problem.what


def _other(problem: Problem, at: Where) -> str:
    place = f"line {at.line}: " if at.line else ""
    return place + _sentence(problem) + (f" ({problem.fix})" if problem.fix else "")


def _problems(item: Any, model: type[BaseModel]) -> list[Problem]:
    path: Path = item["loc"]
    context = item.get("ctx", {})
    match item["type"]:
        case "cross":
            return list(context["problems"])
        case "extra_forbidden":
            section = section_at(model, path[:-1])
            known = list(section.model_fields) if section else []
            return [Problem(path, "unknown key", did_you_mean(str(path[-1]), known))]
        case "missing":
            section = section_at(model, path[:-1])
            about = section.model_fields[str(path[-1])].description if section else None
            return [Problem(path, "missing", f"add {path[-1]}: {(about or '').splitlines()[0]}".rstrip(": "))]
        case "value":
            return [Problem(path, context["text"], context.get("fix", ""))]
        case "literal_error":
            return [_not_one_of(path, item["input"], context["expected"])]
        case kind if kind in _TYPES:
            return [Problem(path, f"must be {_TYPES[kind]}, not {_named(item['input'])}")]
    return [Problem(path, _lower(item["msg"]))]


def _not_one_of(path: Path, value: Any, expected: str) -> Problem:
    known = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
    if path == ("target",) and value in ("kubernetes", "slurm"):
        return Problem(path, f"{value} is planned, not built", "use local")
    fix = did_you_mean(value, known) if isinstance(value, str) else ""
    return Problem(path, f"must be {' or '.join(known)}", fix if fix.startswith("did") else "")


def _named(value: Any) -> str:
    match value:
        case None:
            return "empty"
        case bool():
            return str(value).lower()
        case int() | float() | str():
            text = repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "a huge number"
            return text if len(text) <= 60 else f"{text[:57]}..."
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
    return f"a {type(value).__name__}"


def _lower(message: str) -> str:
    message = message.removeprefix("Input should be ")
    return f"must be {message}" if message[:1].islower() else message[:1].lower() + message[1:]
