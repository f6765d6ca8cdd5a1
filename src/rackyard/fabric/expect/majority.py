"""Who stands out among equals. Without a design, what most parts of a kind have is what all of them should have.

A value is the pattern of its group when more than half of the group has it. Without such a value there is no verdict.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar


class Part(Protocol):
    """Something that is compared with its peers; `key` names it and puts parts in order."""

    @property
    def key(self) -> tuple[str, str]: ...


V = TypeVar("V", bound=Hashable)
P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True)
class Odd(Generic[V, P]):
    """A part whose value is not the expected one. `total` is 0 where a design says so, else `count` of it agree."""

    part: P
    value: V
    expected: V
    count: int = 0
    total: int = 0
    peer: P | None = None

    def others(self, what: str) -> str:
        """Who has the expected value, as the start of a clause: `17 of 18 trays have`, `the design has`."""
        return f"{self.count} of {self.total} {what} have" if self.total else "the design has"


@dataclass(slots=True)
class Split(Generic[V, P]):
    """What comparing gave. `tied` are the parts of groups that have no pattern, `alone` those without a peer."""

    judged: int = 0
    odd: list[Odd[V, P]] = field(default_factory=list)
    tied: list[tuple[V, P]] = field(default_factory=list)
    alone: list[tuple[V, P]] = field(default_factory=list)


Claim = tuple[Hashable, V, P]
"""The group that a part is compared in, what it has, and the part."""


def pattern(counts: Mapping[V, int]) -> V | None:
    """The value that more than half have; None where there is none."""
    total = sum(counts.values())
    return next((value for value, count in counts.items() if 2 * count > total), None)


def by_count(counts: Mapping[Any, int]) -> str:
    """The values with their counts, most frequent first: `16 × 570.1, 2 × 575.0`."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    return ", ".join(f"{count} × {value}" for value, count in ordered)


def varied(claims: Iterable[Claim[V, P]]) -> list[Claim[V, P]]:
    """The claims of groups in which not all values are the same: what is left to look at, mostly nothing."""
    kept = list(claims)
    first: dict[Hashable, V] = {}
    mixed = {group for group, value, _ in kept if first.setdefault(group, value) != value}
    return [claim for claim in kept if claim[0] in mixed] if mixed else []


def split(claims: Iterable[Claim[V, P]], designed: Callable[[P], V | None] | None = None) -> Split[V, P]:
    """Compare parts within their groups. What `designed` knows of a part is expected of it, whatever its peers have."""
    found: Split[V, P] = Split()
    groups: dict[Hashable, list[tuple[V, P]]] = defaultdict(list)
    for group, value, part in claims:
        want = designed(part) if designed else None
        if want is None:
            groups[group].append((value, part))
            continue
        found.judged += 1
        if value != want:
            found.odd.append(Odd(part, value, want))
    for members in groups.values():
        _judge(members, found)
    found.odd.sort(key=lambda odd: odd.part.key)
    found.tied.sort(key=lambda pair: pair[1].key)
    found.alone.sort(key=lambda pair: pair[1].key)
    return found


def _judge(members: list[tuple[V, P]], found: Split[V, P]) -> None:
    if len(members) == 1:
        found.alone += members
        return
    values = [value for value, _ in members]
    if values.count(values[0]) == len(values):
        found.judged += len(values)
        return
    counts = Counter(values)
    expected = pattern(counts)
    if expected is None:
        found.tied += members
        return
    found.judged += len(members)
    peer = min((part for value, part in members if value == expected), key=lambda part: part.key)
    found.odd += [
        Odd(part, value, expected, counts[expected], len(members), peer) for value, part in members if value != expected
    ]
