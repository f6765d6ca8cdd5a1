"""Best fit by rack: the fullest rack that still has room."""

import numpy as np

from rackyard.placement.model import Request
from rackyard.placement.replay.policies.room import Positions, Room, rooms
from rackyard.placement.yard import Decision, Yard


def best_fit(request: Request, yard: Yard) -> Decision | None:
    """The bin-packing rule of textbooks with a rack as the bin: our own base line, without a source.

    The fullest rack that holds the whole gang is taken. Where none does, racks are filled up, the fullest first, until
    the gang is seated: few nodes stay idle, but a large gang ends in many leftovers. Segments stay whole: a rack counts
    only for the whole segments that fit in it. One that is not required is cut where the gang fits in no other way.
    """
    for room in rooms(request, yard):
        shape = room.shape
        for unit in [shape.unit] if request.segment_required else sorted({shape.unit, 1}, reverse=True):
            nodes = _fill(room, unit)
            if nodes is not None:
                return room.seats(nodes)
    return None


def _fill(room: Room, unit: int) -> Positions | None:
    """Nodes for the gang, `unit` of them at a time from one rack."""
    counts = room.counts()
    held = np.where(room.ground.loose & (unit > 1), 0, counts // unit) * unit
    need = room.shape.nodes
    whole = np.flatnonzero(held >= need)
    if len(whole):
        racks = whole[[np.argmin(counts[whole])]]
    else:
        some = np.flatnonzero(held)
        racks = some[np.argsort(counts[some], kind="stable")]
    taken: list[Positions] = []
    for rack in racks.tolist():
        part = room.of_pool(rack)[: min(need, int(held[rack]))]
        taken.append(part)
        need -= len(part)
        if not need:
            return np.concatenate(taken)
    return None
