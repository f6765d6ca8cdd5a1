"""From a fault to an action: pure, so that every decision can be replayed and argued about.

First cut of the recovery policy; the order of the rules is the order below.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rackyard.faults.attribute import Cause, Fault

SAME_ERROR_LIMIT = 3
"""An error of the user's own, this many times in the same way, is not cured by another try."""

SAME_NODE_LIMIT = 2
"""A crash or hang this many times on one node makes the node suspect."""


class ActionKind(StrEnum):
    """What can be done about a fault."""

    RESTART = "restart-processes"
    REPLACE_NODES = "replace-nodes"
    MOVE_SEGMENT = "move-segment"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Action:
    """A decision with its reason and what the owner of the job should do, if anything."""

    kind: ActionKind
    reason: str
    next_step: str = ""
    nodes: tuple[str, ...] = ()
    """Nodes that must not be used again until somebody returns them."""
    racks: tuple[str, ...] = ()
    """Racks whose NVLink domain must not be used."""


@dataclass(frozen=True, slots=True)
class Past:
    """A fault that the job had before, and whether it came further afterwards than it had ever been."""

    fault: Fault
    progressed: bool


@dataclass(frozen=True, slots=True)
class Budget:
    """What may still be spent, and what there is to spend it on."""

    attempts_left: int
    spares: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each node in use: healthy free nodes of the same NVLink domain."""


def decide(fault: Fault, history: tuple[Past, ...], budget: Budget) -> Action:
    """What to do about `fault`, given the job's earlier faults (oldest first) and the budget."""
    action = _wanted(fault, history, budget)
    if action.kind is not ActionKind.STOP and budget.attempts_left <= 0:
        return Action(
            ActionKind.STOP,
            f"all attempts are used up; the last one ended so: {fault.summary}",
            "raise recover.attempts in the job file, or find out why the faults keep coming",
        )
    return action


def _wanted(fault: Fault, history: tuple[Past, ...], budget: Budget) -> Action:
    match fault.cause:
        case Cause.RACK_NVLINK | Cause.SWITCH_TRAY:
            reason = f"{fault.summary}: no segment can run on this domain, so it moves as a whole"
            return Action(ActionKind.MOVE_SEGMENT, reason, racks=fault.racks)
        case Cause.TRAY:
            return _replace(fault, budget, fault.summary)
        case Cause.EXIT:
            return _user_error(fault, history)
        case Cause.PROCESS | Cause.HANG:
            return _crash(fault, history, budget)
        case Cause.PORT:
            return Action(ActionKind.RESTART, f"{fault.summary}; another port is taken")
        case Cause.UNKNOWN:
            return Action(ActionKind.RESTART, f"{fault.summary}; every node answers, so it is tried in place")


def _replace(fault: Fault, budget: Budget, reason: str) -> Action:
    covered = _covered(fault.nodes, budget.spares)
    if covered:
        picks = ", ".join(f"{node} → {spare}" for node, spare in covered)
        return Action(
            ActionKind.REPLACE_NODES, f"{reason}; spare in the same NVLink domain: {picks}", nodes=fault.nodes
        )
    reason = f"{reason}; no spare is left in its NVLink domain, so the whole segment moves"
    return Action(ActionKind.MOVE_SEGMENT, reason, nodes=fault.nodes)


def _covered(nodes: tuple[str, ...], spares: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """Each lost node with a spare of its own; empty when there are not enough for all."""
    used: set[str] = set()
    pairs: list[tuple[str, str]] = []
    for node in nodes:
        spare = next((name for name in spares.get(node, ()) if name not in used), None)
        if spare is None:
            return []
        used.add(spare)
        pairs.append((node, spare))
    return pairs


def _user_error(fault: Fault, history: tuple[Past, ...]) -> Action:
    same = 1 + _run_of_same(fault, history)
    if same >= SAME_ERROR_LIMIT:
        return Action(
            ActionKind.STOP,
            f"the same error {same} times without a step forward: {fault.summary}",
            "the script fails by itself: read its log (rackyard logs JOB), mend it and submit it again",
        )
    return Action(ActionKind.RESTART, f"{fault.summary}; try {same} of {SAME_ERROR_LIMIT} with this error")


def _run_of_same(fault: Fault, history: tuple[Past, ...]) -> int:
    count = 0
    for past in reversed(history):
        if past.fault.signature != fault.signature or past.progressed:
            break
        count += 1
    return count


def _crash(fault: Fault, history: tuple[Past, ...], budget: Budget) -> Action:
    blamed = set(fault.nodes)
    before = sum(1 for past in history if past.fault.cause is fault.cause and blamed & set(past.fault.nodes))
    if blamed and 1 + before >= SAME_NODE_LIMIT:
        return _replace(fault, budget, f"{fault.summary}; {1 + before} times on the same node, so it is suspect")
    return Action(ActionKind.RESTART, f"{fault.summary}; the node answers, so it is restarted in place")
