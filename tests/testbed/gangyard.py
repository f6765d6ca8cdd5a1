"""Gangs to try things on, on a real API server: what makes their pods, and what is asked about them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml import YAML
from tests.testbed.gangset import (
    CRDS,
    PLANS,
    PODS,
    ROOT,
    SETS,
    SITE,
    Told,
    established,
    nodes,
    plans,
    pods,
    template,
)

from rackyard.backends.kubernetes.client import connect
from rackyard.controller.kube.loop import KubeController
from rackyard.controller.kube.notes import PLACED
from rackyard.controller.kube.objects import FAULT, GANG, Mark
from testbed import Cluster, cluster
from testbed.api import MERGE, Refused, until
from testbed.nodes import create

VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
QUEUES, GROUPS = f"{VOLCANO}/queues", f"{VOLCANO}/namespaces/default/podgroups"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PARTS = ("kwok", "volcano")
RACK1, RACK2 = (tuple(node.name for node in SITE.nodes if node.name.startswith(rack)) for rack in ("r01", "r02"))


@contextmanager
def opened(folder: Path) -> Iterator[Cluster]:
    """A cluster of two racks with our CRD and some PriorityClasses."""
    with cluster(folder / "cluster", parts=PARTS) as bed:
        create(bed, SITE)
        bed.api.post(CRDS, YAML(typ="safe").load((ROOT / "deploy" / "crd.yaml").read_text()))
        for name, value, policy in (
            ("low", 10, "PreemptLowerPriority"),
            ("high", 1000, "PreemptLowerPriority"),
            ("polite", 1000, "Never"),
        ):
            bed.api.post(CLASSES, {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy})
        until("the CRD is served", lambda: established(bed))
        yield bed


def tidied(bed: Cluster) -> None:
    """As it was opened."""
    for path in (SETS, JOBS, GROUPS, BUDGETS):
        for each in bed.api.items(path):
            with suppress(Refused):  # a PodGroup goes with its Job
                bed.api.delete(f"{path}/{each['metadata']['name']}", propagationPolicy="Background")
    for pod in bed.api.items(PODS):
        with suppress(Refused):  # it went with its set
            bed.api.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds="0")
    until("no pod is left", lambda: not bed.api.items(PODS))
    for found in bed.api.items(PLANS):
        with suppress(Refused):
            bed.api.delete(f"{PLANS}/{found['metadata']['name']}")
    for node in SITE.nodes:
        plain = {"metadata": {"annotations": {FAULT: None}}, "spec": {"unschedulable": None, "taints": None}}
        bed.api.patch(f"/api/v1/nodes/{node.name}", plain, MERGE)
    for queue in bed.api.items(QUEUES):
        if queue["metadata"]["name"] not in ("root", "default"):
            bed.api.delete(f"{QUEUES}/{queue['metadata']['name']}")


def gather(bed: Cluster, gang: str, size: int, scheduler: str = "default-scheduler", **more: Any) -> None:
    """A StatefulSet of gated pods; `spec` and `annotations` change the pods. Volcano's has a PodGroup of its own."""
    made = template(gang, size, scheduler, more.get("request", {}))
    made["spec"] |= more.get("spec", {})
    made["metadata"]["annotations"] |= more.get("annotations", {})
    if scheduler == "volcano":
        asked = {"minMember": size, "queue": more.get("queue", "default"), **more.get("group", {})}
        body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": gang}}
        bed.api.post(GROUPS, {**body, "spec": asked})
    spec = {
        "replicas": size,
        "serviceName": gang,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {GANG: gang}},
        "template": made,
    }
    bed.api.post(SETS, {"metadata": {"name": gang}, "spec": spec})


def mark(bed: Cluster, node: str, summary: str) -> None:
    """What the health loop does with a node that is at fault."""
    told = msgspec.json.encode(Mark("tray", node, summary, "2026-01-01T00:00:00Z")).decode()
    body = {"metadata": {"annotations": {FAULT: told}}, "spec": {"unschedulable": True}}
    bed.api.patch(f"/api/v1/nodes/{node}", body, MERGE)


def condition(bed: Cluster, pod: str) -> dict[str, str]:
    """Ours, of a pod; empty for none."""
    try:
        found = bed.api.get(f"{PODS}/{pod}")["status"].get("conditions", [])
    except Refused:
        return {}
    return next((each for each in found if each["type"] == PLACED), {})


def says(bed: Cluster, pod: str, reason: str) -> str:
    """Wait for our condition of that reason: its message."""

    def found() -> dict[str, str]:
        told = condition(bed, pod)
        return told if told.get("reason") == reason else {}

    told = until(f"{pod} says {reason}", found)
    assert told["status"] == ("True" if reason in ("Placed", "Released", "Bound") else "False")
    return told["message"]


def whole(bed: Cluster, gang: str, size: int) -> bool:
    """Whether all of it is where its plan says, and nothing else goes on for it."""
    going = [each for each in plans(bed, gang) if each.get("status", {}).get("phase") != "Ended"]
    assert len(going) <= 1, going
    where = nodes(bed, gang)
    if len(where) != size or not all(where) or not going:
        return False
    told = {each["pod"]: each["node"] for each in going[0]["spec"]["members"]}
    names = [pod["metadata"]["name"] for pod in pods(bed, gang)]
    return told == dict(zip(names, where, strict=True)) and going[0].get("status", {}).get("phase") == "Bound"


def waits(bed: Cluster, gang: str, size: int) -> bool:
    """Whether all of it is there and held."""
    found = pods(bed, gang)
    return len(found) == size and all(pod["spec"].get("schedulingGates") for pod in found)


def settled(bed: Cluster, check: Callable[[], bool], seconds: float = 1.5) -> bool:
    """Whether it stays so for a while."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if not check():
            return False
        time.sleep(0.1)
    return True


class Killed(BaseException):
    """The controller was killed."""


@contextmanager
def doomed(bed: Cluster) -> Iterator[Callable[[], bool]]:
    """A controller that `Killed` ends; what it gives says whether that has happened."""
    ended = threading.Event()
    with connect(str(bed.kubeconfig)) as client:
        loop = KubeController(client, SITE, Told())

        def run() -> None:
            try:
                loop.run()
            except Killed:
                ended.set()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield ended.is_set
        finally:
            loop.stop()
            thread.join(30)
            assert not thread.is_alive()
