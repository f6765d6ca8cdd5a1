"""How far a gang is spread, and how far it would have to be on the empty site."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.columns import Columns
from rackyard.placement.model import Request
from rackyard.placement.shape import Shape, shape_of
from rackyard.placement.yard import Decision


@dataclass(frozen=True, slots=True)
class Span:
    """Domains, blocks and segments of a placement. `least_` is what the size makes necessary."""

    nodes: int
    domains: int
    least_domains: int
    blocks: int
    least_blocks: int
    segments: int
    """Of more than one node; 0 where the gang asks for none."""
    split: int
    """Segments that lie in more than one NVLink domain."""


def span_of(decision: Decision, request: Request, columns: Columns) -> Span:
    """Measure a placement."""
    nodes = decision.nodes
    pools = columns.pool[nodes]
    # a server that is its own domain counts as one, by a number no pool has
    domains = np.where(columns.loose[pools], nodes.astype(np.int64) + len(columns.loose), pools)
    kind = int(columns.kind[nodes[0]])
    shape = shape_of(request, columns.classes[kind])
    assert isinstance(shape, Shape)
    unit = shape.segment or 1
    segments = split = 0
    if unit > 1:
        rows = domains.reshape(-1, unit)
        segments = len(rows)
        split = int(np.count_nonzero((rows != rows[:, :1]).any(axis=1)))
    least_domains, least_blocks = least(columns, kind, shape)
    return Span(
        nodes=len(nodes),
        domains=len(np.unique(domains)),
        least_domains=least_domains,
        blocks=len(np.unique(columns.tier["block"][pools])),
        least_blocks=least_blocks,
        segments=segments,
        split=split,
    )


@lru_cache(maxsize=4096)
def least(columns: Columns, kind: int, shape: Shape) -> tuple[int, int]:
    """The fewest domains and the fewest blocks that hold such a gang when the site is empty, segments whole."""
    pools = columns.pools(kind)
    total, loose = columns.total[pools], columns.loose[pools]
    unit = shape.unit
    room = np.where(loose, 0, total // unit) * unit if unit > 1 else total
    if int(room.sum()) < shape.nodes:
        room = total  # segments larger than the domains have to be cut
    domains = np.repeat(np.ones(1, np.int64), int(total[loose].sum())) if loose.any() else np.zeros(0, np.int64)
    blocks = np.bincount(columns.tier["block"][pools], room)
    return _fewest(np.concatenate([room[~loose], domains]), shape.nodes), _fewest(blocks, shape.nodes)


def _fewest(room: NDArray[np.generic], need: int) -> int:
    held = np.cumsum(np.sort(room)[::-1])
    return int(np.searchsorted(held, need)) + 1
