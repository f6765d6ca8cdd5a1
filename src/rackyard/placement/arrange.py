"""The order of a gang's pieces: groups that are whole first, then those that had to be put together from remainders."""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from rackyard.placement.columns import Ints

Pieces = list[tuple[int, int]]
"""(pool, nodes), in the order of the ranks."""


def arrange(taken: Mapping[int, int], grain: int, order: Sequence[Ints], bins: Ints | None = None) -> Pieces:
    """Pieces for nodes by pool, so that as few groups of `grain` neighbours as possible span two pools, or two of the
    groups of pools that `bins` numbers.

    Pools stand by `order` (columns of group numbers, outermost first), then by their own number, so that neighbours in
    rank are neighbours on the floor.
    """
    pools = sorted(taken, key=lambda pool: (*(int(column[pool]) for column in order), pool))
    inside: dict[int, list[int]] = {}
    for pool in pools:
        inside.setdefault(pool if bins is None else int(bins[pool]), []).append(pool)
    pieces: Pieces = []
    rest: dict[int, int] = {}
    for members in inside.values():
        whole = sum(taken[pool] for pool in members) // grain * grain
        for pool in members:
            nodes = min(whole, taken[pool])
            whole -= nodes
            if nodes:
                pieces.append((pool, nodes))
            if taken[pool] > nodes:
                rest[pool] = taken[pool] - nodes
    return pieces + together(rest, grain)


def together(rest: Mapping[int, int], grain: int) -> Pieces:
    """Remainders put together to groups: one that completes the group where there is, else the largest."""
    pools = list(rest)
    by_size: dict[int, list[int]] = {}
    """Heaps of positions in `pools`: the first of a size comes first."""
    for at, nodes in enumerate(rest.values()):
        by_size.setdefault(nodes, []).append(at)
    pieces: Pieces = []
    open_ = grain
    while by_size:
        size = open_ if open_ in by_size else None
        if size is None and open_ < grain:
            size = _pair(by_size, open_)
        if size is None:
            size = max(by_size)
        at = heappop(by_size[size])
        if not by_size[size]:
            del by_size[size]
        nodes = min(size, open_)
        pieces.append((pools[at], nodes))
        if size > nodes:
            heappush(by_size.setdefault(size - nodes, []), at)
        open_ = open_ - nodes or grain
    return pieces


def _pair(by_size: Mapping[int, list[int]], open_: int) -> int | None:
    """The size of a remainder that fills the open group together with one other."""
    pairs = [
        (first[0], size)
        for size, first in by_size.items()
        if open_ - size in by_size and (2 * size != open_ or len(first) > 1)
    ]
    return min(pairs)[1] if pairs else None
