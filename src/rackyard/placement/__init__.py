"""Where gangs go and why: pure decisions over a site."""

from rackyard.placement.codec import decode, encode
from rackyard.placement.engine import place
from rackyard.placement.explain import explain
from rackyard.placement.model import (
    CostTerm,
    Occupancy,
    Placement,
    RackVerdict,
    Rejection,
    Request,
    Seat,
    Segment,
)
from rackyard.placement.reseat import moved_ranks, reseat

__all__ = [
    "CostTerm",
    "Occupancy",
    "Placement",
    "RackVerdict",
    "Rejection",
    "Request",
    "Seat",
    "Segment",
    "decode",
    "encode",
    "explain",
    "moved_ranks",
    "place",
    "reseat",
]
