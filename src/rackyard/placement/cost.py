"""The figures by which placements compare, for `plan` and `why`."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from rackyard.placement.census import Census
from rackyard.placement.model import CostTerm, Segment


def cost_terms(looked: Census, taken: Mapping[int, int], segments: Sequence[Segment]) -> tuple[CostTerm, ...]:
    """The cost of taking so many nodes from those pools of the census, most important term first."""
    shape = looked.shape
    used = [looked.pools[number] for number in taken]
    left = sum(len(pool.usable()) - taken[number] for number, pool in zip(taken, used, strict=True))
    broken = sum(1 for pool in used if not pool.loose and all(view.free == looked.group.size for view in pool.views))
    split = len(segments) - shape.units if shape.segment is not None else 0
    hops = sum(1 for before, after in pairwise(segments) if before.domain != after.domain)
    terms = (
        ("split-segments", split, "pieces more than segments asked for; 0: every segment inside one NVLink domain"),
        ("domains", len({segment.domain for segment in segments}), "NVLink domains used"),
        ("racks", len({pool.rack for pool in used}), "racks used"),
        ("weak-domains", sum(1 for pool in used if not pool.healthy), "racks used whose NVLink is not healthy"),
        ("domain-changes", hops, "neighbours in rank order that sit in different NVLink domains"),
        ("whole-racks-opened", broken, "NVLink domains that were entirely free before"),
        ("nodes-left", left, "usable nodes left over in the racks used"),
    )
    return tuple(CostTerm(name, float(value), meaning) for name, value, meaning in terms)
