"""The controller under its own service account: what `deploy/rbac.yaml` grants is enough, and none of it too much."""

import copy
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ruamel.yaml import YAML

from rackyard.backends.kubernetes.client import Client, connect
from rackyard.backends.kubernetes.watch import Key, Meta, Trouble, Watch, What
from rackyard.controller.kube.gangs import Gang, gangs
from rackyard.controller.kube.loop import KubeController
from rackyard.controller.kube.objects import GANG, GATE, GPU, SIZE, GangPlan, Node, Pod
from rackyard.controller.kube.steps import Patch, plan_of
from rackyard.fabric import simulate
from rackyard.placement import Occupancy, Placement, place
from testbed import Cluster, cluster
from testbed.api import until

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
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}
MANIFESTS = [
    each for file in ("crd", "rbac") for each in YAML(typ="safe").load_all((DEPLOY / f"{file}.yaml").read_text())
]
(GRANTED,) = (each for each in MANIFESTS if each["kind"] == "ClusterRole")
PODS = "/api/v1/namespaces/default/pods"


@dataclass
class Ground:
    """A cluster, and a connection to it as the service account."""

    bed: Cluster
    client: Client

    def grant(self, rules: list[dict[str, Any]]) -> None:
        role = self.bed.api.get(ROLE)
        self.bed.api.put(ROLE, {**role, "rules": rules})


@pytest.fixture(scope="module")
def ground(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    needs_testbed(())
    with cluster(tmp_path_factory.mktemp("rbac") / "cluster") as bed:
        for each in MANIFESTS:
            bed.api.post(PATHS[each["kind"]], each)
        path = f"{PATHS['ServiceAccount']}/rackyard-controller/token"
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        token = bed.api.post(path, {**kind, "spec": {"expirationSeconds": 3600}})["status"]["token"]
        config = json.loads(bed.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        file = tmp_path_factory.mktemp("account") / "kubeconfig"
        file.write_text(json.dumps(config))
        with connect(str(file)) as client:
            until("the CRD is served", lambda: refused(watched(client, GangPlan)) is None)
            yield Ground(bed, client)


def watched(client: Client, kind: type) -> Any:
    paths = {Pod: "/api/v1/pods", Node: "/api/v1/nodes", GangPlan: "/apis/rackyard.io/v1alpha1/gangplans"}
    watch = Watch(client, What(paths[kind], kind))
    for event in watch:
        watch.stop()
        return event
    return None


def refused(event: Any) -> str | None:
    return str(event.error) if isinstance(event, Trouble) else None


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
    (found,) = gangs([msgspec.convert(made, Pod)])
    assert isinstance(found, Gang)
    return found


def act(ground: Ground, what: str) -> str | None:
    """Do one thing as the controller does it; what it says when it is refused."""
    said: list[str] = []
    loop = KubeController(ground.client, SITE, lambda _gang, word, line: said.append(f"{word}: {line}"))
    match what:
        case "pods list" | "pods watch":
            return refused(watched(ground.client, Pod))
        case "nodes list" | "nodes watch":
            return refused(watched(ground.client, Node))
        case "gangplans list" | "gangplans watch":
            return refused(watched(ground.client, GangPlan))
    whole = gang(ground.bed)
    pod = whole.pods[0]
    seats = place(whole.request, SITE, Occupancy())
    assert isinstance(seats, Placement)
    for left in ground.bed.api.items("/apis/rackyard.io/v1alpha1/namespaces/default/gangplans"):
        ground.bed.api.delete(f"/apis/rackyard.io/v1alpha1/namespaces/default/gangplans/{left['metadata']['name']}")
    plan = {"apiVersion": "rackyard.io/v1alpha1", "kind": "GangPlan", "metadata": {"name": "g"}}
    spec = plan_of(whole, seats, SITE)
    if what in ("gangplans get", "gangplans delete"):
        body = {**plan, "spec": msgspec.to_builtins(spec)}
        made = ground.bed.api.post("/apis/rackyard.io/v1alpha1/namespaces/default/gangplans", body)
        stored = GangPlan(Meta(name="g", namespace="default", uid=made["metadata"]["uid"]), spec)
    match what:
        case "gangplans create" | "gangplans get":
            loop._store(whole, spec)
        case "gangplans delete":
            loop._delete(stored)
        case "pods patch":
            answer = loop._patch(Patch(pod, {"metadata": {"annotations": {"a": "b"}}}))
            return None if isinstance(answer, Pod) else str(answer)
        case "pods/status patch":
            answer = loop._patch(Patch(pod, {"status": {"nominatedNodeName": "r01-t01"}}, status=True))
            return None if isinstance(answer, Pod) else str(answer)
        case "pods/eviction create":
            loop._evict(pod)
        case "events create":
            loop.pods[Key("default", "g-0")] = pod
            loop._say("default/g", "NoSeat", "a line")
    refusals = [line for line in said if line.startswith("Trouble")]
    return refusals[0] if refusals else None


EACH = [
    (at, f"{resource} {rule['verbs'][0]}") for at, rule in enumerate(GRANTED["rules"]) for resource in rule["resources"]
]


@pytest.mark.parametrize(("at", "what"), EACH, ids=[what for _, what in EACH])
def test_with_all_rules_it_may_and_without_this_one_it_may_not(ground: Ground, at: int, what: str) -> None:
    rules = copy.deepcopy(GRANTED["rules"])
    ground.grant(rules)
    until("it may", lambda: act(ground, what) is None)
    ground.grant([rule for number, rule in enumerate(rules) if number != at])
    said = until("it may not", lambda: act(ground, what))
    assert "403" in said and "system:serviceaccount:rackyard-system:rackyard-controller" in said
    ground.grant(rules)


def test_under_its_account_a_gang_is_placed_and_let_go(ground: Ground) -> None:
    ground.grant(GRANTED["rules"])
    until("it may", lambda: act(ground, "events create") is None)
    whole = gang(ground.bed)
    said: list[tuple[str, str]] = []
    loop = KubeController(ground.client, SITE, lambda _gang, word, line: said.append((word, line)))
    ready = {"allocatable": {GPU: "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
    loop.nodes = {
        node.name: msgspec.convert({"metadata": {"name": node.name}, "status": ready}, Node) for node in SITE.nodes
    }
    loop.pods[Key("default", "g-0")] = whole.pods[0]
    with ThreadPoolExecutor(1) as pool:
        loop._look(pool)
        loop._look(pool)
    assert [word for word, _ in said] == ["Placed", "Released"]
    assert "schedulingGates" not in ground.bed.api.get(f"{PODS}/g-0")["spec"]
