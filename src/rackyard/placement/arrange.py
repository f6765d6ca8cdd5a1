"""The order of a gang's pieces: groups that are whole first, then those that had to be put together from remainders."""

from collections.abc import Mapping, Sequence

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


def together(rest: dict[int, int], grain: int) -> Pieces:
    """Remainders put together to groups: one that completes the group where there is, else the largest."""
    rest = dict(rest)
    pieces: Pieces = []
    open_ = grain
    while rest:
        fitting = [pool for pool, nodes in rest.items() if nodes == open_]
        pool = fitting[0] if fitting else max(rest, key=lambda pool: rest[pool])
        if not fitting and open_ < grain:
            pair = _pair(rest, open_)
            pool = pair if pair is not None else pool
        nodes = min(rest[pool], open_)
        pieces.append((pool, nodes))
        rest[pool] -= nodes
        if not rest[pool]:
            del rest[pool]
        open_ = open_ - nodes or grain
    return pieces


def _pair(rest: Mapping[int, int], open_: int) -> int | None:
    """A remainder that fills the open group together with one other."""
    by_size = {nodes: pool for pool, nodes in reversed(list(rest.items()))}
    for pool, nodes in rest.items():
        other = by_size.get(open_ - nodes)
        if nodes < open_ and other is not None and other != pool:
            return pool
    return None
