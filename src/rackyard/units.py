"""Durations, sizes and step counts as people write them: `60s`, `10m`, `1.5h`, `2GiB`, `20 steps`.

Parsing is strict, with a unit always written: a bare `60` is refused, because nobody can tell seconds from
minutes a month later. Formatting returns text that parses back to the same value.
"""

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
_DURATION = re.compile(rf"{_NUMBER} ?(ms|s|m|h|d)")
_SIZE = re.compile(rf"{_NUMBER} ?({'|'.join(_BYTES)})")
_STEPS = re.compile(r"([0-9]{1,12}) ?steps?")

MAX_SECONDS = 10_000 * 86400.0
"""The longest duration accepted: 10,000 days."""


def parse_duration(text: str) -> float:
    """Seconds of `60s`, `10m`, `1.5h`, `2d` or `500ms`, to the microsecond.

    Raises:
        ValueError: no number with one of the units, or more than 10,000 days.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write a number and a unit, such as 60s, 10m or 1.5h")
    seconds = round(float(match[1]) * _SECONDS[match[2]], 6)
    if seconds > MAX_SECONDS:
        raise ValueError(f"{text!r} is longer than 10,000 days")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest exact text: `1h`, `90s`, `0.25s`; microseconds are kept, anything finer is rounded away."""
    for unit in ("d", "h", "m"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{int(seconds // _SECONDS[unit])}{unit}"
    digits = f"{seconds:.6f}".rstrip("0").rstrip(".")
    return f"{digits}s"


def parse_size(text: str) -> int:
    """Bytes of `512MiB`, `2GiB` (powers of 2) or `100MB` (powers of 10), rounded down to a whole byte.

    Raises:
        ValueError: no number with one of the units.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size: write a number and a unit, such as 512MiB or 2GB")
    factor = _BYTES[match[2]]
    return int(match[1]) * factor if match[1].isdigit() else int(float(match[1]) * factor)


def format_size(size: int) -> str:
    """Bytes with a binary unit and at most one decimal, for people: `1.5GiB`. Not exact."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f}{unit}" if unit == "B" else f"{value:.1f}{unit}"
        value /= 1024
    return f"{value:.1f}TiB"


def parse_steps(text: str) -> int:
    """The count of `20 steps` or `1 step`.

    Raises:
        ValueError: not a count of steps, or none.
    """
    match = _STEPS.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{text!r} is not a count of steps: write, for example, 20 steps")
    return int(match[1])


def format_steps(steps: int) -> str:
    """`20 steps`, `1 step`."""
    return f"{steps} step" if steps == 1 else f"{steps} steps"
