"""Gangs of other kinds than Volcano's: a JobSet, a LeaderWorkerSet and a TrainJob of held pods."""

from typing import Any

from rackyard.controller.kube.domains import API
from rackyard.controller.kube.objects import GATE, GPU, SIZE
from testbed import Cluster
from testbed.kueue import QUEUE_LABEL

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
LWS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
TRAINER = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default"
WORKERS = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
DOMAINS = f"/apis/{API}/namespaces/default/computedomains"


def template(size: int, **spec: Any) -> dict[str, Any]:
    """A pod of a gang, gated, that runs until it is deleted."""
    return {
        "metadata": {"annotations": {SIZE: str(size)}},
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "node", "image": "none", "resources": {"limits": {GPU: "4"}}}],
            **spec,
        },
    }


def job(pods: int, size: int) -> dict[str, Any]:
    """No pod is made anew in a Job that has failed: the JobSet starts all of them over, and at once."""
    of = template(size, restartPolicy="Never")
    return {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": of}


def of_kind(api: str, kind: str, name: str, spec: dict[str, Any], queue: str = "") -> dict[str, Any]:
    """`queue`: Kueue's, where it has one."""
    labels = {QUEUE_LABEL: queue} if queue else {}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec}


def jobset(bed: Cluster, name: str = "js", queue: str = "") -> None:
    """Two Jobs of two pods, one gang, and a driver that is none of ours."""
    driver = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}}
    spec = {
        "failurePolicy": {"maxRestarts": 3, "restartStrategy": "BlockingRecreate"},
        "replicatedJobs": [
            {"name": "driver", "replicas": 1, "template": {"spec": driver}},
            {"name": "w", "replicas": 2, "template": {"spec": job(2, 4)}},
        ],
    }
    bed.api.post(JOBSETS, of_kind("jobset.x-k8s.io/v1alpha2", "JobSet", name, spec, queue))


def workers(bed: Cluster) -> None:
    of = {"size": 3, "restartPolicy": "RecreateGroupOnPodRestart", "workerTemplate": template(3)}
    bed.api.post(LWS, of_kind(*WORKERS, "lw", {"replicas": 2, "leaderWorkerTemplate": of}))


def trainjob(bed: Cluster, queue: str = "") -> None:
    api = "trainer.kubeflow.org/v1alpha1"
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    replicated = {"name": "node", "template": {"metadata": {"labels": step}, "spec": job(2, 2)}}
    of = {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": [replicated]}
    runtime = {"mlPolicy": {"numNodes": 2, "torch": {}}, "template": {"spec": of}}
    bed.api.post(f"{TRAINER}/trainingruntimes", of_kind(api, "TrainingRuntime", "torch", runtime))
    refers = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "torch"}
    bed.api.post(f"{TRAINER}/trainjobs", of_kind(api, "TrainJob", "tj", {"runtimeRef": refers}, queue))


def definition() -> dict[str, Any]:
    """What the driver's definition of ComputeDomain says of `spec`, restated: v1beta1, Helm chart 0.4; numNodes was
    required before.
    """

    def of(**properties: Any) -> dict[str, Any]:
        return {"type": "object", "properties": properties}

    name = {**of(name={"type": "string"}), "required": ["name"]}
    mode = {"type": "string", "enum": ["All", "Single"], "default": "Single"}
    channel = {**of(resourceClaimTemplate=name, allocationMode=mode), "required": ["resourceClaimTemplate"]}
    unchanged = [{"rule": "self == oldSelf", "message": "A computeDomain.spec is immutable"}]
    spec = {
        **of(numNodes={"type": "integer"}, channel=channel),
        "required": ["channel", "numNodes"],
        "x-kubernetes-validations": unchanged,
    }
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": of(spec=spec)}}
    names = {"kind": "ComputeDomain", "plural": "computedomains", "singular": "computedomain"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "computedomains.resource.nvidia.com"},
        "spec": {"group": "resource.nvidia.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }
