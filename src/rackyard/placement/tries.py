"""Whether a request would be placed: now, or on a site that is idle and healthy."""

from dataclasses import replace

from rackyard.placement.census import BIT, EVERYTHING
from rackyard.placement.decide import looks
from rackyard.placement.model import Request
from rackyard.placement.shape import Shape, shape_of
from rackyard.placement.solve import solve
from rackyard.placement.yard import Yard

TRIES = 24
"""Changes of one kind that are tried before a rejection goes without."""

PASSING = EVERYTHING & ~(BIT["excluded"] | BIT["kind"])
"""What time or repair can mend."""


def fits(request: Request, yard: Yard) -> bool:
    """Whether the request would be placed now."""
    return _fits(request, yard, 0)


def could(request: Request, yard: Yard) -> bool:
    """Whether it would be placed if every node were idle and healthy."""
    return _fits(request, yard, PASSING)


def divides(request: Request, yard: Yard) -> bool:
    """Whether the gang divides over any class of nodes here."""
    classes = [group for group in yard.columns.classes if request.gpu_kind in (None, group.gpu)]
    return any(isinstance(shape_of(request, group), Shape) for group in classes)


def _fits(request: Request, yard: Yard, ignored: int) -> bool:
    # wishes choose between seats, they refuse none
    plain = replace(request, parallel=None, groups=tuple(group for group in request.groups if group.required))
    return any(solve(looked, plain, ignored) is not None for looked in looks(request, yard))
