"""The nodes a hurt gang may move to, kept up to date while its segments are mended one after the other."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rackyard.fabric import Site
from rackyard.placement.census import Census, Pool, View, census
from rackyard.placement.model import Occupancy, Placement, Request, Segment
from rackyard.placement.shape import Misfit, node_classes, shape_of


@dataclass(slots=True)
class Yard:
    """`free` holds views by pool, spares first; `used` the gang's good nodes by pool."""

    looked: Census
    request: Request
    gone: frozenset[str]
    free: list[list[View]]
    used: list[int]
    where: Mapping[str, tuple[int, View]]
    """Node name to its pool and view."""

    def view(self, name: str) -> View:
        """The view of a node of this class. KeyError for any other."""
        return self.where[name][1]

    def pool_of(self, name: str) -> int:
        """The position of the node's pool in the census."""
        return self.where[name][0]

    def taken(self, names: Iterable[str]) -> dict[int, int]:
        """Nodes by pool."""
        found: dict[int, int] = {}
        for name in names:
            number = self.pool_of(name)
            found[number] = found.get(number, 0) + 1
        return found

    def spares(self, pools: Iterable[int], count: int) -> tuple[str, ...]:
        """Up to `count` free nodes of each of those pools."""
        return tuple(view.node.name for number in sorted(pools) for view in self.free[number][:count])

    def in_place(self, segment: Segment) -> tuple[View, ...] | None:
        """The segment with its lost nodes replaced from its own pool; None when that has too few."""
        lost = [name for name in segment.nodes if name in self.gone]
        home = self.pool_of(segment.nodes[0])
        if len(self.free[home]) < len(lost):
            return None
        return self._patched(segment, self._take(home, len(lost)))

    def elsewhere(self, segment: Segment) -> tuple[View, ...] | None:
        """All of the segment in another domain; None when none has the room."""
        count = len(segment.nodes)
        fitting = [
            number
            for number, pool in enumerate(self.looked.pools)
            if len(self.free[number]) >= count and (count == 1 or not pool.loose)
        ]
        if not fitting:
            return None
        chosen = self._take(min(fitting, key=self._preference), count)
        for name in segment.nodes:
            if name not in self.gone:  # its good nodes may mend a neighbour
                home, view = self.where[name]
                self.free[home].append(view)
                self.used[home] -= 1
        return tuple(chosen)

    def scattered(self, segment: Segment) -> tuple[View, ...] | None:
        """Only the lost nodes elsewhere, though that takes the segment apart; None where it is not allowed."""
        if self.request.segment_gpus is not None and self.request.segment_required:
            return None
        missing = sum(1 for name in segment.nodes if name in self.gone)
        if sum(map(len, self.free)) < missing:
            return None
        chosen: list[View] = []
        while missing:
            enough = [number for number, free in enumerate(self.free) if len(free) >= missing]
            largest = max(range(len(self.free)), key=lambda number: (len(self.free[number]), -number))
            number = min(enough, key=self._preference) if enough else largest
            part = self._take(number, min(missing, len(self.free[number])))
            chosen += part
            missing -= len(part)
        return self._patched(segment, chosen)

    def _patched(self, segment: Segment, new: Sequence[View]) -> tuple[View, ...]:
        supply = iter(new)
        return tuple(next(supply) if name in self.gone else self.view(name) for name in segment.nodes)

    def _take(self, number: int, count: int) -> list[View]:
        taken, self.free[number] = self.free[number][:count], self.free[number][count:]
        self.used[number] += count
        return taken

    def _preference(self, number: int) -> tuple[bool, int, int, int]:
        """Sound NVLink first; then stay together or apart, as asked; then the tightest."""
        used = self.used[number]
        together = -(used > 0) if self.request.spread == "pack" else used
        return (not self.looked.pools[number].healthy, together, len(self.free[number]), number)


def open_yard(placement: Placement, gone: frozenset[str], request: Request, site: Site, occupancy: Occupancy) -> Yard:
    """What is there for a placement that lost the nodes `gone`. ValueError when the request isn't the placement's."""
    nodes = placement.nodes()
    group = next(group for group in node_classes(site) if site.node(nodes[0]) in group.nodes)
    shape = shape_of(request, group)
    if isinstance(shape, Misfit) or request.gpus != len(placement.seats):
        raise ValueError(f"the request for {request.gpus} GPUs does not belong to this placement")
    window = None if shape.nodes == 1 else tuple(seat.gpu for seat in placement.seats if seat.node == nodes[0])
    window = window if request.rails == "aligned" or shape.per_node == group.size else None
    asked = replace(request, exclude=request.exclude | gone)
    looked = census(asked, site, occupancy.without(placement), group, shape, window)
    held = set(nodes)
    free = [
        sorted(
            (view for view in pool.usable() if view.node.name not in held),
            key=lambda view: view.node.name not in placement.spares,
        )
        for pool in looked.pools
    ]
    where = {view.node.name: (number, view) for number, pool in enumerate(looked.pools) for view in pool.views}
    return Yard(looked, request, gone, free, [_mine(pool, held - gone) for pool in looked.pools], where)


def _mine(pool: Pool, held: set[str]) -> int:
    return sum(1 for view in pool.views if view.node.name in held)
