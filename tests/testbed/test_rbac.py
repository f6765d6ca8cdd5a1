"""The controller under its own service account: what `deploy/rbac.yaml` grants is enough, and none of it too much."""

import copy
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ruamel.yaml import YAML
from tests.testbed.gangkinds import definition
from tests.testbed.gangset import Told
from tests.testbed.told import running

from rackyard.backends.kubernetes.bulk import Bulk
from rackyard.backends.kubernetes.client import ApiError, Client, Retry, connect, node_path
from rackyard.backends.kubernetes.jobs import command
from rackyard.backends.kubernetes.watch import Meta, Trouble, Watch, What
from rackyard.controller.kube.acts import PLANS, Acts, Note, Taken
from rackyard.controller.kube.gangs import Gang, gang_of
from rackyard.controller.kube.loop import KubeController
from rackyard.controller.kube.objects import GANG, GATE, GPU, SIZE, GangPlan, Node, PlanStatus, Pod, PodGroup
from rackyard.controller.kube.plans import plan_of
from rackyard.controller.kube.steps import Patch
from rackyard.controller.kube.waker import Waker
from rackyard.errors import RackyardError
from rackyard.fabric import simulate
from rackyard.placement import Occupancy, Placement, place
from testbed import Cluster, cluster, crds
from testbed.api import until
from testbed.families import built, family
from testbed.nodes import create

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

DEPLOY = Path(__file__).parents[2] / "deploy"
SITE = simulate(1, 2)
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE = f"{RBAC}/clusterroles/rackyard-controller"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/rackyard-system/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/rackyard-system/roles",
    "RoleBinding": f"{RBAC}/namespaces/rackyard-system/rolebindings",
    "CustomResourceDefinition": crds.PATH,
}
MANIFESTS = [
    each for file in ("crd", "rbac") for each in YAML(typ="safe").load_all((DEPLOY / f"{file}.yaml").read_text())
]
(GRANTED,) = (each for each in MANIFESTS if each["kind"] == "ClusterRole")
PODS = "/api/v1/namespaces/default/pods"
WATCHED: dict[str, What[Any]] = {
    "pods": What("/api/v1/pods", Pod),
    "nodes": What("/api/v1/nodes", Node),
    "gangplans": What(f"{PLANS}/gangplans", GangPlan),
    "podgroups": What("/apis/scheduling.volcano.sh/v1beta1/podgroups", PodGroup),
}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Ground:
    """A cluster, and a connection to it as the service account."""

    bed: Cluster
    client: Client
    acts: Acts

    def grant(self, rules: list[dict[str, Any]]) -> None:
        role = self.bed.api.get(ROLE)
        self.bed.api.put(ROLE, {**role, "rules": rules})


@pytest.fixture(scope="module")
def ground(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    needs_testbed(("kwok", "volcano"))
    with cluster(tmp_path_factory.mktemp("rbac") / "cluster", parts=("kwok",)) as bed:
        create(bed, SITE)
        names = crds.create(bed.api, built(family("volcano")) / "crds")  # Volcano's objects, without Volcano
        for each in (*MANIFESTS, definition()):
            bed.api.post(PATHS[each["kind"]], each)
        crds.established(bed.api, [*names, "gangplans.rackyard.io", "computedomains.resource.nvidia.com"])
        path = f"{PATHS['ServiceAccount']}/rackyard-controller/token"
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        token = bed.api.post(path, {**kind, "spec": {"expirationSeconds": 3600}})["status"]["token"]
        config = json.loads(bed.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        file = tmp_path_factory.mktemp("account") / "kubeconfig"
        file.write_text(json.dumps(config))
        with connect(str(file), retry=Retry(tries=2)) as client:
            bulk = Bulk(client)
            yield Ground(bed, client, Acts(client, bulk))
            bulk.close()


def gang(bed: Cluster) -> Gang:
    """A gang of one gated pod, made anew."""
    if any(pod["metadata"]["name"] == "g-0" for pod in bed.api.items(PODS)):
        bed.api.delete(f"{PODS}/g-0", gracePeriodSeconds="0")
        until("the pod is gone", lambda: not bed.api.items(PODS))
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: "4"}}}
    made = bed.api.post(
        PODS,
        {
            "metadata": {"name": "g-0", "labels": {GANG: "g"}, "annotations": {SIZE: "1"}},
            "spec": {"schedulingGates": [{"name": GATE}], "containers": [container]},
        },
    )
    found = gang_of("default/g", [msgspec.convert(made, Pod)])
    assert isinstance(found, Gang)
    return found


def act(ground: Ground, what: str) -> str:
    """Do one thing as the controller does it; what it says when it is refused, else nothing."""
    try:
        errors = did(ground, *what.split())
    except RackyardError as error:
        return str(error)
    return str(errors[0]) if errors else ""


def did(ground: Ground, resource: str, verb: str) -> list[RackyardError]:
    """What went wrong, as far as it isn't raised."""
    acts, whole = ground.acts, gang(ground.bed)
    (pod,) = whole.pods
    if resource in WATCHED and verb in ("list", "watch"):
        return watched(ground.client, WATCHED[resource])
    match resource, verb:
        case "gangplans" | "gangplans/status", _:
            plan_written(ground, whole, resource, verb)
        case "nodes", "patch":
            path = node_path(SITE.nodes[0].name)
            ground.client.write("PATCH", path, "application/merge-patch+json", {"spec": {"unschedulable": None}})
        case "pods", "patch":
            return acts.release([Patch(pod, {"metadata": {"annotations": {"a": "b"}}})])[1]
        case "pods/status", "patch":
            return acts.release([Patch(pod, {"status": {"nominatedNodeName": "r01-t01"}}, status=True)])[1]
        case "pods/eviction", "create":
            return [error for error in acts.evict([Taken("default", "g-0", pod.metadata.uid)]) if error]
        case "queues", "get":
            try:
                acts.capability("none")
            except ApiError as error:
                return [] if error.status.code == 404 else [error]
        case "events", "create":
            return [error for error in acts.note([Note(pod, "NoSeat", "a line", NOW)]) if error]
        case "computedomains", _:
            number = len(ground.bed.api.items("/apis/resource.nvidia.com/v1beta1/computedomains"))
            acts.domain(domain(pod, f"d-{number}"))
        case "jobs", "list":
            Waker(ground.client, lambda *_: None).look()
        case "commands", "create":
            command(ground.client, Meta(name="j", namespace="default", uid="u"), "SyncJob", "Woken", "go on")
        case _:
            raise AssertionError(f"nothing of the controller needs {verb} of {resource}")
    return []


def plan_written(ground: Ground, whole: Gang, resource: str, verb: str) -> None:
    path = f"{PLANS}/namespaces/default/gangplans"
    for left in ground.bed.api.items(path):
        ground.bed.api.delete(f"{path}/{left['metadata']['name']}")
    seats = place(whole.request, SITE, Occupancy())
    assert isinstance(seats, Placement)
    spec = plan_of(whole, seats, SITE.digest(), (), None)
    if verb != "create":
        kind = {"apiVersion": "rackyard.io/v1alpha1", "kind": "GangPlan", "metadata": {"name": "g-1"}}
        made = ground.bed.api.post(path, {**kind, "spec": msgspec.to_builtins(spec)})
        stored = msgspec.convert(made, GangPlan)
    match resource, verb:
        case "gangplans", "create" | "get":
            ground.acts.store(spec, whole.pods[0])
        case "gangplans", "delete":
            ground.acts.forget(stored)
        case _:
            ground.acts.mark(stored, PlanStatus("Released"))


def domain(pod: Pod, name: str) -> dict[str, Any]:
    spec = {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": name}}}
    kind = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain"}
    return {**kind, "metadata": {"name": name, "namespace": pod.metadata.namespace}, "spec": spec}


def watched(client: Client, what: What[Any]) -> list[RackyardError]:
    """What is refused of a list and the watch after it."""
    watch = Watch(client, what)
    timer = threading.Timer(1.0, watch.stop)  # a watch that is allowed says nothing
    timer.start()
    try:
        for event in watch:
            if isinstance(event, Trouble):
                return [event.error]
        return []
    finally:
        watch.stop()
        timer.cancel()


EACH = [
    (at, f"{resource} {verb}")
    for at, rule in enumerate(GRANTED["rules"])
    for resource in rule["resources"]
    for verb in rule["verbs"]
]


@pytest.mark.parametrize(("at", "what"), EACH, ids=[what for _, what in EACH])
def test_with_all_rules_it_may_and_without_this_verb_it_may_not(ground: Ground, at: int, what: str) -> None:
    rules = copy.deepcopy(GRANTED["rules"])
    ground.grant(rules)
    until("it may", lambda: not act(ground, what))
    rules[at]["verbs"].remove(what.split()[1])
    ground.grant([rule for rule in rules if rule["verbs"]])
    said = until("it may not", lambda: act(ground, what))
    assert "403" in said and "system:serviceaccount:rackyard-system:rackyard-controller" in said
    ground.grant(GRANTED["rules"])


def test_under_its_account_a_gang_is_placed_let_go_and_bound(ground: Ground) -> None:
    ground.grant(GRANTED["rules"])
    until("it may", lambda: not act(ground, "events create"))
    for left in ground.bed.api.items(f"{PLANS}/gangplans"):
        ground.bed.api.delete(f"{PLANS}/namespaces/default/gangplans/{left['metadata']['name']}")
    gang(ground.bed)
    told = Told()
    with running(KubeController(ground.client, SITE, told)):
        told.wait("g", "Bound")
    assert not any(word == "Trouble" for _, word, _ in told.lines)
    assert ground.bed.api.get(f"{PODS}/g-0")["spec"]["nodeName"] == "r01-t01"
