"""Best paths from every node to the nodes that NCCL computes paths to, before any rule of transport is applied.

A breadth-first walk from each target, repeated as long as something improves. A path of a better type wins (2.30 and
later), or a faster one; before 2.30 a faster one that is not much longer. Bandwidth is that of the slowest link.
Source: NCCL 2.30.7 and 2.29.7, ``src/graph/paths.cc``.
"""

from dataclasses import dataclass

from rackyard.errors import Where
from rackyard.nccl.linktypes import (
    CPU,
    DEV,
    GIN,
    GPU,
    LINK_LOC,
    LINK_NET,
    LINK_NVL,
    LINK_PCI,
    LOC_BW,
    NET,
    NODE_TYPES,
    NVS,
    PATH_DIS,
    PATH_LOC,
    PATH_NVB,
    PATH_NVL,
    PATH_PHB,
    PATH_PXB,
    PCI,
    RMA,
)
from rackyard.nccl.topology import GpuNode, PathRow, System
from rackyard.nccl.xmlrefused import TopologyRefused

STAGE = "paths"
TARGETS = (CPU, DEV, GPU, NET, GIN, RMA, NVS)
"""Node types that have paths to them, in the order in which NCCL computes them."""

Step = tuple[int, int, float, int]
"""A link seen from the node it leaves: node it goes to, least path type, GB/s, link back (-1 if there is none)."""


@dataclass(slots=True)
class _Steps:
    """All links as steps. Through a GPU's device a path may go on only to the GPU and, early, by NVLink."""

    all: list[list[Step]]
    early: list[list[Step]]
    late: list[list[Step]]


def set_paths(system: System) -> None:
    """Fill ``system.rows``. Raises TopologyRefused (stage ``paths``) where a link has no way back."""
    system.rows = [[None] * len(system.nodes) for _ in system.of_type]
    steps = _steps(system)
    walk = _Walk(system, steps)
    for node_type in TARGETS:
        for target in system.of_type[node_type]:
            walk.run(target)


def _steps(system: System) -> _Steps:
    types = [node.type for node in system.nodes]
    passing = system.dev_type
    steps = _Steps([[] for _ in types], [], [])
    steps.early, steps.late = list(steps.all), list(steps.all)
    for node, here in enumerate(types):
        early: list[Step] = []
        late: list[Step] = []
        for link in system.links[node]:
            to, kind = system.link_to[link], system.link_type[link]
            back = system.find_link(to, node, kind)
            step = (to, _least_type(here, types[to], kind), system.link_bw[link], -1 if back is None else back)
            steps.all[node].append(step)
            if system.has_dev and kind == LINK_LOC and types[to] == GPU:
                early.append(step)
                late.append(step)
            elif kind == LINK_NVL and types[to] == passing:
                early.append(step)
        if here == passing:
            steps.early[node], steps.late[node] = early, late
    return steps


def _least_type(here: int, there: int, link_type: int) -> int:
    """Type of a path of this one link. A link to a network counts as local: only the way to the NIC matters."""
    if link_type == LINK_PCI and CPU in (here, there):
        return PATH_PHB
    if here == PCI and there == PCI:
        return PATH_PXB
    return PATH_LOC if link_type == LINK_NET else link_type


class _Walk:
    """Walks from one target at a time. Per node: type, GB/s and links of its best path to the target so far."""

    def __init__(self, system: System, steps: _Steps) -> None:
        self.system = system
        self.steps = steps
        self.near = [{step[0] for step in node} for node in steps.all]
        self.passing = [node.type == system.dev_type for node in system.nodes]

    def run(self, target: int) -> None:
        """All paths to one target; a target whose id another had before shares that one's place."""
        system = self.system
        node_type = system.nodes[target].type
        place = system.place_of_id(node_type, system.nodes[target].id) or 0
        count = len(system.nodes)
        self.types, self.speeds = [PATH_DIS] * count, [0.0] * count
        self.paths: list[tuple[int, ...]] = [()] * count
        rows = system.rows[node_type]
        if system.of_type[node_type][place] != target:
            self._load(rows, place)
        self.types[target], self.speeds[target], self.paths[target] = PATH_LOC, LOC_BW, ()
        walk = self._walk_by_type if system.has_dev else self._walk_by_speed
        self._store(rows, place, node_type, walk(target))

    def _load(self, rows: list[PathRow | None], place: int) -> None:
        for node, row in enumerate(rows):
            if row is not None:
                self.types[node], self.speeds[node], self.paths[node] = row.type[place], row.bw[place], row.links[place]

    def _store(self, rows: list[PathRow | None], place: int, node_type: int, visited: set[int]) -> None:
        reached = visited.union(*(self.near[node] for node in visited))
        size = self.system.count(node_type)
        for node in reached:
            row = rows[node]
            if row is None:
                row = rows[node] = PathRow.disconnected(size)
            row.type[place], row.bw[place], row.links[place] = self.types[node], self.speeds[node], self.paths[node]

    def _walk_by_type(self, target: int) -> set[int]:
        """NCCL 2.30 and later: a better type wins, then more bandwidth, then fewer hops."""
        types, speeds, paths, passing = self.types, self.speeds, self.paths, self.passing
        all_steps, early, late = self.steps.all, self.steps.early, self.steps.late
        node = self.system.nodes[target]
        own_device = node.parent if isinstance(node, GpuNode) else target
        # Hops from the target to a neighbour's device over one NVLink: a GPU is one hop away from its own device.
        longest = 2 if isinstance(node, GpuNode) else 1
        now, visited = [target], set[int]()
        while now:
            soon: dict[int, None] = {}
            for here in now:
                visited.add(here)
                path, kind, speed = paths[here], types[here], speeds[here]
                hops = len(path)
                through = passing[here]
                steps = all_steps
                if through and here != own_device:
                    steps = early if hops <= longest else late
                relayed = through and kind == PATH_NVL and hops == longest
                for to, least, bw, back in steps[here]:
                    if relayed and least == PATH_NVL:
                        least = PATH_NVB  # a second NVLink makes the GPU between a relay
                    new = kind if kind > least else least
                    old = types[to]
                    if new > old:
                        continue
                    slowest = bw if bw < speed else speed
                    if new == old:
                        known = speeds[to]
                        if slowest < known or (slowest == known and len(paths[to]) <= hops + 1):
                            continue
                    types[to], speeds[to] = new, slowest
                    paths[to] = ((back if back >= 0 else self._way_back(to, here)), *path)
                    soon[to] = None
            now = list(soon)
        return visited

    def _walk_by_speed(self, target: int) -> set[int]:
        """Before NCCL 2.30: more bandwidth wins, unless the new path is longer than the one that is there."""
        types, speeds, paths, passing = self.types, self.speeds, self.paths, self.passing
        now, visited = [target], set[int]()
        while now:
            soon: dict[int, None] = {}
            for here in now:
                visited.add(here)
                path, kind, speed = paths[here], types[here], speeds[here]
                hops = len(path)
                through = passing[here]
                steps = self.steps.all
                if through and here != target:
                    steps = self.steps.early if hops <= 1 else self.steps.late
                relayed = through and kind == PATH_NVL and hops >= 1
                for to, least, bw, back in steps[here]:
                    known = speeds[to]
                    slowest = bw if bw < speed else speed
                    if known >= slowest or (known != 0 and len(paths[to]) <= hops):
                        continue
                    if relayed and least == PATH_NVL:
                        least = PATH_NVB  # a second NVLink makes the GPU between a relay
                    types[to], speeds[to] = (kind if kind > least else least), slowest
                    paths[to] = ((back if back >= 0 else self._way_back(to, here)), *path)
                    soon[to] = None
            now = list(soon)
        return visited

    def _way_back(self, to: int, here: int) -> int:
        """A link without its opposite: NCCL goes on with the first link of the old path, if there is one, or ends."""
        if self.paths[to]:
            return self.paths[to][0]
        far, near = self.system.nodes[to], self.system.nodes[here]
        message = (
            f"Failed to find reverse path from remNode {far.type}/{far.id:x} nlinks {len(self.system.links[to])}"
            f" to node {near.type}/{near.id:x}"
        )
        raise refused(self.system, message, far.line)


def row_of(system: System, node: int, node_type: int) -> PathRow:
    """The paths from a node to a type of nodes. NCCL reads them without a look whether there are any, and dies.

    A GPU without them is one that no NIC of the system reaches: its host has none, but another host has.
    """
    row = system.rows[node_type][node]
    if row is None:
        place, kind = system.nodes[node], NODE_TYPES[node_type]
        fix = f"{place.name} has no path to any {kind} although there are some: give its host a {kind} or take it out"
        raise refused(system, "", place.line, crashes=True, fix=fix)
    return row


def refused(
    system: System, message: str, line: int = 0, *, crashes: bool = False, fix: str | None = None
) -> TopologyRefused:
    """What NCCL reports when it can't compute paths, at the element that a node was made from."""
    where = Where(system.file, line or None) if system.file or line else None
    return TopologyRefused(message, stage=STAGE, where=where, crashes=crashes, fix=fix)
