"""Regular expressions for sets of node names that match those names and no others, not even names that don't exist yet.

Only what Go's RE2 and Python read alike is used: literals, classes, groups of alternatives, and anchors.
"""

import re
from collections.abc import Sequence

from rackyard.fabric.readers.hostlist import HostlistError, compress, expand

MAX_LENGTH = 512
"""Longer patterns are no longer compact; names one by one are easier to read then."""

_PART = re.compile(r"([^,\[\]]*)(?:\[([0-9,-]+)\])?(?:,|$)")


def pattern_of(names: Sequence[str]) -> str | None:
    """An anchored pattern that matches exactly `names`; None where there is no compact one.

    The pattern is made from the ranges of the names' hostlist. That list is expanded again first: what it stands for
    is what the pattern matches, number for number, so equality there is the proof.
    """
    try:
        listed = compress(names)
        if sorted(expand(listed)) != sorted(names):
            return None
    except (ValueError, HostlistError):
        return None
    choices = []
    for prefix, ranges in _PART.findall(listed):
        if not prefix and not ranges:
            continue
        numbers = [_range(*_bounds(part)) for part in ranges.split(",")] if ranges else []
        flat = [choice for part in numbers for choice in part]
        body = flat[0] if len(flat) == 1 else f"({'|'.join(flat)})"
        choices.append(re.escape(prefix).replace("\\-", "-") + (body if flat else ""))
    found = f"^{choices[0]}$" if len(choices) == 1 else f"^({'|'.join(choices)})$"
    return found if len(found) <= MAX_LENGTH else None


def _bounds(part: str) -> tuple[str, str]:
    low, _, high = part.partition("-")
    return low, high or low


def _range(low: str, high: str) -> list[str]:
    """Patterns that together match the numbers from `low` to `high`, each in at least as many digits as `low` has."""
    width = len(low)
    first, last = int(low), int(high)
    found = []
    while first <= last:
        text = f"{first:0{width}d}"
        end = min(last, 10 ** len(text) - 1)
        found += _same_width(text, f"{end:0{width}d}")
        first = end + 1
    return found


def _same_width(low: str, high: str) -> list[str]:
    """The same for two numbers of as many digits."""
    if low == high:
        return [low]
    head = 0
    while low[head] == high[head]:
        head += 1
    prefix, a, b = low[:head], low[head:], high[head:]
    if set(a[1:]) <= {"0"} and set(b[1:]) <= {"9"}:
        return [prefix + _digits(a[0], b[0]) + "[0-9]" * (len(a) - 1)]
    found = []
    first, last = int(a[0]), int(b[0])
    if set(a[1:]) != {"0"}:
        found += [prefix + a[0] + rest for rest in _same_width(a[1:], "9" * (len(a) - 1))]
        first += 1
    ends: list[str] = []
    if set(b[1:]) != {"9"}:
        ends = [prefix + b[0] + rest for rest in _same_width("0" * (len(b) - 1), b[1:])]
        last -= 1
    if first <= last:
        found.append(prefix + _digits(str(first), str(last)) + "[0-9]" * (len(a) - 1))
    return found + ends


def _digits(low: str, high: str) -> str:
    return low if low == high else f"[{low}-{high}]"
