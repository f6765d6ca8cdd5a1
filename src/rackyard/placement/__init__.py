"""Where gangs go and why: pure decisions over a site."""

from rackyard.placement.codec import decode, encode
from rackyard.placement.columns import Columns
from rackyard.placement.decide import decide
from rackyard.placement.engine import place, place_on
from rackyard.placement.explain import explain
from rackyard.placement.model import (
    Choice,
    CostTerm,
    Group,
    Occupancy,
    Parallel,
    Placement,
    RackVerdict,
    Rejection,
    Request,
    Seat,
    Segment,
)
from rackyard.placement.reseat import moved_ranks, reseat, reseat_on
from rackyard.placement.yard import Decision, Yard

__all__ = [
    "Choice",
    "Columns",
    "CostTerm",
    "Decision",
    "Group",
    "Occupancy",
    "Parallel",
    "Placement",
    "RackVerdict",
    "Rejection",
    "Request",
    "Seat",
    "Segment",
    "Yard",
    "decide",
    "decode",
    "encode",
    "explain",
    "moved_ranks",
    "place",
    "place_on",
    "reseat",
    "reseat_on",
]
