"""First fit: the first free nodes in the order of the site, whatever network they are on."""

from rackyard.placement.model import Request
from rackyard.placement.replay.policies.room import rooms
from rackyard.placement.yard import Decision, Yard


def first_fit(request: Request, yard: Yard) -> Decision | None:
    """Blind to the topology: what a scheduler does that was told nothing of it. Our own base line, without a source.

    Segments are ignored: consecutive ranks sit on consecutive nodes, and a segment is cut wherever a rack ends.
    """
    for room in rooms(request, yard):
        walk = room.ground.walk
        return room.seats(walk[room.fits[walk]][: room.shape.nodes])
    return None
