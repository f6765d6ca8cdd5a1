"""Our own way to mend a gang after a fault, on a yard: the fewest ranks move, and the gang goes on at once."""

from dataclasses import replace

from rackyard.placement.columns import Ints
from rackyard.placement.engine import decision_of, named
from rackyard.placement.model import Rejection, Request
from rackyard.placement.reseat import reseat_on
from rackyard.placement.yard import Decision, Yard


def mend(request: Request, held: Decision, lost: Ints, yard: Yard) -> Decision | None:
    """New seats for a gang that lost nodes; None when there are none. The yard still has its old ones in use."""
    around = yard.copy()
    around.give(held)
    columns = yard.columns
    gone = frozenset(columns.names[node] for node in lost.tolist())
    answer = reseat_on(named(held, columns, request.rails), gone, request, around)
    if isinstance(answer, Rejection):
        return None
    found = decision_of(answer, columns)
    return replace(found, held=found.held & ~around.busy[found.spares])
