"""What comes next for a gang that has a plan, whatever happened before."""

from typing import Any

import msgspec
import pytest
from tests.controller.kube.clusterlike import START

from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.notes import condition_of, event_of
from rackyard.controller.kube.objects import (
    ATTEMPT,
    DOMAIN,
    GATE,
    GPU,
    MASTER,
    RACK,
    RAILS,
    RANK,
    SEATS,
    SEGMENT,
    GangPlan,
    PlanMeta,
    Pod,
)
from rackyard.controller.kube.plans import plan_of
from rackyard.controller.kube.steps import Again, Bound, Preempt, Release, World, leftovers, next_step
from rackyard.controller.kube.world import topology_of
from rackyard.fabric import simulate
from rackyard.placement import Occupancy, Placement, Request, place

SITE = simulate(2, 4)
CALM = World({}, {}, (), {}, {})
MASTER_AT = "10.0.0.1:20001"


def pod(number: int, *, gated: bool = True, node: str = "", **more: Any) -> Pod:
    let_go = {} if gated else {SEATS: "0:0:mlx5_0", ATTEMPT: "1"}
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    return msgspec.convert(
        {
            "metadata": {
                "name": f"g-{number}",
                "namespace": "ml",
                "uid": more.get("uid", f"u{number}"),
                "annotations": let_go | more.get("annotations", {}),
                "labels": {"rackyard.io/gang": "g"},
            },
            "spec": {
                "nodeName": node,
                "schedulerName": more.get("scheduler", "default-scheduler"),
                "schedulingGates": [{"name": GATE}] if gated else [],
                "affinity": more.get("affinity"),
                "containers": [{"resources": {"limits": {GPU: "4"}}}],
            },
            "status": {
                "phase": more.get("phase", "Pending"),
                "nominatedNodeName": more.get("nominated", ""),
                "conditions": [refused] if more.get("refused") else [],
            },
        },
        Pod,
    )


def gang(*pods: Pod) -> Gang:
    return Gang("ml/g", pods, Request(4 * len(pods), gpus_per_node=4))


def planned(whole: Gang, victims: tuple[Pod, ...] = ()) -> GangPlan:
    seats = place(whole.request, SITE, Occupancy())
    assert isinstance(seats, Placement)
    return GangPlan(PlanMeta(name="g-1", namespace="ml", uid="p"), plan_of(whole, seats, SITE.digest(), victims, None))


WHOLE = gang(pod(0), pod(1))
PLAN = planned(WHOLE)
NODES = [member.node for member in PLAN.spec.members]


def step(*pods: Pod, world: World = CALM, plan: GangPlan = PLAN) -> Any:
    return next_step(gang(*pods), plan, world, MASTER_AT)


def world(**more: Any) -> World:
    told = (more.get(name, {}) for name in ("lost", "faulty", "there", "places", "refused"))
    return World(*told)


def test_one_patch_pins_tells_and_lifts() -> None:
    found = step(pod(0), pod(1))
    assert isinstance(found, Release) and len(found.patches) == 2 and not any(each.status for each in found.patches)
    body = found.patches[1].body
    assert body["metadata"] == {
        "uid": "u1",
        "annotations": {
            RANK: "1",
            SEGMENT: "0",
            SEATS: "4:0:mlx5_0,5:1:mlx5_1,6:2:mlx5_2,7:3:mlx5_3",
            ATTEMPT: "1",
            MASTER: MASTER_AT,
        },
    }
    assert body["spec"]["schedulingGates"] == [{"$patch": "delete", "name": GATE}]
    (term,) = body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": [NODES[1]]}]


def test_pods_are_told_of_the_topology_around_them() -> None:
    places = topology_of(PLAN, SITE)
    assert places[NODES[0]] == {RACK: "r01", DOMAIN: str(SITE.node(NODES[0]).domain), RAILS: "0,1,2,3"}
    found = step(pod(0), pod(1), world=world(places=places))
    assert isinstance(found, Release)
    assert found.patches[0].body["metadata"]["annotations"].items() >= places[NODES[0]].items()


def test_terms_that_are_there_are_only_tightened() -> None:
    key = {"key": "zone", "operator": "Exists"}
    terms = [{"matchExpressions": [key]}, {"matchFields": [{"key": "metadata.name", "operator": "NotIn"}]}]
    own = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    found = step(pod(0, affinity={**own, "podAffinity": {"x": 1}}), pod(1))
    affinity = found.patches[0].body["spec"]["affinity"]
    told = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert affinity["podAffinity"] == {"x": 1}
    assert [term.get("matchExpressions") for term in told] == [[key], None]
    assert [len(term["matchFields"]) for term in told] == [1, 2]


def test_volcano_is_told_the_node_first() -> None:
    volcano = {"scheduler": "volcano"}
    found = step(pod(0, **volcano), pod(1, **volcano, nominated=NODES[1]))
    assert isinstance(found, Release) and [patch.status for patch in found.patches] == [True]
    assert found.patches[0].body == {"metadata": {"uid": "u0"}, "status": {"nominatedNodeName": NODES[0]}}
    found = step(*(pod(n, **volcano, nominated=NODES[n]) for n in (0, 1)))
    assert isinstance(found, Release) and [patch.status for patch in found.patches] == [False, False]


def test_what_was_let_go_is_not_let_go_again() -> None:
    found = step(pod(0, gated=False), pod(1))
    assert isinstance(found, Release) and [patch.pod.metadata.name for patch in found.patches] == ["g-1"]
    assert step(pod(0, gated=False), pod(1, gated=False, node=NODES[1])) is None
    assert step(*(pod(n, gated=False, node=NODES[n]) for n in (0, 1))) == Bound()


def test_victims_go_before_anything_is_let_go() -> None:
    victims = tuple(msgspec.structs.replace(pod(n), metadata=pod(n, uid=f"v{n}").metadata) for n in (7, 8))
    plan = planned(WHOLE, victims)
    found = step(pod(0), pod(1), plan=plan, world=world(there={"v7", "u0", "u1"}))
    assert isinstance(found, Preempt) and [each.uid for each in found.victims] == ["v7"]
    assert isinstance(step(pod(0), pod(1), plan=plan, world=world(there={"u0"})), Release)


@pytest.mark.parametrize(
    ("pods", "around", "reason", "why"),
    [
        ((pod(0, uid="new"), pod(1)), {}, "Restarted", "made anew"),
        ((pod(0, gated=False, node="r02-t04"), pod(1)), {}, "Astray", "was bound to r02-t04, not"),
        ((pod(0, gated=False, annotations={ATTEMPT: "7"}), pod(1)), {}, "Astray", "another attempt"),
        ((pod(0, gated=False), pod(1)), {"lost": {NODES[0]: "was cordoned"}}, "NodeLost", "was cordoned before pod"),
        ((pod(0), pod(1)), {"lost": {NODES[1]: "was deleted"}}, "NodeLost", "was deleted"),
        ((pod(0), pod(1)), {"faulty": {NODES[1]: "Xid 79"}}, "Fault", "Xid 79"),
        (
            tuple(pod(n, gated=False, node=NODES[n]) for n in (0, 1)),
            {"faulty": {NODES[1]: "Xid 79"}},
            "Fault",
            "Xid 79",
        ),
        (
            (pod(0, gated=False, refused=True), pod(1, gated=False, node=NODES[1])),
            {"refused": {NODES[0]: "too little cpu"}},
            "Refused",
            "too little cpu",
        ),
    ],
)
def test_a_plan_that_can_not_be_kept_ends(pods: tuple[Pod, ...], around: Any, reason: str, why: str) -> None:
    found = step(*pods, world=world(**around))
    assert isinstance(found, Again) and found.reason == reason and why in found.message
    assert found.refused == ((NODES[0],) if reason == "Refused" else ())


def test_a_node_that_has_its_pod_may_be_cordoned() -> None:
    bound = [pod(n, gated=False, node=NODES[n]) for n in (0, 1)]
    assert step(*bound, world=world(lost={NODES[0]: "was cordoned"})) == Bound()


def test_leftovers_are_pods_that_the_plan_or_one_before_it_let_go() -> None:
    later = msgspec.structs.replace(PLAN, spec=msgspec.structs.replace(PLAN.spec, attempt=2))
    one, two = pod(0, gated=False), pod(1, gated=False, annotations={ATTEMPT: "2"})
    assert leftovers(PLAN, (one, two)) == (one,), "the other is a later plan's"
    assert leftovers(later, (one, two)) == (one, two)
    held, ended, new = pod(0), pod(0, gated=False, phase="Failed"), pod(0, gated=False, uid="new")
    assert leftovers(PLAN, (held, ended, new)) == ()
    strange = pod(1, gated=False, annotations={ATTEMPT: "x"})
    assert leftovers(PLAN, (strange,)) == (strange,)


def test_an_event_says_it_on_the_pod_and_is_never_too_long() -> None:
    said = event_of(pod(0), "NoSeat", "ü" * 1000, START)
    assert (said["reason"], said["type"], said["lastTimestamp"]) == ("GangNoSeat", "Warning", "2026-01-02T03:04:05Z")
    assert said["involvedObject"]["uid"] == "u0" and len(said["message"].encode()) == 1024
    assert event_of(pod(0), "Bound", "x", START)["type"] == "Normal"


def test_a_condition_says_whether_the_gang_has_a_place() -> None:
    said = condition_of(pod(0), "NotInqueue", "wait", START)
    assert said["metadata"]["uid"] == "u0"
    (condition,) = said["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "rackyard.io/Placed",
        "False",
        "NotInqueue",
    )
    assert condition_of(pod(0), "Bound", "x", START)["status"]["conditions"][0]["status"] == "True"
