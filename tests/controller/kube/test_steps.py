"""What comes next for a gang, whatever happened before."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from rackyard.backends.kubernetes.watch import Meta
from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.objects import GATE, GPU, RANK, SEATS, SEGMENT, GangPlan, Member, Node, PlanSpec, Pod
from rackyard.controller.kube.steps import Again, Release, event_of, next_step, plan_of
from rackyard.controller.kube.world import lost, occupancy_of, site_now
from rackyard.fabric import simulate
from rackyard.placement import Occupancy, Placement, Request, place

SITE = simulate(2, 4)


def pod(number: int, *, gated: bool = True, node: str = "", **more: Any) -> Pod:
    return msgspec.convert(
        {
            "metadata": {
                "name": more.get("name", f"g-{number}"),
                "namespace": "ml",
                "uid": more.get("uid", f"u{number}"),
                "annotations": more.get("annotations", {}),
                "labels": {"rackyard.io/gang": more.get("gang", "g")},
            },
            "spec": {
                "nodeName": node,
                "schedulerName": more.get("scheduler", "default-scheduler"),
                "schedulingGates": [{"name": GATE}] if gated else [],
                "affinity": more.get("affinity"),
                "containers": [{"resources": {"limits": {GPU: str(more.get("gpus", 4))}}}],
            },
            "status": {"nominatedNodeName": more.get("nominated", "")},
        },
        Pod,
    )


def gang(*pods: Pod) -> Gang:
    return Gang("ml/g", pods, Request(4 * len(pods), gpus_per_node=4))


def planned(whole: Gang) -> GangPlan:
    seats = place(whole.request, SITE, Occupancy())
    assert isinstance(seats, Placement)
    return GangPlan(Meta(name="g", namespace="ml", uid="p"), plan_of(whole, seats, SITE))


PLAN = planned(gang(pod(0), pod(1)))
NODES = [member.node for member in PLAN.spec.members]


def node(name: str, **more: Any) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": name},
            "spec": {"unschedulable": more.get("cordoned", False)},
            "status": {
                "allocatable": {GPU: "4"},
                "conditions": [{"type": "Ready", "status": more.get("ready", "True")}],
            },
        },
        Node,
    )


ALL = {each.name: node(each.name) for each in SITE.nodes}


def test_the_plan_has_a_node_and_the_seats_of_each_pod() -> None:
    first, second = PLAN.spec.members
    assert (first.pod, first.uid, first.node, first.segment) == ("g-0", "u0", "r01-t01", 0)
    assert second.seats == "4:0:mlx5_0,5:1:mlx5_1,6:2:mlx5_2,7:3:mlx5_3"
    assert PLAN.spec.site_digest == SITE.digest() and PLAN.spec.cost["domains"] == 1


def test_one_patch_pins_tells_and_lifts() -> None:
    step = next_step(gang(pod(0), pod(1)), PLAN, {})
    assert isinstance(step, Release) and len(step.patches) == 2
    body = step.patches[1].body
    assert body["metadata"]["uid"] == "u1"
    assert body["metadata"]["annotations"] == {RANK: "1", SEGMENT: "0", SEATS: PLAN.spec.members[1].seats}
    assert body["spec"]["schedulingGates"] == [{"$patch": "delete", "name": GATE}]
    (term,) = body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": [NODES[1]]}]


def test_terms_that_are_there_are_only_tightened() -> None:
    key = {"key": "zone", "operator": "Exists"}
    terms = [{"matchExpressions": [key]}, {"matchFields": [{"key": "metadata.name", "operator": "NotIn"}]}]
    own = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    step = next_step(gang(pod(0, affinity={**own, "podAffinity": {"x": 1}}), pod(1)), PLAN, {})
    assert isinstance(step, Release)
    affinity = step.patches[0].body["spec"]["affinity"]
    found = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert affinity["podAffinity"] == {"x": 1}
    assert [term.get("matchExpressions") for term in found] == [[key], None]
    assert [len(term["matchFields"]) for term in found] == [1, 2]


def test_volcano_is_told_the_node_first() -> None:
    volcano = {"scheduler": "volcano"}
    step = next_step(gang(pod(0, **volcano), pod(1, **volcano, nominated=NODES[1])), PLAN, {})
    assert isinstance(step, Release) and [patch.status for patch in step.patches] == [True]
    assert step.patches[0].body == {"status": {"nominatedNodeName": NODES[0]}}
    both = gang(*(pod(n, **volcano, nominated=NODES[n]) for n in (0, 1)))
    step = next_step(both, PLAN, {})
    assert isinstance(step, Release) and [patch.status for patch in step.patches] == [False, False]


def test_what_was_let_go_is_not_let_go_again() -> None:
    step = next_step(gang(pod(0, gated=False), pod(1)), PLAN, {})
    assert isinstance(step, Release) and [patch.pod.metadata.name for patch in step.patches] == ["g-1"]
    assert next_step(gang(pod(0, gated=False), pod(1, gated=False, node=NODES[1])), PLAN, {}) is None


@pytest.mark.parametrize(
    ("pods", "gone", "why"),
    [
        ((pod(0, uid="new"), pod(1)), {}, "not those of the plan"),
        ((pod(0, gated=False, node="r02-t04"), pod(1)), {}, "was bound to r02-t04, not"),
        ((pod(0, gated=False), pod(1)), {NODES[0]: "was cordoned"}, "was cordoned before pod ml/g-0 was on it"),
    ],
)
def test_a_plan_that_can_not_be_kept_is_made_again(pods: tuple[Pod, ...], gone: dict[str, str], why: str) -> None:
    step = next_step(gang(*pods), PLAN, gone)
    assert isinstance(step, Again) and why in step.why
    assert [each.metadata.name for each in step.pods] == [each.metadata.name for each in pods if not each.gated]


def test_a_node_that_has_its_pod_may_be_cordoned() -> None:
    bound = gang(*(pod(n, gated=False, node=NODES[n]) for n in (0, 1)))
    assert next_step(bound, PLAN, {NODES[0]: "was cordoned"}) is None


def test_nodes_are_lost_when_deleted_cordoned_unready_or_taken() -> None:
    assert lost(PLAN, ALL, []) == {}
    assert lost(PLAN, {}, []) == dict.fromkeys(NODES, "was deleted")
    assert lost(PLAN, {**ALL, NODES[0]: node(NODES[0], cordoned=True)}, []) == {NODES[0]: "was cordoned"}
    assert lost(PLAN, {**ALL, NODES[0]: node(NODES[0], ready="Unknown")}, []) == {NODES[0]: "was not ready"}
    mine, other = pod(0, gated=False, node=NODES[0]), pod(0, name="x", gated=False, node=NODES[0], gpus=1)
    assert lost(PLAN, ALL, [mine]) == {}
    assert lost(PLAN, ALL, [mine, other]) == {NODES[0]: "was taken by another pod"}


def test_the_site_is_the_clusters() -> None:
    there = {name: each for name, each in ALL.items() if name != "r01-t02"}
    found = site_now(SITE, {**there, "r02-t01": node("r02-t01", cordoned=True)})
    assert {each.name: each.cordoned for each in found.nodes if each.cordoned} == {
        "r01-t02": "not in the cluster",
        "r02-t01": "was cordoned",
    }


def test_plans_hold_their_seats_and_other_pods_what_they_have() -> None:
    spare = GangPlan(
        Meta(name="h", namespace="ml", uid="q"),
        PlanSpec("ml/h", "d", (Member("h-0", "v", "r02-t01", 0, "0:2:mlx5_2"),), spares=("r02-t02",)),
    )
    ours = pod(0, gated=False, node=NODES[0])  # counted by its plan
    seen = pod(7, name="other", gang="", gated=False, node="r02-t01", gpus=2)
    left = pod(8, name="left", gang="", gated=False, node="r02-t03", annotations={SEATS: "0:3:mlx5_3"}, gpus=1)
    done = pod(9, name="done", node="r02-t04")
    done = msgspec.structs.replace(done, status=msgspec.structs.replace(done.status, phase="Failed"))
    found = occupancy_of([ours, seen, left, done], [PLAN, spare], SITE)
    assert {name: sorted(gpus) for name, gpus in found.used.items()} == {
        NODES[0]: [0, 1, 2, 3],
        NODES[1]: [0, 1, 2, 3],
        "r02-t01": [0, 1, 2],
        "r02-t02": [0, 1, 2, 3],
        "r02-t03": [3],
    }
    assert found.owners["r02-t01"] == ("ml/h", "ml/other")


def test_an_event_says_it_on_the_pod_and_is_never_too_long() -> None:
    said = event_of(pod(0), "NoSeat", "ü" * 1000, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert (said["reason"], said["type"], said["lastTimestamp"]) == ("GangNoSeat", "Warning", "2026-01-02T03:04:05Z")
    assert said["involvedObject"]["uid"] == "u0" and len(said["message"].encode()) == 1024
    assert event_of(pod(0), "Bound", "x", datetime.now(UTC))["type"] == "Normal"
