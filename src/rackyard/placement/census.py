"""What each node could give a gang, and what stands in the way: the facts that solving and explaining share."""

from collections.abc import Iterable
from dataclasses import dataclass

from rackyard.fabric import DomainKey, Gpu, Health, Nic, Node, Site
from rackyard.placement.model import Occupancy, Request
from rackyard.placement.shape import NodeClass, Shape

PROBLEMS = ("excluded", "busy", "cordoned", "health", "rail", "nvlink")
"""What can stand in a node's way, the easiest to change first."""


@dataclass(frozen=True, slots=True)
class View:
    """A node as a gang sees it. `gpus` are the indices it would use, empty where it can't; `free` counts free GPUs."""

    node: Node
    problems: frozenset[str]
    gpus: tuple[int, ...]
    free: int


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes to take from together: an NVLink domain; or the servers of a rack that are each their own domain (`loose`),
    which stand in for one another though no segment can span two of them."""

    rack: str
    loose: bool
    healthy: bool
    """False where the NVLink of the domain is degraded or unknown: used last."""
    views: tuple[View, ...]

    def usable(self, ignored: frozenset[str] = frozenset()) -> list[View]:
        """Nodes with nothing in the way but what is `ignored`: fewest free GPUs first, else in site order."""
        good = [view for view in self.views if view.problems <= ignored]
        return sorted(good, key=lambda view: view.free)


@dataclass(frozen=True, slots=True)
class Census:
    """One node class under one request; `window` fixes the GPU indices of every node, None: any free ones."""

    group: NodeClass
    shape: Shape
    window: tuple[int, ...] | None
    pools: tuple[Pool, ...]


def windows(request: Request, group: NodeClass, shape: Shape) -> list[tuple[int, ...] | None]:
    """The GPU sets to try. Ranks of one rail must have the same GPU index on every node of a gang."""
    if shape.nodes == 1 or (request.rails == "any" and shape.per_node < group.size):
        return [None]
    starts = range(group.size - shape.per_node + 1)
    return [tuple(range(start, start + shape.per_node)) for start in starts]


def census(
    request: Request,
    site: Site,
    occupancy: Occupancy,
    group: NodeClass,
    shape: Shape,
    window: tuple[int, ...] | None,
) -> Census:
    """Look at every node of the class."""
    down = domains_down(site, (rack.name for rack in site.racks if rack.nvlink is Health.DOWN))
    weak = domains_down(site, (rack.name for rack in site.racks if rack.nvlink is not Health.HEALTHY))
    racks: dict[DomainKey, dict[str, None]] = {}
    for node in site.nodes:
        racks.setdefault(node.domain, {})[node.rack] = None
    by_domain: dict[DomainKey, list[View]] = {}
    for node in group.nodes:
        view = _view(node, request, occupancy, group, shape, window)
        if node.domain in down:
            view = View(node, view.problems | {"nvlink"}, view.gpus, view.free)
        by_domain.setdefault(node.domain, []).append(view)
    pools: dict[tuple[str, bool, object], list[View]] = {}
    for domain, views in by_domain.items():
        loose = len(views) == 1
        key = ("+".join(racks[domain]), loose, domain in weak if loose else domain)
        pools.setdefault(key, []).extend(views)
    made = [
        Pool(rack, loose, views[0].node.domain not in weak, tuple(views)) for (rack, loose, _), views in pools.items()
    ]
    return Census(group, shape, window, tuple(made))


def domains_down(site: Site, racks: Iterable[str]) -> frozenset[DomainKey]:
    """The NVLink domains that have any part in those racks."""
    names = set(racks)
    found = {rack.domain for rack in site.racks if rack.name in names and rack.domain is not None}
    return frozenset(found | {node.domain for node in site.nodes if node.rack in names})


def nic_for(gpu: Gpu, node: Node, group: NodeClass, rails: str) -> Nic | None:
    """The healthy NIC that serves a GPU: the one on its rail or, with `any`, else its neighbour, else any."""
    healthy = [nic for nic in node.nics if nic.health is Health.HEALTHY]
    rail = group.rail_of(gpu.index)
    aligned = next((nic for nic in healthy if nic.rail == rail), None)
    if aligned is not None or rails == "aligned":
        return aligned
    return next((nic for nic in healthy if nic.numa == gpu.numa), healthy[0] if healthy else None)


def _view(
    node: Node,
    request: Request,
    occupancy: Occupancy,
    group: NodeClass,
    shape: Shape,
    window: tuple[int, ...] | None,
) -> View:
    problems = set()
    if node.name in request.exclude or node.rack in request.exclude_racks:
        problems.add("excluded")
    if node.cordoned:
        problems.add("cordoned")
    busy = occupancy.busy(node.name)
    sound = [gpu for gpu in node.gpus if _sound(gpu, request)]
    railed = [gpu for gpu in sound if not group.rails or nic_for(gpu, node, group, request.rails) is not None]
    free = [gpu for gpu in railed if gpu.index not in busy]
    gpus = _pick(free, shape.per_node, window)
    if node.health is not Health.HEALTHY or not _pick(sound, shape.per_node, window):
        problems.add("health")
    elif not _pick(railed, shape.per_node, window) or not _on_rail(node, request):
        problems.add("rail")
    elif not gpus:
        problems.add("busy")
    return View(node, frozenset(problems), gpus, len(free))


def _sound(gpu: Gpu, request: Request) -> bool:
    """A GPU without NVLinks answers every query and still drags a whole rack down (facts: topology §0.1)."""
    return gpu.health is Health.HEALTHY and (gpu.nvlinks > 0 or request.gpus == 1)


def _on_rail(node: Node, request: Request) -> bool:
    if request.rail is None:
        return True
    return any(nic.rail == request.rail and nic.health is Health.HEALTHY for nic in node.nics)


def _pick(gpus: list[Gpu], count: int, window: tuple[int, ...] | None) -> tuple[int, ...]:
    indices = [gpu.index for gpu in gpus]
    if window is not None:
        return window if set(window) <= set(indices) else ()
    if len(indices) < count:
        return ()
    by_numa: dict[int, list[int]] = {}
    for gpu in gpus:
        by_numa.setdefault(gpu.numa, []).append(gpu.index)
    enough = [group for group in by_numa.values() if len(group) >= count]
    return tuple(min(enough, key=len, default=indices)[:count])
