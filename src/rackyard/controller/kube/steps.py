"""What comes next for a gang: a pure function of its pods, its plan and the room there is.

The plan is stored before anything is released, and every step may be repeated: whoever finds a plan goes on with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.objects import GATE, RANK, SEATS, SEGMENT, GangPlan, Member, PlanSpec, Pod
from rackyard.fabric import Site
from rackyard.placement import Placement

NOMINATED = ("volcano",)
"""Schedulers that need `status.nominatedNodeName`: Volcano replays one pod's node error for the others of its role
(`predicateErrorCacheEnable`), but tries a nominated node alone (facts: scheduling §1, §7)."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One PATCH of a pod: strategic merge, of its status where `status`."""

    pod: Pod
    body: dict[str, Any]
    status: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Patches that may be made in any order, all of one kind."""

    patches: tuple[Patch, ...]


@dataclass(frozen=True, slots=True)
class Again:
    """The plan can't be kept: drop it, and delete these pods, so that their controller makes them anew, gated."""

    why: str
    pods: tuple[Pod, ...]


Step = Release | Again | None


def plan_of(gang: Gang, seats: Placement, site: Site) -> PlanSpec:
    """The plan for a placement: the nth pod gets the nth node."""
    by_node: dict[str, list[str]] = {}
    segment: dict[str, int] = {}
    for seat in seats.seats:
        by_node.setdefault(seat.node, []).append(f"{seat.rank}:{seat.gpu}:{seat.nic}")
        segment.setdefault(seat.node, seat.segment)
    members = tuple(
        Member(pod.metadata.name, pod.metadata.uid, node, segment[node], ",".join(by_node[node]))
        for pod, node in zip(gang.pods, seats.nodes(), strict=True)
    )
    cost = {term.name: term.value for term in seats.cost}
    return PlanSpec(gang.key, site.digest(), members, seats.spares, cost)


def next_step(gang: Gang, plan: GangPlan, lost: Mapping[str, str]) -> Step:
    """What comes next for a gang that has a plan; None when there is nothing to do but wait.

    `lost` says of nodes why they can't take a pod any more: gone, cordoned, or full with others.
    """
    members = {member.pod: member for member in plan.spec.members}
    if {pod.metadata.name: pod.metadata.uid for pod in gang.pods} != {m.pod: m.uid for m in members.values()}:
        return Again("its pods are not those of the plan", _unbound(gang))
    pairs = [(pod, members[pod.metadata.name]) for pod in gang.pods]
    for pod, member in pairs:
        if pod.spec.node_name not in ("", member.node):
            return Again(f"pod {pod.key} was bound to {pod.spec.node_name}, not {member.node}", _unbound(gang))
        if not pod.spec.node_name and member.node in lost:
            return Again(f"node {member.node} {lost[member.node]} before pod {pod.key} was on it", _unbound(gang))
    nominate = [
        Patch(pod, {"status": {"nominatedNodeName": member.node}}, status=True)
        for pod, member in pairs
        if pod.gated and pod.spec.scheduler_name in NOMINATED and pod.status.nominated_node_name != member.node
    ]
    if nominate:
        return Release(tuple(nominate))
    gated = tuple(Patch(pod, _lifted(pod, member, rank)) for rank, (pod, member) in enumerate(pairs) if pod.gated)
    return Release(gated) if gated else None


_NORMAL = frozenset({"Placed", "Released", "Bound"})


def event_of(pod: Pod, reason: str, message: str, now: datetime) -> dict[str, Any]:
    """A core/v1 Event about a pod, at most as long as the API server takes it (1,024 bytes of message)."""
    meta = pod.metadata
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{meta.name[:240]}.", "namespace": meta.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        },
        "reason": f"Gang{reason}",
        "message": message.encode()[:1024].decode(errors="ignore"),
        "type": "Normal" if reason in _NORMAL else "Warning",
        "source": {"component": "rackyard"},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }


def _unbound(gang: Gang) -> tuple[Pod, ...]:
    """A gang is all or nothing: what is bound goes, too."""
    return tuple(pod for pod in gang.pods if not pod.gated)


def _lifted(pod: Pod, member: Member, rank: int) -> dict[str, Any]:
    """One PATCH pins the pod, tells it its place, and lifts the gate."""
    return {
        "metadata": {
            "uid": pod.metadata.uid,  # a later pod of the same name is refused
            "annotations": {RANK: str(rank), SEGMENT: str(member.segment), SEATS: member.seats},
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
    pinned = [{**term, "matchFields": [*term.get("matchFields", ()), here]} for term in terms]
    return {**affinity, "nodeAffinity": {**nodes, _REQUIRED: {"nodeSelectorTerms": pinned}}}
