"""What the labels of a Kubernetes node say of it, by the table of label keys."""

import re
from collections.abc import Iterator

from rackyard.fabric.labelkeys import Fact, KeyTable, LabelKey

_CLIQUE = re.compile(r"(.+)\.(\d{1,18})", re.ASCII | re.DOTALL)


class Meanings:
    """What each label key means, looked up once for all nodes: the row of the table, its place in it, and the tier."""

    def __init__(self, table: KeyTable) -> None:
        self.table = table
        self._places = {row.stem: place for place, row in enumerate(table.keys)}
        self._known: dict[str, tuple[LabelKey, int, int | None] | None] = {}

    def of(self, key: str) -> tuple[LabelKey, int, int | None] | None:
        """None for a key of no row."""
        try:
            return self._known[key]
        except KeyError:
            found = self.table.meaning(key)
            self._known[key] = None if found is None else (found[0], self._places[found[0].stem], found[1])
            return self._known[key]


class Labels:
    """What a node's labels say, field by field of HostFact, in the order of the table. `kept` are those it knows."""

    __slots__ = ("_meanings", "_said", "_tiers", "kept")

    def __init__(self, meanings: Meanings) -> None:
        self._meanings = meanings
        self.kept: list[tuple[str, str]] = []
        self._said: list[tuple[int, str, str, str | int]] = []
        self._tiers: dict[str, dict[int, str]] = {}

    def take(self, key: str, value: str) -> None:
        """One label; keys that the table doesn't know are passed over."""
        known = self._meanings.of(key)
        if known is None or not value:
            return
        row, place, number = known
        self.kept.append((key, value))
        if row.fact is Fact.TIER and number is not None:
            self._tiers.setdefault(row.group, {})[number] = value
            return
        for name, said in _meaning(row.fact, value):
            self._said.append((place, f"{key}: {value}", name, said))

    def records(self) -> tuple[dict[str, str | int], list[tuple[str, str, str | int]]]:
        """What the first label of each fact says, and what later ones say otherwise."""
        first: dict[str, str | int] = {}
        rest = []
        for _, label, name, value in sorted(self._said):
            if first.setdefault(name, value) != value:
                rest.append((label, name, value))
        return first, rest

    def proof(self) -> str:
        """The label that the first record rests on most: that of the NVLink domain, else of whatever it says first."""
        said = min(self._said, key=lambda said: (said[2] not in ("cluster_uuid", "block"), said[0]), default=None)
        return said[1] if said else ""

    def tiers(self) -> tuple[str, ...]:
        """The switches above the node, leaf first, by the first group of keys that names any."""
        if not self._tiers:
            return ()
        groups = self._tiers
        if len(groups) > 1:
            order = [row.group for row in self._meanings.table.keys if row.fact is Fact.TIER]
            return tuple(name for _, name in sorted(groups[min(groups, key=order.index)].items()))
        return tuple(name for _, name in sorted(next(iter(groups.values())).items()))


def _meaning(fact: Fact, value: str) -> Iterator[tuple[str, str | int]]:
    match fact:
        case Fact.DOMAIN | Fact.FABRIC_CLIQUE:
            pair = _CLIQUE.fullmatch(value)
            if fact is Fact.DOMAIN and value.startswith("node."):
                return  # a server that is its own domain
            if pair is None:
                yield "block", value  # a cloud's own name of the domain
            else:
                yield "cluster_uuid", pair[1]
                yield "clique_id", int(pair[2])
        case Fact.DOMAIN_NAME:
            yield "block", value
        case Fact.RACK | Fact.CHASSIS:
            yield fact.value, value
        case Fact.SLOT | Fact.TRAY | Fact.CLIQUE_ID:
            if value.isascii() and value.isdecimal() and len(value) <= 9:
                yield fact.value.replace("-", "_"), int(value)
        case _:
            return
