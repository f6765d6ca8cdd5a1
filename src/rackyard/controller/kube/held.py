"""Who uses what of the cluster's GPUs: pods, plans whose pods are not there yet, gangs that will come back. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from rackyard.controller.kube.objects import SEATS, GangPlan, Node, Pod
from rackyard.controller.kube.world import gpus_in, gpus_of
from rackyard.fabric import Site
from rackyard.placement import Occupancy, Placement

MISSING = "GPUs that are not allocatable"
"""Who is said to use the GPUs that a node's device plugin does not offer."""

Owners = Mapping[str, frozenset[int]]
"""GPUs by owner."""


@dataclass(frozen=True)
class Held:
    """Who uses what."""

    by_node: Mapping[str, Owners]
    alone: Mapping[str, tuple[Pod, tuple[int, ...]]]
    """Pods on nodes that no plan speaks for, by key, and the GPUs that they are taken to have."""

    @cached_property
    def occupancy(self) -> Occupancy:
        """For placement."""
        used = {node: frozenset[int]().union(*owners.values()) for node, owners in self.by_node.items()}
        return Occupancy(used, {node: tuple(owners) for node, owners in self.by_node.items()})

    def without(self, owner: str) -> "Held":
        """What is in use if that owner uses nothing."""
        theirs = {node: owners for node, owners in self.by_node.items() if owner in owners}
        if not theirs:
            return self
        less = {node: {who: gpus for who, gpus in each.items() if who != owner} for node, each in theirs.items()}
        return replace(self, by_node={**self.by_node, **less})

    def and_of(self, owner: str, placement: Placement, site: Site) -> "Held":
        """What is in use once that owner has those seats and spares."""
        more = {name: frozenset(gpu.index for gpu in site.node(name).gpus) for name in placement.spares}
        for seat in placement.seats:
            more[seat.node] = more.get(seat.node, frozenset()) | {seat.gpu}
        added = {node: {**self.by_node.get(node, {}), owner: gpus} for node, gpus in more.items()}
        return replace(self, by_node={**self.by_node, **added})


def held(pods: Iterable[Pod], plans: Iterable[GangPlan], site: Site, nodes: Mapping[str, Node]) -> Held:
    """GPUs in use: of pods on nodes, and of plans whose pods are not there yet. Which GPUs a pod has is known of those
    that we placed; of others the first ones that nobody else is known to have. What a node of the cluster lacks are
    the last ones that nobody has.
    """
    found: dict[str, dict[str, frozenset[int]]] = {}
    alone: dict[str, tuple[Pod, tuple[int, ...]]] = {}

    def take(node: str, gpus: Iterable[int], owner: str) -> None:
        owners = found.setdefault(node, {})
        owners[owner] = owners.get(owner, frozenset()).union(gpus)

    planned: set[str] = set()
    for plan in plans:
        planned.update(member.uid for member in plan.spec.members)
        for member in plan.spec.members:
            take(member.node, gpus_in(member.seats), plan.key)
        for spare in plan.spec.spares:
            if site.has_node(spare):
                take(spare, (gpu.index for gpu in site.node(spare).gpus), plan.key)
    unknown: list[tuple[Pod, int]] = []
    for pod in pods:
        node = pod.spec.node_name
        if not node or pod.over or pod.metadata.uid in planned or not site.has_node(node):
            continue
        if told := gpus_in(pod.metadata.annotations.get(SEATS, "")):
            take(node, told, pod.key)
            alone[pod.key] = (pod, tuple(told))
        elif (count := gpus_of(pod)) > 0:
            unknown.append((pod, count))
    for pod, count in unknown:
        free, others = _free(pod.spec.node_name, site, found)
        take(pod.spec.node_name, [*free, *others][:count], pod.key)  # others': a gang that comes back finds them taken
        alone[pod.key] = (pod, tuple(free[:count]))
    for name, there in nodes.items():
        if site.has_node(name) and (lacking := len(site.node(name).gpus) - there.gpus) > 0:
            free, others = _free(name, site, found)
            take(name, [*others, *free][-lacking:], MISSING)
    return Held(found, alone)


def _free(node: str, site: Site, found: Mapping[str, Owners]) -> tuple[list[int], list[int]]:
    """GPUs that nobody has, and those that somebody has."""
    used = frozenset[int]().union(*found.get(node, {}).values())
    every = [gpu.index for gpu in site.node(node).gpus]
    return [index for index in every if index not in used], [index for index in every if index in used]
