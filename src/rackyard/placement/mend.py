"""The nodes a hurt gang may move to, kept up to date while its segments are mended one after the other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackyard.placement.census import Census, census
from rackyard.placement.decide import by_preference
from rackyard.placement.model import Choice, Placement, Request, Segment
from rackyard.placement.shape import Misfit, shape_of
from rackyard.placement.yard import Yard


@dataclass(slots=True)
class Mending:
    """Nodes are positions in the columns, pools positions in the census. `free` has spares first; `used` counts the
    gang's good nodes by pool.
    """

    looked: Census
    request: Request
    gone: frozenset[str]
    free: list[list[int]]
    used: list[int]

    def node(self, name: str) -> int:
        """The position of a node. KeyError for a name the site does not have."""
        return self.looked.columns.index[name]

    def name(self, node: int) -> str:
        """The name of a node."""
        return self.looked.columns.names[node]

    def pool_of(self, node: int) -> int:
        """The node's pool."""
        return int(self.looked.columns.pool[node]) - self.looked.first_pool

    def spares(self, nodes: Iterable[int]) -> tuple[str, ...]:
        """As many free nodes as asked for of each pool that those nodes are in."""
        pools = sorted({self.pool_of(node) for node in nodes})
        return tuple(self.name(node) for pool in pools for node in self.free[pool][: self.request.spares])

    def mend(self, segment: Segment) -> tuple[tuple[int, ...] | None, tuple[Choice, ...]]:
        """The segment's new nodes by the way that moves fewest ranks, and what the other ways would have moved."""
        ways = [self._same_domain(segment), self._other_domain(segment), self._split(segment)]
        chosen = next((way.way for way in ways if way.ranks), "")
        told = tuple(replace(way, chosen=way.way == chosen) for way in ways)
        match chosen:
            case "same-domain":
                return self.in_place(segment), told
            case "other-domain":
                return self.elsewhere(segment), told
            case "split":
                return self.scattered(segment), told
            case _:
                return None, told

    def _same_domain(self, segment: Segment) -> Choice:
        lost = self._lost(segment)
        free = self._room(self.pool_of(self.node(segment.nodes[0])))
        ranks = lost * self.looked.shape.per_node if free >= lost else 0
        told = f"{_ranks(ranks)} move" if ranks else f"{lost} lost, {free} free in its domain"
        return Choice(segment.index, "same-domain", False, ranks, told)

    def _other_domain(self, segment: Segment) -> Choice:
        count = len(segment.nodes)
        fitting = self._fitting(segment, count)
        ranks = count * self.looked.shape.per_node if fitting else 0
        told = f"no other domain {'that may be used ' if self.request.groups else ''}has {count} free"
        if fitting:
            names = self.looked.columns.rack_names
            best = names[min(fitting, key=self._preference) + self.looked.first_pool]
            told = f"{_ranks(ranks)} move, to {best}"
        return Choice(segment.index, "other-domain", False, ranks, told)

    def _split(self, segment: Segment) -> Choice:
        lost, free = self._lost(segment), self._room_in(self._open_to(segment))
        allowed = self.request.segment_gpus is None or not self.request.segment_required
        ranks = lost * self.looked.shape.per_node if allowed and free >= lost else 0
        told = f"{_ranks(ranks)} move, out of the segment's domain"
        told = told if ranks else (f"{free} nodes free in all" if allowed else "the segment must stay whole")
        return Choice(segment.index, "split", False, ranks, told)

    def _lost(self, segment: Segment) -> int:
        return sum(name in self.gone for name in segment.nodes)

    def _fitting(self, segment: Segment, count: int) -> list[int]:
        loose = self.looked.pools(self.looked.columns.loose)
        return [
            pool for pool in self._open_to(segment) if self._room(pool) >= count and (count == 1 or not loose[pool])
        ]

    def _room(self, pool: int) -> int:
        """Free nodes of a pool that the gang may take: copies of a checkpoint stay in different racks."""
        if self.request.copies == 1:
            return len(self.free[pool])
        rack = self.looked.pools(self.looked.columns.rack)
        here = sum(used for other, used in enumerate(self.used) if rack[other] == rack[pool])
        return max(0, min(len(self.free[pool]), self.looked.shape.nodes // self.request.copies - here))

    def _room_in(self, pools: Sequence[int]) -> int:
        """The same of several pools; of one rack, only what the largest of them has."""
        if self.request.copies == 1:
            return sum(len(self.free[pool]) for pool in pools)
        rack = self.looked.pools(self.looked.columns.rack)
        by_rack: dict[int, int] = {}
        for pool in pools:
            by_rack[int(rack[pool])] = max(by_rack.get(int(rack[pool]), 0), self._room(pool))
        return sum(by_rack.values())

    def _open_to(self, segment: Segment) -> list[int]:
        """The pools in the same leaf group, block or part, where the gang's groups must stay inside one."""
        home = self.pool_of(self.node(segment.nodes[0]))
        tiers = [self.looked.pools(self.looked.columns.tier[g.within]) for g in self.request.groups if g.required]
        return [pool for pool in range(len(self.free)) if all(tier[pool] == tier[home] for tier in tiers)]

    def in_place(self, segment: Segment) -> tuple[int, ...] | None:
        """The segment with its lost nodes replaced from its own pool; None when that has too few."""
        lost = sum(name in self.gone for name in segment.nodes)
        home = self.pool_of(self.node(segment.nodes[0]))
        if self._room(home) < lost:
            return None
        return self._patched(segment, self._take(home, lost))

    def elsewhere(self, segment: Segment) -> tuple[int, ...] | None:
        """All of the segment in another domain; None when none has the room."""
        count = len(segment.nodes)
        fitting = self._fitting(segment, count)
        if not fitting:
            return None
        chosen = self._take(min(fitting, key=self._preference), count)
        for name in segment.nodes:
            if name not in self.gone:  # its good nodes may mend a neighbour
                home = self.pool_of(self.node(name))
                self.free[home].append(self.node(name))
                self.used[home] -= 1
        return tuple(chosen)

    def scattered(self, segment: Segment) -> tuple[int, ...] | None:
        """Only the lost nodes elsewhere, though that takes the segment apart; None where it is not allowed."""
        if self.request.segment_gpus is not None and self.request.segment_required:
            return None
        missing, pools = self._lost(segment), self._open_to(segment)
        if self._room_in(pools) < missing:
            return None
        chosen: list[int] = []
        while missing:
            enough = [pool for pool in pools if self._room(pool) >= missing]
            largest = max(pools, key=lambda pool: (self._room(pool), -pool))
            pool = min(enough, key=self._preference) if enough else largest
            part = self._take(pool, min(missing, self._room(pool)))
            chosen += part
            missing -= len(part)
        return self._patched(segment, chosen)

    def _patched(self, segment: Segment, new: Sequence[int]) -> tuple[int, ...]:
        supply = iter(new)
        return tuple(next(supply) if name in self.gone else self.node(name) for name in segment.nodes)

    def _take(self, pool: int, count: int) -> list[int]:
        taken, self.free[pool] = self.free[pool][:count], self.free[pool][count:]
        self.used[pool] += count
        return taken

    def _preference(self, pool: int) -> tuple[bool, bool, int, int, int]:
        """Sound NVLink first; then the gang's blocks; then together or apart, as asked; then the tightest."""
        used = self.used[pool]
        block = self.looked.pools(self.looked.columns.tier["block"])
        near = any(self.used[other] and block[other] == block[pool] for other in range(len(self.used)))
        together = -(used > 0) if self.request.spread == "pack" else used
        weak = bool(self.looked.pools(self.looked.columns.weak)[pool])
        return (weak, not near, together, len(self.free[pool]), pool)


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def open_mending(placement: Placement, gone: frozenset[str], request: Request, yard: Yard) -> Mending:
    """What a yard without the placement has for it when it lost the nodes `gone`. ValueError when the request isn't the
    placement's.
    """
    nodes = placement.nodes()
    columns = yard.columns
    kind = int(columns.kind[columns.index[nodes[0]]])
    shape = shape_of(request, columns.classes[kind])
    if isinstance(shape, Misfit) or request.gpus != len(placement.seats):
        raise ValueError(f"the request for {request.gpus} GPUs does not belong to this placement")
    one = sum(1 << seat.gpu for seat in placement.seats if seat.node == nodes[0])
    same = shape.nodes > 1 and (request.rails == "aligned" or shape.per_node == columns.classes[kind].size)
    asked = replace(request, exclude=request.exclude | gone, pin=frozenset(), exclusive=False)
    looked = census(asked, yard, kind, shape, one if same else None)
    held = np.zeros(len(columns.names), np.bool_)
    held[columns.positions(nodes)] = True
    mine = [node for node in columns.positions(nodes) if columns.names[node] not in gone]
    usable = looked.usable()
    spare = set(columns.positions(placement.spares))
    free: list[list[int]] = [[] for _ in looked.starts]
    able, of = by_preference(looked, usable, np.arange(len(free), dtype=np.int32), asked)
    for pool, node in zip(of.tolist(), (able + looked.first_node).tolist(), strict=True):
        if not held[node]:
            free[pool].append(node)
    for nodes_of_pool in free:
        nodes_of_pool.sort(key=lambda node: node not in spare)
    used = [0] * len(looked.starts)
    for node in mine:
        used[int(columns.pool[node]) - looked.first_pool] += 1
    return Mending(looked, request, gone, free, used)
