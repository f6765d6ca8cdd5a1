"""What the cluster is to a decision."""

from typing import Any

import msgspec
from tests.controller.kube.test_steps import NODES, PLAN, SITE, pod

from rackyard.controller.kube.held import held
from rackyard.controller.kube.objects import (
    FAULT,
    GPU,
    SEATS,
    GangPlan,
    Mark,
    Member,
    Node,
    PlanMeta,
    PlanSpec,
    Pod,
    Victim,
)
from rackyard.controller.kube.world import by_node, gpus_in, gpus_of, lost, out_of_use, placement_of
from rackyard.placement import Occupancy, place
from rackyard.placement.model import Request


def node(name: str, **more: Any) -> Node:
    mark = msgspec.json.encode(Mark("tray", name, more["fault"], "")).decode() if "fault" in more else None
    return msgspec.convert(
        {
            "metadata": {"name": name, "annotations": {FAULT: mark} if mark else {}},
            "spec": {"unschedulable": more.get("cordoned", False)},
            "status": {
                "allocatable": {GPU: "4"},
                "conditions": [{"type": "Ready", "status": more.get("ready", "True")}],
            },
        },
        Node,
    )


def on(name: str, where: str, gpus: int = 4, **more: Any) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", "annotations": more.get("told", {})},
            "spec": {"nodeName": where, "containers": [{"resources": {"limits": {GPU: str(gpus)}}}]},
            "status": {"phase": more.get("phase", "Running")},
        },
        Pod,
    )


ALL = {each.name: node(each.name) for each in SITE.nodes}


def test_nodes_are_lost_when_deleted_cordoned_unready_or_taken() -> None:
    assert lost(PLAN, ALL, {}) == {}
    assert lost(PLAN, {}, {}) == dict.fromkeys(NODES, "was deleted")
    assert lost(PLAN, {**ALL, NODES[0]: node(NODES[0], cordoned=True)}, {}) == {NODES[0]: "was cordoned"}
    assert lost(PLAN, {**ALL, NODES[0]: node(NODES[0], ready="Unknown")}, {}) == {NODES[0]: "was not ready"}
    mine, other = pod(0, gated=False, node=NODES[0]), on("x", NODES[0], 1)
    assert lost(PLAN, ALL, by_node([mine])) == {}
    assert lost(PLAN, ALL, by_node([mine, other])) == {NODES[0]: "was taken by another pod"}
    assert lost(PLAN, ALL, by_node([on("x", NODES[0], phase="Failed"), on("y", NODES[0], 0)])) == {}


def test_who_has_to_go_first_takes_no_nodes() -> None:
    victim = on("x", NODES[0])
    spec = msgspec.structs.replace(PLAN.spec, victims=(msgspec.convert(said(victim), Victim),))
    assert lost(msgspec.structs.replace(PLAN, spec=spec), ALL, by_node([victim])) == {}


def said(pod: Pod) -> dict[str, str]:
    return {"namespace": "ml", "pod": pod.metadata.name, "uid": pod.metadata.uid}


def test_what_is_out_of_use_says_why() -> None:
    there = {name: each for name, each in ALL.items() if name != "r01-t02"}
    there["r02-t01"] = node("r02-t01", cordoned=True)
    there["r02-t02"] = node("r02-t02", ready="False")
    there["r02-t03"] = node("r02-t03", fault="Xid 79")
    there["other"] = node("other", cordoned=True)
    assert out_of_use(SITE, there) == {
        "r01-t02": "not in the cluster",
        "r02-t01": "was cordoned",
        "r02-t02": "was not ready",
        "r02-t03": "Xid 79",
    }


def test_plans_hold_their_seats_and_other_pods_what_they_have() -> None:
    spec = PlanSpec("h", 1, "d", (Member("h-0", "v", "r02-t01", 0, "0:2:mlx5_0"),), spares=("r02-t02",))
    spare = GangPlan(PlanMeta(name="h-1", namespace="ml", uid="q"), spec)
    ours = pod(0, gated=False, node=NODES[0])  # counted by its plan
    seen = on("seen", "r02-t01", 2)
    left = on("left", "r02-t03", 1, told={SEATS: "0:3:mlx5_3"})
    done = on("done", "r02-t04", phase="Failed")
    found = held([ours, seen, left, done, on("x", "nowhere")], [PLAN, spare], SITE, ALL)
    assert {name: sorted(gpus) for name, gpus in found.occupancy.used.items()} == {
        NODES[0]: [0, 1, 2, 3],
        NODES[1]: [0, 1, 2, 3],
        "r02-t01": [0, 1, 2],
        "r02-t02": [0, 1, 2, 3],
        "r02-t03": [3],
    }
    assert found.occupancy.owners["r02-t01"] == ("ml/h", "ml/seen")
    assert {key: gpus for key, (_, gpus) in found.alone.items()} == {"ml/seen": (0, 1), "ml/left": (3,)}


def test_a_placement_is_read_back_from_its_plan() -> None:
    made = place(Request(8, gpus_per_node=4), SITE, Occupancy())
    found = placement_of(PLAN, SITE)
    assert found is not None
    assert (found.seats, [part.nodes for part in found.segments]) == (
        made.seats,  # type: ignore[union-attr]
        [part.nodes for part in made.segments],  # type: ignore[union-attr]
    )


def test_a_plan_that_does_not_fit_the_site_is_no_placement() -> None:
    for change in ({"node": "gone"}, {"seats": ""}, {"seats": "0:x:y"}):
        (first, second) = PLAN.spec.members
        members = (msgspec.structs.replace(first, **change), second)
        spec = msgspec.structs.replace(PLAN.spec, members=members)
        assert placement_of(msgspec.structs.replace(PLAN, spec=spec), SITE) is None


def test_spares_that_the_site_has_no_longer_are_none() -> None:
    spec = msgspec.structs.replace(PLAN.spec, spares=("gone", "r01-t03"))
    found = placement_of(msgspec.structs.replace(PLAN, spec=spec), SITE)
    assert found is not None and found.spares == ("r01-t03",)


def test_numbers_that_are_none_are_left_out() -> None:
    assert gpus_in("0:1:a,x,2:y:b,3:٣:c,4:3:d") == [1, 3]
    assert gpus_of(on("x", "n", 3)) == 3
    strange = msgspec.convert({"metadata": {}, "spec": {"containers": [{"resources": {"requests": {GPU: "2k"}}}]}}, Pod)
    assert gpus_of(strange) == 0
