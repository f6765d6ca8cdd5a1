"""What the cluster is to a decision: which nodes of the site take pods, and what a plan says of them. Pure."""

from collections.abc import Iterable, Mapping

from rackyard.controller.kube.objects import DOMAIN, RACK, RAILS, GangPlan, Node, Pod
from rackyard.fabric import Site
from rackyard.placement import Placement, Seat, Segment

MOST_GPUS = 32
"""GPUs of a node that placement can tell apart (`placement.Yard`)."""
_NO_GPUS = "has no allocatable GPUs; does its device plugin run?"


def out_of_use(site: Site, nodes: Mapping[str, Node]) -> dict[str, str]:
    """Nodes of the site that take no pods, and why: those that the cluster does not know are among them, those that are
    marked as faulty, if not yet or no longer cordoned, and those whose device plugin offers no GPUs.
    """
    out = {node.name: "not in the cluster" for node in site.nodes if node.name not in nodes}
    for name, node in nodes.items():
        if site.has_node(name):
            why = node.trouble or node.fault or (_NO_GPUS if not node.gpus and site.node(name).gpus else "")
            out |= {name: why} if why else {}
    return out


def lost(plan: GangPlan, nodes: Mapping[str, Node], load: Mapping[str, list[Pod]]) -> dict[str, str]:
    """Why nodes of a plan can't take its pods any more. `load` are the pods on each node."""
    going = {victim.uid for victim in plan.spec.victims}
    found: dict[str, str] = {}
    for member in plan.spec.members:
        node = nodes.get(member.node)
        others = (pod for pod in load.get(member.node, ()) if pod.metadata.uid not in (member.uid, *going))
        if node is None:
            found[member.node] = "was deleted"
        elif node.trouble:
            found[member.node] = node.trouble
        elif node.gpus < (needed := len(gpus_in(member.seats))):
            found[member.node] = f"had {node.gpus} allocatable GPUs"
        elif node.gpus - sum(map(gpus_of, others)) < needed:
            found[member.node] = "was taken by another pod"
    return found


def by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """The pods that hold something, by their node."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.spec.node_name and not pod.over:
            found.setdefault(pod.spec.node_name, []).append(pod)
    return found


def placement_of(plan: GangPlan, site: Site) -> Placement | None:
    """The placement that a plan was made of, without its reasons; None where the site has changed under it, or somebody
    wrote a plan of his own.
    """
    seats: list[Seat] = []
    segments: dict[int, list[str]] = {}
    for member in plan.spec.members:
        if not site.has_node(member.node):
            return None
        segments.setdefault(member.segment, []).append(member.node)
        rails = {nic.name: nic.rail for nic in site.node(member.node).nics}
        for local, told in enumerate(member.seats.split(",")):
            rank, gpu, nic = [*told.split(":"), "", ""][:3]
            if not (_number(rank) and _number(gpu)):
                return None
            rail = rails.get(nic)
            seats.append(
                Seat(int(rank), member.node, local, int(gpu), nic, -1 if rail is None else rail, member.segment)
            )
    parts = []
    for index, nodes in sorted(segments.items()):
        first = site.node(nodes[0])
        parts.append(Segment(index, first.domain, first.rack, tuple(nodes)))
    spares = tuple(name for name in plan.spec.spares if site.has_node(name))
    return Placement(tuple(seats), tuple(parts), spares, (), ())


def topology_of(plan: GangPlan, site: Site) -> dict[str, dict[str, str]]:
    """What pods are told of the topology around them, as annotations, by node."""
    found = {}
    for member in plan.spec.members:
        if site.has_node(member.node):
            node = site.node(member.node)
            rails = {nic.name: str(nic.rail) for nic in node.nics}
            nics = (seat.split(":")[2] for seat in member.seats.split(",") if seat.count(":") == 2)
            told = {RACK: node.rack, DOMAIN: str(node.domain), RAILS: ",".join(rails.get(nic, "") for nic in nics)}
            found[member.node] = told
    return found


def gpus_in(seats: str) -> list[int]:
    """The GPU indices of an annotation of seats; what is none is left out: anybody may write such an annotation."""
    parts = (seat.split(":") for seat in seats.split(","))
    found = (int(part[1]) for part in parts if len(part) == 3 and _number(part[1]))
    return [index for index in found if index < MOST_GPUS]


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def gpus_of(pod: Pod) -> int:
    """GPUs that a pod asks for; 0 for a number that is none."""
    try:
        return pod.gpus
    except ValueError:
        return 0
