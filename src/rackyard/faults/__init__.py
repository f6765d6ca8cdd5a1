"""Fault attribution and recovery policy: pure functions of what was seen."""

from rackyard.faults.attribute import AttemptView, Cause, Fault, RankView, attribute
from rackyard.faults.policy import Action, ActionKind, Budget, Past, decide

__all__ = [
    "Action",
    "ActionKind",
    "AttemptView",
    "Budget",
    "Cause",
    "Fault",
    "Past",
    "RankView",
    "attribute",
    "decide",
]
