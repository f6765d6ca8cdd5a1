"""What to change so that the nodes of a cluster carry the labels they should: differences only, and only what is ours.

table = shipped()
wanted = labels_of(site, table.written())
current = {node.name: node.labels for node in nodes}
made = plan(wanted, current, Ours(table, {node.name: node.managed for node in nodes}))
made.changes                                # () when nothing is to be done
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from rackyard.fabric.labelkeys import OWN, KeyTable

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ours:
    """Whose a label is: ours if its key is in the table under our own prefix, or if the cluster says (in managedFields)
    that we set it on that node. `managed` holds those keys by node. Nothing else is ever removed.
    """

    table: KeyTable
    managed: Mapping[str, AbstractSet[str]] = field(default_factory=dict)

    def known(self, key: str) -> bool:
        """Whether the table has the key under our own prefix."""
        row = self.table.meaning(key) if self.table.owns(key) else None
        return row is not None and row[0].group == OWN


@dataclass(frozen=True, slots=True)
class Change:
    """One node that needs a write. `set` has the value that is there now (None where there is none) and the new one;
    `remove` the value that goes; `keep` is as it should be and must be said again, as server-side apply drops what is
    not said.
    """

    node: str
    set: tuple[tuple[str, str | None, str], ...]
    remove: tuple[tuple[str, str], ...]
    keep: tuple[tuple[str, str], ...]

    @property
    def wanted(self) -> dict[str, str]:
        """All labels of ours that the node shall carry."""
        return dict(self.keep) | {key: new for key, _, new in self.set}

    def __len__(self) -> int:
        """How many labels change."""
        return len(self.set) + len(self.remove)


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """`changes` in site order, and how many nodes are `unchanged`; `not_in_cluster` are nodes of the site that the
    cluster lacks, `not_in_site` the reverse. Neither of these is written to.
    """

    changes: tuple[Change, ...]
    unchanged: int
    not_in_cluster: tuple[str, ...] = ()
    not_in_site: tuple[str, ...] = ()


def plan(wanted: Mapping[str, Labels], current: Mapping[str, Labels], ours: Ours) -> LabelPlan:
    """The changes that take `current` (every label of every node of the cluster) to `wanted`."""
    foreign: set[str] = set()  # met before: nodes carry dozens of other people's labels, mostly the same
    changes: list[Change] = []
    both = 0
    for node, want in wanted.items():
        have = current.get(node)
        if have is None:
            continue
        both += 1
        managed = ours.managed.get(node, frozenset())
        rest = have.keys() - want.keys()
        stale = {key for key in rest - foreign if ours.known(key)}
        foreign |= rest - stale
        stale |= managed & rest
        if stale or not want.items() <= have.items():
            changes.append(_change(node, want, have, stale))
    return LabelPlan(
        changes=tuple(changes),
        unchanged=both - len(changes),
        not_in_cluster=tuple(node for node in wanted if node not in current),
        not_in_site=tuple(node for node in current if node not in wanted),
    )


def _change(node: str, want: Labels, have: Labels, stale: AbstractSet[str]) -> Change:
    return Change(
        node=node,
        set=tuple((key, have.get(key), value) for key, value in want.items() if have.get(key) != value),
        remove=tuple((key, have[key]) for key in sorted(stale)),
        keep=tuple((key, value) for key, value in want.items() if have.get(key) == value),
    )
