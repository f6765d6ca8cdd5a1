"""Node failures of a replay: by chance at a rate, or from a list. They come from outside, the same for every policy."""

import difflib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from rackyard.errors import SpecError, UsageError, Where
from rackyard.placement.columns import Columns

_DAY = 86400.0
MAX_LINE = 1000
"""Characters of a line in a list of failures; longer ones are refused, not kept."""
_FORM = "write time,node,repair, for example 3600,r01-t01,14400"


@dataclass(frozen=True, slots=True)
class Failure:
    """A node goes out of service."""

    time: float
    """Seconds after the start of the trace."""
    node: int
    """Its position in the columns."""
    repair: float
    """Seconds until it is back; infinite for never."""


def by_rate(nodes: int, per_day: float, repair: float, seed: int) -> Iterator[Failure]:
    """Failures without end: `per_day` for each node on average, at independent moments, each repaired after `repair`
    seconds. None for a rate of 0.
    """
    if per_day <= 0 or nodes < 1:
        return
    draw = random.Random(f"failures {seed}")
    now = 0.0
    while True:
        now += draw.expovariate(nodes * per_day / _DAY)
        yield Failure(now, draw.randrange(nodes), repair)


def read_failures(text: str, origin: str, columns: Columns) -> tuple[Failure, ...]:
    """Failures from lines of `time,node,repair`: seconds after the start of the trace, a node's name, seconds until it
    is back (empty or `never`: it stays away). Blank lines, comments (`#`) and a header are skipped; sorted by time.

    Raises:
        SpecError: a line that is none of these, or names a node that the site does not have.
    """
    found: list[Failure] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if len(line) > MAX_LINE:
            raise SpecError("a line of a list of failures is too long", where=Where(origin, number), fix=_FORM)
        cells = [cell.strip() for cell in line.split("#", 1)[0].split(",")]
        if cells == [""] or (not found and cells[:2] == ["time", "node"]):
            continue
        if len(cells) not in (2, 3):
            why = f"expected time,node,repair, found {len(cells)} cells"
            raise SpecError("this is no failure", where=Where(origin, number), why=why, fix=_FORM)
        where = Where(origin, number, 1)
        back = cells[2] if len(cells) == 3 else ""
        repair = math.inf if back in ("", "never") else _seconds(back, "the repair time", Where(origin, number))
        found.append(Failure(_seconds(cells[0], "the time", where), _node(cells[1], columns, where), repair))
    return tuple(sorted(found, key=lambda failure: failure.time))


def _seconds(text: str, what: str, where: Where) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise SpecError(f"{what} is {text[:40]!r}", where=where, why="expected seconds, 0 or more", fix=_FORM)
    return value


def _node(name: str, columns: Columns, where: Where) -> int:
    if name in columns.index:
        return columns.index[name]
    close = difflib.get_close_matches(name[:100], columns.names, 1)
    fix = (
        f"did you mean {close[0]}?" if close else f"nodes are called like {columns.names[0]}" if columns.names else None
    )
    raise SpecError(f"the site has no node {name[:60]!r}", where=where, fix=fix)


def check_rate(per_day: float, repair: float) -> None:
    """UsageError for a rate or a repair time that means nothing."""
    if not (math.isfinite(per_day) and 0 <= per_day <= 1000):
        raise UsageError(f"{per_day} failures per node and day", fix="a number from 0 to 1000, for example 0.004")
    if not (math.isfinite(repair) and repair > 0):
        raise UsageError(f"a repair of {repair} seconds", fix="a number above 0")
