"""What is free on a site now. Decisions read it; whoever starts and ends gangs keeps it up to date."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rackyard.fabric import Site
from rackyard.placement.columns import Columns, Flags, Ints, Masks
from rackyard.placement.model import Occupancy


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Seats as numbers: positions in the columns, in rank order."""

    nodes: Ints
    """Each node once."""
    gpus: Masks
    """The GPUs taken on each of `nodes`, as masks."""
    runs: tuple[int, ...]
    """How many of `nodes` make each segment, or each piece of one that had to be split."""
    spares: Ints
    """Nodes held beside the gang."""
    cost: tuple[int, ...]
    """The terms of the objective, most important first (`cost.TERMS`); smaller is better."""
    held: Masks = field(default_factory=lambda: np.zeros(0, np.uint32))
    """The GPUs held on each of `spares`: for ranks on parts of nodes, a node that others use a part of can be one."""


@dataclass(slots=True, eq=False)
class Yard:
    """Occupancy on the columns of a site. Mutable, and cheap to copy."""

    columns: Columns
    busy: Masks
    """GPUs in use of each node."""
    out: Flags
    """Nodes that failed or were cordoned since the columns were made."""

    @classmethod
    def open(cls, site: Site, occupancy: Occupancy | None = None) -> "Yard":
        """The yard of a site with what jobs hold on it. ValueError for a node of more than 32 GPUs."""
        return cls.on(Columns.of(site), occupancy)

    @classmethod
    def on(cls, columns: Columns, occupancy: Occupancy | None = None) -> "Yard":
        """The yard on columns that are there already."""
        busy = np.zeros(len(columns.names), np.uint32)
        for name, gpus in occupancy.used.items() if occupancy else ():
            if name in columns.index:
                busy[columns.index[name]] = sum(1 << gpu for gpu in gpus)
        return cls(columns, busy, np.zeros(len(columns.names), np.bool_))

    def copy(self) -> "Yard":
        """A yard of its own on the same columns."""
        return Yard(self.columns, self.busy.copy(), self.out.copy())

    def take(self, decision: Decision) -> None:
        """Seat the gang: its GPUs and its spares are in use."""
        self.busy[decision.nodes] |= decision.gpus
        self.busy[decision.spares] |= decision.held

    def give(self, decision: Decision) -> None:
        """Free what `take` took."""
        self.busy[decision.nodes] &= ~decision.gpus
        self.busy[decision.spares] &= ~decision.held

    def retire(self, nodes: Sequence[int] | Ints) -> None:
        """Let nothing new onto these nodes."""
        self.out[_positions(nodes)] = True

    def restore(self, nodes: Sequence[int] | Ints) -> None:
        """Undo `retire`."""
        self.out[_positions(nodes)] = False


def _positions(nodes: Sequence[int] | Ints) -> NDArray[np.intp]:
    return np.asarray(nodes, np.intp)
