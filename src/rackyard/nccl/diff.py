"""What differs between two topology trees, by device and not by line: order and volatile values don't count."""

from collections.abc import Iterator
from dataclasses import dataclass

from rackyard.nccl.element import Element

VOLATILE = frozenset({"host_hash", "guid", "keep"})
"""Attributes that change from run to run, or that NCCL overwrites."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. `path` names the device from the host down; `attribute` is empty where the whole device is only
    on one side. A side that has nothing has None and line 0; a device that is there shows its children's number.
    """

    path: str
    attribute: str
    before: str | None
    after: str | None
    line_before: int
    line_after: int


def diff(before: Element, after: Element, *, volatile: bool = False) -> tuple[Difference, ...]:
    """The differences, in the order of `before`, then what only `after` has. `volatile` compares all attributes."""
    skipped: frozenset[str] = frozenset() if volatile else VOLATILE
    return tuple(_compare(before, after, "", skipped))


def _compare(before: Element, after: Element, path: str, skipped: frozenset[str]) -> Iterator[Difference]:
    waiting: list[tuple[Element | None, Element | None, str]] = [(before, after, path)]
    while waiting:
        one, other, place = waiting.pop()
        if one is None or other is None:
            yield _only(one, other, place)
            continue
        yield from _attributes(one, other, place or one.name, skipped)
        waiting.extend(reversed(list(_pairs(one, other, place))))


def _attributes(one: Element, other: Element, place: str, skipped: frozenset[str]) -> Iterator[Difference]:
    for key in dict.fromkeys((*one.attrs, *other.attrs)):
        left, right = one.get(key), other.get(key)
        if key and key not in skipped and left != right:
            yield Difference(place, key, left, right, one.line, other.line)


def _only(one: Element | None, other: Element | None, place: str) -> Difference:
    return Difference(place, "", _content(one), _content(other), one.line if one else 0, other.line if other else 0)


def _content(element: Element | None) -> str | None:
    if element is None:
        return None
    below = sum(1 for _ in element.walk()) - 1
    return f"{below} elements below" if below else "present"


def _pairs(one: Element, other: Element, place: str) -> Iterator[tuple[Element | None, Element | None, str]]:
    left, right = _by_key(one), _by_key(other)
    for key, element in left.items():
        yield element, right.pop(key, None), f"{place}/{key}" if place else key
    for key, element in right.items():
        yield None, element, f"{place}/{key}" if place else key


def _by_key(parent: Element) -> dict[str, Element]:
    """The children by what they are called, with a number where two are called the same."""
    hosts = _hosts(parent) if parent.name == "system" else {}
    found: dict[str, Element] = {}
    for child in parent.children:
        name = key = hosts.get(id(child), "") + _key(child)
        count = 1
        while key in found:
            count += 1
            key = f"{name} ({count})"
        found[key] = child
    return found


def _hosts(system: Element) -> dict[int, str]:
    """A prefix for each cpu where the tree has several hosts: hosts are numbered, as their hashes change every time."""
    numbers: dict[str, int] = {}
    cpus = list(system.children_named("cpu"))
    for cpu in cpus:
        numbers.setdefault(cpu.get("host_hash") or "", len(numbers))
    if len(numbers) < 2:
        return {}
    return {id(cpu): f"host {numbers[cpu.get('host_hash') or '']} " for cpu in cpus}


def _key(element: Element) -> str:
    named_by = {"cpu": "numaid", "pci": "busid", "net": "name", "nvlink": "target", "pcilink": "target"}
    text = element.get(named_by.get(element.name, ""))
    return element.name if text is None else f"{element.name} {text}"
