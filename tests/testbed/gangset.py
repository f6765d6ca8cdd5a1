"""Gangs as StatefulSets on a real API server: what makes their pods, who places them, and what is asked about them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.testbed.told import Told as Said
from tests.testbed.told import running

from rackyard.backends.kubernetes.client import connect
from rackyard.controller.kube.loop import KubeController
from rackyard.controller.kube.objects import GANG, GATE, GPU, REQUEST, SIZE
from rackyard.fabric import simulate
from testbed import Cluster
from testbed.api import MERGE

SITE = simulate(2, 4)
"""Two racks of four trays."""
PODS = "/api/v1/namespaces/default/pods"
PLANS = "/apis/rackyard.io/v1alpha1/namespaces/default/gangplans"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROOT = Path(__file__).parents[2]


def established(bed: Cluster) -> bool:
    found = bed.api.get(f"{CRDS}/gangplans.rackyard.io").get("status", {}).get("conditions")
    return any(each["type"] == "Established" and each["status"] == "True" for each in found or ())


class Told(Said):
    """What a controller says of gangs in namespace default."""

    def wait(self, gang: str, word: str, since: int = 0) -> str:
        return super().wait(f"default/{gang}", word, since)


@contextmanager
def controller(bed: Cluster) -> Iterator[Told]:
    told = Told()
    with connect(str(bed.kubeconfig)) as client:
        loop = KubeController(client, SITE, told)
        with running(loop):
            yield told


def template(gang: str, size: int, scheduler: str, request: dict[str, Any]) -> dict[str, Any]:
    annotations = {SIZE: str(size), REQUEST: json.dumps(request), "scheduling.k8s.io/group-name": gang}
    return {
        "metadata": {"labels": {GANG: gang}, "annotations": annotations},
        "spec": {
            "schedulerName": scheduler,
            "schedulingGates": [{"name": GATE}],
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": {"limits": {GPU: "4"}}}],
        },
    }


SETS = "/apis/apps/v1/namespaces/default/statefulsets"


def submit(bed: Cluster, gang: str, size: int, scheduler: str = "default-scheduler", **request: Any) -> None:
    """A StatefulSet of gated pods, which makes pods anew at once; for Volcano with a PodGroup of all of them."""
    if scheduler == "volcano":
        group = {"metadata": {"name": gang}, "spec": {"minMember": size, "queue": "default"}}
        path = "/apis/scheduling.volcano.sh/v1beta1"
        kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        bed.api.post(f"{path}/namespaces/default/podgroups", {**kind, **group})
    spec = {
        "replicas": size,
        "serviceName": gang,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {GANG: gang}},
        "template": template(gang, size, scheduler, request),
    }
    bed.api.post(SETS, {"metadata": {"name": gang}, "spec": spec})


def withdraw(bed: Cluster, gang: str) -> None:
    bed.api.delete(f"{SETS}/{gang}", propagationPolicy="Background")


def pods(bed: Cluster, gang: str) -> list[dict[str, Any]]:
    """By rank; those that are being deleted left out."""
    found = [pod for pod in bed.api.items(PODS) if pod["metadata"].get("labels", {}).get(GANG) == gang]
    there = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
    return sorted(there, key=lambda pod: int(pod["metadata"]["name"].rpartition("-")[2]))


def events(bed: Cluster, pod: str) -> list[tuple[str, str]]:
    found = bed.api.items("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={pod}")
    return [(event["reason"], event["message"]) for event in found]


def nodes(bed: Cluster, gang: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in pods(bed, gang)]


def plans(bed: Cluster, gang: str) -> list[dict[str, Any]]:
    """By attempt."""
    found = [each for each in bed.api.items(PLANS) if each["spec"]["gang"] == gang]
    return sorted(found, key=lambda each: each["spec"]["attempt"])


def plan(bed: Cluster, gang: str) -> list[str]:
    """The nodes of the newest one."""
    return [member["node"] for member in plans(bed, gang)[-1]["spec"]["members"]]


def cordon(bed: Cluster, node: str, out: bool) -> None:
    bed.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": out}}, MERGE)
