"""Slurm's hostlists: `peta[10000-10019,10030]`, `r[01-02]-t[01-18]`, several of them joined by commas.

The rule is Slurm's own (src/common/hostlist.c, and the man page of scontrol under `show hostnames`): a range keeps the
width of its first number, so `n[08-10]` is n08, n09, n10 and `n[8-10]` is n8, n9, n10; of several brackets the last one
runs fastest.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import product

MAX_RANGE = 64 * 1024
"""As many names as Slurm takes in one range (hostlist.h, MAX_RANGE)."""

MAX_HOSTS = 250_000
"""As many names as one capture may stand for, so that a few bytes can't ask for gigabytes."""

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_TAIL = re.compile(r"(.*?)([0-9]{1,9})", re.DOTALL)
_FORBIDDEN = re.compile(r"[\s,\[\]{}()#\"'\\=]|[^\x21-\x7e]")


class HostlistError(ValueError):
    """What is wrong with a hostlist, and at which character of it (from 0)."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what = what
        self.at = at


def expand(text: str, limit: int = MAX_HOSTS) -> list[str]:
    """The names that `text` stands for, in order. HostlistError for a malformed list and for one of over `limit`
    names.
    """
    found: list[str] = []
    for token, at in _tokens(text):
        found += _expanded(token, at, limit - len(found))
    return found


def compress(names: Iterable[str]) -> str:
    """A hostlist from which `expand` makes the same names in the same order. ValueError for a name that Slurm can't
    read.
    """
    pieces: list[str] = []
    prefix, ranges = "", list[tuple[str, int, int]]()
    for name in names:
        if not writable(name):
            raise ValueError(name)
        match = _TAIL.fullmatch(name)
        if match is None:
            pieces += _closed(prefix, ranges)
            ranges = []
            pieces.append(name)
            continue
        stem, digits = match[1], match[2]
        number = int(digits)
        if ranges and stem == prefix:
            first, low, high = ranges[-1]
            if number == high + 1 and number - low < MAX_RANGE and digits == f"{number:0{len(first)}d}":
                ranges[-1] = (first, low, number)
            else:
                ranges.append((digits, number, number))
        else:
            pieces += _closed(prefix, ranges)
            prefix, ranges = stem, [(digits, number, number)]
    return ",".join(pieces + _closed(prefix, ranges))


def tokens(text: str) -> list[str]:
    """The pieces between commas that stand outside of brackets, each a hostlist by itself. HostlistError for open
    brackets.
    """
    return [token for token, _ in _tokens(text)]


def writable(name: str) -> bool:
    """Whether a name means itself in a hostlist and in Slurm's `Key=value` lines."""
    return bool(name) and not _FORBIDDEN.search(name)


def _closed(prefix: str, ranges: list[tuple[str, int, int]]) -> list[str]:
    if not ranges:
        return []
    texts = [first if low == high else f"{first}-{high:0{len(first)}d}" for first, low, high in ranges]
    single = len(ranges) == 1 and "-" not in texts[0]
    return [prefix + texts[0] if single else f"{prefix}[{','.join(texts)}]"]


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Pieces between commas that stand outside of brackets, each with its place."""
    start, inside = 0, -1
    for at, char in enumerate(text):
        if char == "[":
            if inside >= 0:
                raise HostlistError("'[' inside of brackets", at)
            inside = at
        elif char == "]":
            if inside < 0:
                raise HostlistError("']' without '['", at)
            inside = -1
        elif char == "," and inside < 0:
            if at > start:
                yield text[start:at], start
            start = at + 1
    if inside >= 0:
        raise HostlistError("'[' is not closed", inside)
    if start < len(text):
        yield text[start:], start


def _expanded(token: str, at: int, room: int) -> list[str]:
    if "[" not in token:
        if room < 1:
            raise HostlistError("the list stands for too many names", at)
        return [token]
    parts: list[list[tuple[int, int, int]]] = []
    texts: list[str] = []
    count, rest, place = 1, token, at
    while "[" in rest:
        before, _, after = rest.partition("[")
        inside, _, rest = after.partition("]")
        place += len(before) + 1
        ranges = _ranges(inside, place)
        place += len(inside) + 1
        texts.append(before)
        parts.append(ranges)
        count *= sum(high - low + 1 for low, high, _ in ranges)
        if count > room:
            raise HostlistError("the list stands for too many names", at)
    numbers = [[f"{n:0{width}d}" for low, high, width in ranges for n in range(low, high + 1)] for ranges in parts]
    if len(parts) == 1:
        return [f"{texts[0]}{number}{rest}" for number in numbers[0]]
    return ["".join(f"{a}{b}" for a, b in zip(texts, chosen, strict=True)) + rest for chosen in product(*numbers)]


def _ranges(inside: str, at: int) -> list[tuple[int, int, int]]:
    found = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise HostlistError(f"{part[:40]!r} is neither a number nor a range", at)
        low = int(match[1])
        high = low if match[2] is None else int(match[2])
        if high < low:
            raise HostlistError(f"the range {part} runs backwards", at)
        if high - low >= MAX_RANGE:
            raise HostlistError(f"the range {part} is longer than Slurm's {MAX_RANGE}", at)
        found.append((low, high, len(match[1])))
        at += len(part) + 1
    return found
