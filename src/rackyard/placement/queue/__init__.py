"""The queue: which waiting gangs start, what is kept for whom, and who gives way. Pure decisions."""

from rackyard.placement.queue.answer import Preemption, QueuePlan, Reason, Start
from rackyard.placement.queue.consolidate import Consolidation, Move, consolidate
from rackyard.placement.queue.model import Gang, Policy, QueueState, Reservation, Running, Team, requeued
from rackyard.placement.queue.plan import plan

__all__ = [
    "Consolidation",
    "Gang",
    "Move",
    "Policy",
    "Preemption",
    "QueuePlan",
    "QueueState",
    "Reason",
    "Reservation",
    "Running",
    "Start",
    "Team",
    "consolidate",
    "plan",
    "requeued",
]
