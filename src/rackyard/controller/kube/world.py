"""What the cluster is to a decision: which nodes of the site take pods, and who uses what of it. Pure."""

from collections.abc import Iterable, Mapping

from rackyard.controller.kube.objects import SEATS, GangPlan, Node, Pod
from rackyard.fabric import Site
from rackyard.placement import Occupancy


def site_now(site: Site, nodes: Mapping[str, Node]) -> Site:
    """The site as the cluster has it: nodes that it does not know, or that take no pods, are cordoned."""
    out = {node.name: "not in the cluster" for node in site.nodes if node.name not in nodes}
    out |= {name: node.trouble for name, node in nodes.items() if node.trouble and site.has_node(name)}
    return site.with_cordon(out)


def occupancy_of(pods: Iterable[Pod], plans: Iterable[GangPlan], site: Site) -> Occupancy:
    """GPUs in use: of pods on nodes, and of plans whose pods are not there yet. Which GPUs a pod has is known of those
    that we placed; of others the first ones that nobody else is known to have.
    """
    used: dict[str, set[int]] = {}
    owners: dict[str, list[str]] = {}
    unknown: list[tuple[Pod, int]] = []

    def take(node: str, gpus: Iterable[int], owner: str) -> None:
        used.setdefault(node, set()).update(gpus)
        owners.setdefault(node, []).append(owner)

    for plan in plans:
        for member in plan.spec.members:
            take(member.node, gpus_in(member.seats), plan.key)
        for spare in plan.spec.spares:
            if site.has_node(spare):
                take(spare, (gpu.index for gpu in site.node(spare).gpus), plan.key)
    planned = {(plan.key, member.pod) for plan in plans for member in plan.spec.members}
    for pod in pods:
        if not pod.spec.node_name or pod.over or (pod.gang, pod.metadata.name) in planned:
            continue
        told = pod.metadata.annotations.get(SEATS)
        if told:
            take(pod.spec.node_name, gpus_in(told), pod.key)
        elif (count := gpus_of(pod)) > 0:
            unknown.append((pod, count))
    for pod, count in unknown:
        node = pod.spec.node_name
        if site.has_node(node):
            free = [gpu.index for gpu in site.node(node).gpus if gpu.index not in used.get(node, ())]
            take(node, free[:count], pod.key)
    return Occupancy({n: frozenset(g) for n, g in used.items()}, {n: tuple(names) for n, names in owners.items()})


def lost(plan: GangPlan, nodes: Mapping[str, Node], pods: Iterable[Pod]) -> dict[str, str]:
    """Why nodes of a plan can't take its pods any more."""
    members = {member.node: member for member in plan.spec.members}
    others: dict[str, int] = {}
    for pod in pods:
        on = pod.spec.node_name
        if on in members and not pod.over and members[on].pod != pod.metadata.name:
            others[on] = others.get(on, 0) + gpus_of(pod)
    found: dict[str, str] = {}
    for name, member in members.items():
        node = nodes.get(name)
        if node is None:
            found[name] = "was deleted"
        elif node.trouble:
            found[name] = node.trouble
        elif int(node.status.allocatable.gpus) - others.get(name, 0) < len(gpus_in(member.seats)):
            found[name] = "was taken by another pod"
    return found


def gpus_in(seats: str) -> list[int]:
    """The GPU indices of an annotation of seats."""
    return [int(seat.split(":")[1]) for seat in seats.split(",") if seat.count(":") == 2]


def gpus_of(pod: Pod) -> int:
    """GPUs that a pod asks for; 0 for a number that is none."""
    try:
        return pod.gpus
    except ValueError:
        return 0
