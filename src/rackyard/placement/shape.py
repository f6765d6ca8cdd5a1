"""How a gang divides over nodes of one kind: ranks a node, nodes, nodes a segment."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackyard.fabric import Node, Site
from rackyard.placement.model import Request


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes alike enough for one gang: same kind, same GPU, same number of GPUs."""

    kind: str
    gpu: str
    size: int
    rails: tuple[int, ...]
    """The rails its nodes are cabled to, ascending."""
    nodes: tuple[Node, ...]
    nvlinks: int = 0
    """NVLinks of its best-linked GPU."""
    nic_gbps: int = 0
    """Rate of its fastest NIC in Gb/s."""

    def __str__(self) -> str:
        return f"{self.gpu} nodes of {self.size} GPUs"

    def rail_of(self, gpu: int) -> int | None:
        """The rail that GPU index `gpu` belongs to; GPUs share rails evenly where there are fewer rails than GPUs."""
        count = len(self.rails)
        if not count:
            return None
        return self.rails[gpu] if count >= self.size else self.rails[gpu * count // self.size]


@dataclass(frozen=True, slots=True)
class Shape:
    """A gang cut to a node class; `segment` is in nodes, None where the engine may cut as it likes."""

    per_node: int
    nodes: int
    segment: int | None

    @property
    def unit(self) -> int:
        """Nodes that are placed together."""
        return self.segment or 1

    @property
    def units(self) -> int:
        """How many such units make the gang."""
        return self.nodes // self.unit


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why the gang does not divide: constraint and summary, as in a rejection."""

    constraint: str
    summary: str


def node_classes(site: Site) -> tuple[NodeClass, ...]:
    """The site's node classes, the one with most GPUs first: a gang that does not care lands there first."""
    groups: dict[tuple[str, str, int], list[Node]] = {}
    for node in site.nodes:
        if node.gpus:
            groups.setdefault((node.kind, node.gpus[0].kind, len(node.gpus)), []).append(node)
    classes = [_class(*key, nodes) for key, nodes in groups.items()]
    return tuple(sorted(classes, key=lambda group: -group.size * len(group.nodes)))


def shape_of(request: Request, group: NodeClass) -> Shape | Misfit:
    """Cut the gang for that node class."""
    wanted = request.gpus_per_node or group.size
    if wanted > group.size:
        summary = f"gpus_per_node is {wanted}, but these are {group}"
        return Misfit("node-size", summary)
    per_node = min(wanted, request.gpus)
    if request.gpus % per_node:
        summary = f"{request.gpus} GPUs do not divide over {group}" + (
            f" with {per_node} ranks each" if per_node < group.size else ""
        )
        return Misfit("node-size", summary)
    odd = _odd_group(request, per_node)
    if odd is not None:
        return odd
    nodes = request.gpus // per_node
    gpus = request.segment_gpus
    if gpus is None:
        return Shape(per_node, nodes, None)
    if gpus >= request.gpus:
        return Shape(per_node, nodes, nodes)  # the whole gang is one segment
    if request.gpus % gpus:
        summary = f"{request.gpus} GPUs are not a whole number of segments of {gpus}"
        return Misfit("segment-size", summary)
    if per_node % gpus == 0:
        return Shape(per_node, nodes, 1)  # segments smaller than a node are inside one domain anyway
    if gpus % per_node:
        summary = f"a segment of {gpus} GPUs is not a whole number of nodes with {per_node} ranks each"
        return Misfit("segment-size", summary)
    return Shape(per_node, nodes, gpus // per_node)


def _odd_group(request: Request, per_node: int) -> Misfit | None:
    """A leaf group, block or part of the gang that does not divide it, or is no whole number of the smaller ones."""
    step, what = (request.segment_gpus or per_node), "segments" if request.segment_gpus else "nodes"
    step, what = (step, what) if step % per_node == 0 else (per_node, "nodes")
    for group in request.groups:
        size = min(group.gpus, request.gpus)
        if size % min(step, request.gpus) or request.gpus % size:
            summary = f"groups of {group.gpus} GPUs within a {group.within} do not divide {request.gpus} GPUs"
            summary += f" in whole {what} of {step}"
            return Misfit("group-size", summary)
        step, what = size, f"groups within a {group.within}"
    return None


def _class(kind: str, gpu: str, size: int, nodes: Sequence[Node]) -> NodeClass:
    links = max(gpu.nvlinks for node in nodes for gpu in node.gpus)
    rate = max((nic.gbps for node in nodes for nic in node.nics), default=0)
    return NodeClass(kind, gpu, size, _rails(nodes), tuple(nodes), links, rate)


def _rails(nodes: Iterable[Node]) -> tuple[int, ...]:
    return tuple(sorted({nic.rail for node in nodes for nic in node.nics}))
