"""What a plan says, and the objects that carry it. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.kinds import owner_of
from rackyard.controller.kube.objects import (
    GROUP,
    VERSION,
    GangPlan,
    Member,
    Node,
    PlanSpec,
    PlanStatus,
    Pod,
    Victim,
)
from rackyard.placement import Placement

KEPT = 10
"""Ended plans of a gang that stay as its history."""
_FIRST_PORT, _PORTS = 20000, 10000
"""Where rank 0 is met: below the range from which Linux takes ports for others (32768 on, ip_local_port_range)."""


def plan_of(gang: Gang, seats: Placement, digest: str, victims: Iterable[Pod], before: GangPlan | None) -> PlanSpec:
    """The plan for a placement: the nth pod gets the nth node. `before` is the gang's newest plan, which has ended."""
    by_node: dict[str, list[str]] = {}
    segment: dict[str, int] = {}
    for seat in seats.seats:
        by_node.setdefault(seat.node, []).append(f"{seat.rank}:{seat.gpu}:{seat.nic}")
        segment.setdefault(seat.node, seat.segment)
    members = tuple(
        Member(pod.metadata.name, pod.metadata.uid, node, segment[node], ",".join(by_node[node]))
        for pod, node in zip(gang.pods, seats.nodes(), strict=True)
    )
    return PlanSpec(
        gang=gang.key.partition("/")[2],
        attempt=1 if before is None else before.spec.attempt + 1,
        site_digest=digest,
        members=members,
        spares=seats.spares,
        cost={term.name: term.value for term in seats.cost},
        victims=tuple(Victim(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid) for pod in victims),
        why="" if before is None else before.status.message,
    )


def name_of(spec: PlanSpec) -> str:
    """The name of the plan's object."""
    return f"{spec.gang}-{spec.attempt}"


def body_of(spec: PlanSpec, first: Pod) -> dict[str, Any]:
    """The object to store. It belongs to whoever made the gang's first pod, so that it goes when that goes."""
    made_by = owner_of(first)
    owner = {"apiVersion": made_by.api_version, "kind": made_by.kind, "name": made_by.name, "uid": made_by.uid}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "GangPlan",
        "metadata": {
            "name": name_of(spec),
            "namespace": first.metadata.namespace,
            "ownerReferences": [owner],
        },
        "spec": msgspec.to_builtins(spec),
    }


def with_status(plan: GangPlan, status: PlanStatus) -> GangPlan:
    """The plan in that status."""
    return msgspec.structs.replace(plan, status=status)


def newest(plans: Iterable[GangPlan]) -> dict[str, GangPlan]:
    """Each gang's plan of the highest attempt, by the gang's key."""
    found: dict[str, GangPlan] = {}
    for plan in plans:
        if plan.key not in found or found[plan.key].spec.attempt < plan.spec.attempt:
            found[plan.key] = plan
    return found


def surplus(plans: Iterable[GangPlan]) -> list[GangPlan]:
    """Ended plans beyond the ones that are kept, oldest first."""
    ended: dict[str, list[GangPlan]] = {}
    for plan in plans:
        if plan.ended:
            ended.setdefault(plan.key, []).append(plan)
    old = (sorted(each, key=lambda plan: plan.spec.attempt)[:-KEPT] for each in ended.values())
    return [plan for each in old for plan in each]


def master_of(plan: GangPlan, first: Pod, nodes: Mapping[str, Node]) -> str:
    """`host:port` at which rank 0 is met. A port of its own for each plan: gangs may share a host's network."""
    node = plan.spec.members[0].node
    host = nodes[node].address if node in nodes else node
    if first.spec.hostname and first.spec.subdomain:
        host = f"{first.spec.hostname}.{first.spec.subdomain}"
    drawn = int.from_bytes(hashlib.sha256(f"{plan.metadata.uid}/{name_of(plan.spec)}".encode()).digest()[:4], "big")
    return f"{host}:{_FIRST_PORT + drawn % _PORTS}"


def stamp(now: datetime) -> str:
    """The time as the API server writes it."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
