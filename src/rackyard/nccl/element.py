"""The tree that NCCL keeps of a topology file: elements with attributes and children, and nothing else.

Names and values are bytes decoded as Latin-1, because NCCL compares bytes and knows no encoding.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Element:
    """One element. `attrs` is in file order; of two attributes with one name only the first is here.

    `line` counts from 1 and is 0 for an element that no file holds; `single` says that it was written `<x/>`.
    `repeats` are the later attributes of a name that is there already: NCCL keeps them and never reads them.
    """

    name: str
    attrs: dict[str, str] = field(default_factory=dict)
    children: list["Element"] = field(default_factory=list)
    line: int = 0
    single: bool = False
    repeats: tuple[tuple[str, str], ...] = ()

    def get(self, key: str) -> str | None:
        """The attribute's text, or None."""
        return self.attrs.get(key)

    def child(self, name: str, **attrs: str) -> "Element | None":
        """The first child of that name that has these attribute values."""
        return next(self.children_named(name, **attrs), None)

    def children_named(self, name: str, **attrs: str) -> Iterator["Element"]:
        """The children of that name that have these attribute values, in order."""
        for child in self.children:
            if child.name == name and all(child.attrs.get(key) == value for key, value in attrs.items()):
                yield child

    def walk(self) -> Iterator["Element"]:
        """This element and all below it, parents before children, in file order."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(reversed(element.children))

    def walk_with_parents(self) -> Iterator[tuple["Element", "Element | None"]]:
        """As `walk`, each with its parent; the first has None."""
        waiting: list[tuple[Element, Element | None]] = [(self, None)]
        while waiting:
            element, parent = waiting.pop()
            yield element, parent
            waiting.extend((child, element) for child in reversed(element.children))

    def find(self, name: str, **attrs: str) -> "Element | None":
        """The first element of that name with these attribute values, here or below."""
        return next(self.find_all(name, **attrs), None)

    def find_all(self, name: str, **attrs: str) -> Iterator["Element"]:
        """All elements of that name with these attribute values, here and below, in file order."""
        for element in self.walk():
            if element.name == name and all(element.attrs.get(key) == value for key, value in attrs.items()):
                yield element

    def copy(self) -> "Element":
        """A deep copy that shares nothing."""
        top = Element(self.name, dict(self.attrs), [], self.line, self.single, self.repeats)
        waiting = [(self, top)]
        while waiting:
            old, new = waiting.pop()
            for child in old.children:
                twin = Element(child.name, dict(child.attrs), [], child.line, child.single, child.repeats)
                new.children.append(twin)
                waiting.append((child, twin))
        return top
