"""Who holds which GPUs and until when, as flat arrays: one look answers for thousands of gangs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Columns, Flags, Ints, Masks
from rackyard.placement.queue.model import Policy, Running
from rackyard.placement.yard import Decision


def seats(decision: Decision) -> tuple[Ints, Masks]:
    """The nodes of a decision, spares included, and the GPUs held on each."""
    if not len(decision.spares):
        return decision.nodes, decision.gpus
    return (
        np.concatenate((decision.nodes, decision.spares)),
        np.concatenate((decision.gpus, decision.held)),
    )


def spread_out(decision: Decision, columns: Columns) -> Masks:
    """The GPUs that a decision holds, of every node of the site."""
    held = np.zeros(len(columns.names), np.uint32)
    held[decision.nodes] = decision.gpus
    held[decision.spares] = decision.held
    return held


def stated_end(run: Running, policy: Policy) -> float:
    """When its estimate, or the policy's for gangs without one, says that it ends; that may be in the past."""
    return run.started + (policy.unknown if run.gang.estimate is None else run.gang.estimate)


def expected_end(run: Running, now: float, policy: Policy) -> float:
    """When a plan takes it to end: as stated; past that, or told to stop, so long from now as the policy says."""
    if run.stopping:
        return now + policy.stop
    end = stated_end(run, policy)
    return end if end > now else now + policy.overrun


@dataclass(slots=True, eq=False)
class Holdings:
    """What gangs hold. An owner is a position in `ends`; gangs that start in the round are added at the end."""

    columns: Columns
    ends: list[float] = field(default_factory=list)
    """When each is expected to end."""
    nodes: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    masks: Masks = field(default_factory=lambda: np.zeros(0, np.uint32))
    owners: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    """The owner of each entry of `nodes` and `masks`."""

    @classmethod
    def of(cls, running: Sequence[Running], columns: Columns, now: float, policy: Policy) -> "Holdings":
        """What the running gangs hold, owners in their order."""
        held = cls(columns)
        held.add([(run.decision, expected_end(run, now, policy)) for run in running])
        return held

    def add(self, more: Iterable[tuple[Decision, float]]) -> None:
        """More gangs, with their expected ends."""
        nodes, masks, owners = [self.nodes], [self.masks], [self.owners]
        for decision, end in more:
            where, what = seats(decision)
            nodes.append(where)
            masks.append(what)
            owners.append(np.full(len(where), len(self.ends), np.int32))
            self.ends.append(end)
        self.nodes, self.masks = np.concatenate(nodes), np.concatenate(masks)
        self.owners = np.concatenate(owners)

    def freed(self, gone: Flags) -> Masks:
        """The GPUs, of every node, that are free once the flagged owners are gone."""
        free = np.zeros(len(self.columns.names), np.uint32)
        chosen = gone[self.owners]
        np.bitwise_or.at(free, self.nodes[chosen], self.masks[chosen])
        return free

    def flags(self, owners: Iterable[int]) -> Flags:
        """Those owners, flagged."""
        flags = np.zeros(len(self.ends), np.bool_)
        flags[list(owners)] = True
        return flags

    def ended(self, time: float) -> Flags:
        """The owners that are expected to have ended by then."""
        return np.array(self.ends, np.float64) <= time

    def on(self, held: Masks) -> list[int]:
        """The owners with any of those GPUs (one mask a node of the site), ascending."""
        hit: NDArray[np.bool_] = (held[self.nodes] & self.masks) != 0
        return [int(owner) for owner in np.unique(self.owners[hit])]
