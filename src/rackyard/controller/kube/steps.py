"""What comes next for a gang that has a plan: a pure function of its pods, its plan and what the cluster is like.

The plan is stored before anything is released, and every step may be repeated: whoever finds a plan goes on with it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.objects import (
    ATTEMPT,
    GATE,
    MASTER,
    RANK,
    SEATS,
    SEGMENT,
    GangPlan,
    Member,
    Pod,
    Victim,
)

NOMINATED = ("volcano",)
"""Schedulers that need `status.nominatedNodeName`: Volcano replays one pod's node error for the others of its role
(`predicateErrorCacheEnable`), but tries a nominated node alone (facts: scheduling §1, §7)."""


@dataclass(frozen=True, slots=True)
class World:
    """What a step depends on beside the gang."""

    lost: Mapping[str, str]
    """Why nodes of the plan can't take a pod any more: gone, cordoned, not ready, or full with others."""
    faulty: Mapping[str, str]
    """Why nodes must not be used any longer, not even by pods that run there."""
    there: Collection[str]
    """The uids of all pods that hold something."""
    places: Mapping[str, Mapping[str, str]]
    """What pods on the plan's nodes are told of the topology, as annotations."""
    refused: Mapping[str, str]
    """Nodes whose pods the scheduler has refused to bind for long enough, with its words."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One PATCH of a pod: strategic merge, of its status where `status`."""

    pod: Pod
    body: dict[str, Any]
    status: bool = False


@dataclass(frozen=True, slots=True)
class Preempt:
    """Pods that have to go first."""

    victims: tuple[Victim, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Patches that may be made in any order, all of one kind."""

    patches: tuple[Patch, ...]


@dataclass(frozen=True, slots=True)
class Again:
    """The plan can't be kept: it ends, and what it let go is evicted, so that its controller makes it anew, gated."""

    reason: str
    message: str
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """All are where they belong."""


Step = Preempt | Release | Again | Bound | None


def next_step(gang: Gang, plan: GangPlan, world: World, master: str) -> Step:
    """What comes next; None when there is nothing to do but wait. `master` is where rank 0 is met."""
    members = {member.pod: (rank, member) for rank, member in enumerate(plan.spec.members)}
    if {pod.metadata.name: pod.metadata.uid for pod in gang.pods} != {m.pod: m.uid for m in plan.spec.members}:
        return Again("Restarted", "pods of the gang were made anew")
    pairs = [(pod, *members[pod.metadata.name]) for pod in gang.pods]
    found = _trouble(pairs, plan, world)
    if found is not None:
        return found
    victims = tuple(victim for victim in plan.spec.victims if victim.uid in world.there)
    if victims and any(pod.gated for pod in gang.pods):
        return Preempt(victims)
    if gang.kept_out and gang.waits:
        return None
    nominate = [
        Patch(pod, {"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": member.node}}, status=True)
        for pod, _, member in pairs
        if pod.gated and pod.spec.scheduler_name in NOMINATED and pod.status.nominated_node_name != member.node
    ]
    if nominate:
        return Release(tuple(nominate))
    told = {ATTEMPT: str(plan.spec.attempt), MASTER: master}
    gated = tuple(
        Patch(pod, _lifted(pod, member, {RANK: str(rank), **told, **world.places.get(member.node, {})}))
        for pod, rank, member in pairs
        if pod.gated
    )
    if gated:
        return Release(gated)
    return Bound() if all(pod.spec.node_name for pod in gang.pods) else None


def leftovers(plan: GangPlan, pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Pods that a plan which has ended let go, or one before it: they are evicted, also by whoever comes after a crash.
    Those that a later plan let go are left to it. One whose gate somebody put back is among them: it is pinned.
    """
    mine = {member.uid for member in plan.spec.members}
    found = (pod for pod in pods if pod.metadata.uid in mine and SEATS in pod.metadata.annotations and not pod.over)
    return tuple(pod for pod in found if _let_go_by(pod, plan) <= plan.spec.attempt)


def _let_go_by(pod: Pod, plan: GangPlan) -> int:
    """Which attempt let it go; where it does not say, this plan."""
    told = pod.metadata.annotations.get(ATTEMPT, "")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 10 else plan.spec.attempt


def _trouble(pairs: list[tuple[Pod, int, Member]], plan: GangPlan, world: World) -> Again | None:
    for pod, _, member in pairs:
        on = pod.spec.node_name
        if on not in ("", member.node):
            return Again("Astray", f"pod {pod.key} was bound to {on}, not {member.node}")
        if pod.released and _let_go_by(pod, plan) != plan.spec.attempt:
            return Again("Astray", f"pod {pod.key} was let go by another attempt")
        if member.node in world.faulty:
            return Again("Fault", world.faulty[member.node])
        if not on and member.node in world.lost:
            return Again("NodeLost", f"node {member.node} {world.lost[member.node]} before pod {pod.key} was on it")
    refused = [(pod, member.node) for pod, _, member in pairs if member.node in world.refused and pod.refused]
    if refused:
        pod, node = refused[0]
        nodes = tuple(sorted({name for _, name in refused}))
        return Again("Refused", f"the scheduler does not bind pod {pod.key} to {node}: {world.refused[node]}", nodes)
    return None


def _lifted(pod: Pod, member: Member, told: dict[str, str]) -> dict[str, Any]:
    """One PATCH pins the pod, tells it its place, and lifts the gate."""
    return {
        "metadata": {
            "uid": pod.metadata.uid,  # a later pod of the same name is refused
            "annotations": {**told, SEGMENT: str(member.segment), SEATS: member.seats},
        },
        "spec": {
            "affinity": _pinned(pod.spec.affinity or {}, member.node),
            "schedulingGates": [{"$patch": "delete", "name": GATE}],
        },
    }


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _pinned(affinity: dict[str, Any], node: str) -> dict[str, Any]:
    """The pod's affinity with the node added to each of its required terms: of a gated pod's affinity, nothing else may
    be changed (KEP-3838).
    """
    nodes = affinity.get("nodeAffinity") or {}
    terms = (nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    pinned = [
        {**term, "matchFields": [*(each for each in term.get("matchFields", ()) if each != here), here]}
        for term in terms
    ]
    return {**affinity, "nodeAffinity": {**nodes, _REQUIRED: {"nodeSelectorTerms": pinned}}}
