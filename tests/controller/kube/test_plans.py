"""What a plan says, and which plans of a gang count."""

import msgspec
from tests.controller.kube.clusterlike import START
from tests.controller.kube.test_steps import PLAN, SITE, WHOLE, pod

from rackyard.controller.kube.objects import GangPlan, Node, PlanStatus, Pod
from rackyard.controller.kube.plans import KEPT, body_of, master_of, name_of, newest, plan_of, stamp, surplus
from rackyard.placement import Occupancy, Placement, place


def attempt(number: int, ended: bool = False) -> GangPlan:
    status = PlanStatus("Ended" if ended else "Planned", message=f"end of {number}")
    spec = msgspec.structs.replace(PLAN.spec, attempt=number)
    return msgspec.structs.replace(PLAN, spec=spec, status=status)


def node(name: str, address: str) -> Node:
    status = {"addresses": [{"type": "Hostname", "address": "x"}, {"type": "InternalIP", "address": address}]}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, Node)


def test_the_plan_has_a_node_and_the_seats_of_each_pod() -> None:
    first, second = PLAN.spec.members
    assert (first.pod, first.uid, first.node, first.segment) == ("g-0", "u0", "r01-t01", 0)
    assert second.seats == "4:0:mlx5_0,5:1:mlx5_1,6:2:mlx5_2,7:3:mlx5_3"
    assert PLAN.spec.site_digest == SITE.digest() and PLAN.spec.cost["domains"] == 1
    assert (PLAN.spec.gang, PLAN.spec.attempt, PLAN.spec.why, PLAN.key) == ("g", 1, "", "ml/g")


def test_a_later_attempt_says_what_ended_the_one_before_and_who_has_to_go() -> None:
    seats = place(WHOLE.request, SITE, Occupancy())
    assert isinstance(seats, Placement)
    found = plan_of(WHOLE, seats, "d", [pod(7)], attempt(3, ended=True))
    assert (found.attempt, found.why, name_of(found)) == (4, "end of 3", "g-4")
    assert [(each.namespace, each.pod, each.uid) for each in found.victims] == [("ml", "g-7", "u7")]


def test_the_object_belongs_to_whoever_made_the_first_pod() -> None:
    body = body_of(PLAN.spec, pod(0))
    assert body["metadata"]["name"] == "g-1" and body["spec"]["siteDigest"] == SITE.digest()
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", "u0")
    refs = [
        {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "1"},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "g", "uid": "2", "controller": True},
    ]
    made = msgspec.convert({"metadata": {"name": "g-0", "namespace": "ml", "ownerReferences": refs}}, Pod)
    (owner,) = body_of(PLAN.spec, made)["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "g", "uid": "2"}


def test_what_is_stored_reads_back_as_it_was() -> None:
    body = msgspec.json.encode({**body_of(PLAN.spec, pod(0)), "status": msgspec.to_builtins(PlanStatus("Released"))})
    assert msgspec.json.decode(body, type=GangPlan).spec == PLAN.spec


def test_the_newest_plan_is_that_of_the_highest_attempt() -> None:
    assert newest([attempt(9), attempt(10), attempt(2)])["ml/g"].spec.attempt == 10


def test_only_ended_plans_are_too_many_and_the_oldest_first() -> None:
    ended = [attempt(number, ended=True) for number in range(1, KEPT + 3)]
    assert [plan.spec.attempt for plan in surplus([attempt(99), *reversed(ended)])] == [1, 2]
    assert surplus(ended[:KEPT]) == []


def test_rank_0_is_met_at_its_host_or_at_its_node() -> None:
    nodes = {"r01-t01": node("r01-t01", "10.1.1.1")}
    host, _, port = master_of(PLAN, pod(0), nodes).partition(":")
    assert host == "10.1.1.1" and 20000 <= int(port) < 30000
    named = msgspec.structs.replace(pod(0), spec=msgspec.structs.replace(pod(0).spec, hostname="g-0", subdomain="svc"))
    assert master_of(PLAN, named, nodes) == f"g-0.svc:{port}"
    assert master_of(PLAN, pod(0), {}) == f"r01-t01:{port}"
    other = msgspec.structs.replace(PLAN, metadata=msgspec.structs.replace(PLAN.metadata, uid="q"))
    assert master_of(other, pod(0), nodes) != master_of(PLAN, pod(0), nodes), "each plan has a port of its own"


def test_times_are_as_the_api_server_has_them() -> None:
    assert stamp(START) == "2026-01-02T03:04:05Z"
