"""The PCI functions of all nodes as rules look them up."""

from collections import defaultdict

from rackyard.fabric.facts import Facts, PciFact, PciTable, Source


class Devices:
    """Looks functions up one by one: a site has half a million of them, and rules ask for a few."""

    def __init__(self, facts: Facts) -> None:
        self._tables: dict[str, list[PciTable]] = defaultdict(list)
        self._rows: dict[int, dict[str, PciFact]] = {}
        self._single: dict[tuple[str, str], list[PciFact]] = defaultdict(list)
        for table in facts.pci_tables:
            self._tables[table.node].append(table)
            if id(table.rows) not in self._rows:
                self._rows[id(table.rows)] = {row.bdf: row for row in table.rows.facts}
        for fact in facts.pci:
            self._single[fact.node, fact.bdf].append(fact)

    def __bool__(self) -> bool:
        return bool(self._tables or self._single)

    def get(self, at: tuple[str, str]) -> PciFact | None:
        """The function of a node at a PCI address; of several records the first by source."""
        node, bdf = at
        tables, single = self._tables.get(node, ()), self._single.get(at, ())
        if len(tables) == 1 and not single:
            return self._rows[id(tables[0].rows)].get(bdf)
        found = [row for table in tables if (row := self._rows[id(table.rows)].get(bdf)) is not None]
        return min([*found, *single], key=_pci_order, default=None)

    def source(self, at: tuple[str, str]) -> Source | None:
        """Where that function was read."""
        fact = self.get(at)
        for table in self._tables.get(at[0], ()):
            if fact is self._rows[id(table.rows)].get(at[1]) and fact is not None:
                return table.of_node(fact).source
        return fact.source if fact is not None else None


def _pci_order(fact: PciFact) -> tuple[str, str, int, str]:
    source = fact.source
    return source.reader, source.file, source.line or 0, source.text
