"""Kueue's objects: queues with a quota of GPUs."""

from typing import Any

from rackyard.controller.kube.objects import GPU
from testbed import Cluster

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


def kueue(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def queue(bed: Cluster, name: str, flavor: str, gpus: int, **more: Any) -> None:
    """A ClusterQueue, and a LocalQueue of its name."""
    resources = [{"name": GPU, "nominalQuota": gpus}]
    groups = [{"coveredResources": [GPU], "flavors": [{"name": flavor, "resources": resources}]}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups, **more}
    bed.api.post(f"{KUEUE}/clusterqueues", kueue("ClusterQueue", name, spec))
    bed.api.post(f"{KUEUE}/namespaces/default/localqueues", kueue("LocalQueue", name, {"clusterQueue": name}))
