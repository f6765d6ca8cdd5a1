"""From a job file to a Volcano Job: pods held by our gate until the gang is placed, one for each node. Pure.

Volcano's admission webhooks may be absent (they are on many clusters, for speed): everything that they would fill in
is given. A pod that fails restarts the whole Job, and its pods come back gated; `maxRetry` counts attempts: the nth
restart fails the Job where n is maxRetry (job controller of Volcano 1.14, `state/restarting.go`). There is no policy
for PodEvicted: a pod that is taken away is made anew, which is Volcano's default, and Rackyard takes the others, where
their end by SIGTERM has not restarted the Job yet. A restart for pods that go at once can leave the Job in the middle
of it for ever (`rackyard.controller.kube.waker`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackyard.errors import SpecError, UsageError
from rackyard.launch.build import warm_modules
from rackyard.launch.environment import Gang, job_environment

API, KIND = "batch.volcano.sh/v1alpha1", "Job"
TASK = "worker"
ENTRY = "rackyard.backends.kubernetes.podmain"
"""What runs in each pod."""
GATE, GANG, SIZE, REQUEST = (f"rackyard.io/{name}" for name in ("placement", "gang", "gang-size", "request"))
"""As the controller knows them (`rackyard.controller.kube.objects`, a floor up)."""
SPEC = "rackyard.io/spec"
"""Annotation of the Job: the job file as JSON, without `env`."""
GRACE = 30
"""Seconds between SIGTERM and SIGKILL for a pod; its ranks get a little less."""
_HOST_NAME = 63
_TOLD = ("rank", "segment", "seats", "attempt", "master", "rack", "rails")
"""Annotations that a release writes, and the pod reads as RACKYARD_POD_RANK and so on."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a job file does not say: how this cluster runs pods."""

    image: str
    namespace: str = "default"
    gpus_per_node: int = 4
    """GPUs that a pod of the gang takes: all of a tray's."""
    host_network: bool = False
    """Pods use their node's network, and rank 0 is met at its node's address; else at a name that Volcano's `svc`
    plug-in makes."""
    priority_class: str = ""
    mounts: tuple[tuple[str, str], ...] = ()
    """Where (a claim's name, or a path of the nodes) and at which path of the pods."""


class NotCarried(SpecError):
    """A key of the job file says what Kubernetes would not do; whoever has the file knows where it says so."""

    def __init__(self, key: str, what: str, *, why: str | None = None, fix: str) -> None:
        super().__init__(f"{key}: {what}", why=why, fix=fix)
        self.path = tuple(key.split("."))
        """The keys that lead to it."""


def manifest(spec: Mapping[str, Any], request: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The Volcano Job for `spec`, the job file as data; `request` is what it asks of placement, without what the pods
    say themselves. UsageError for what can't be carried to Kubernetes.
    """
    _carried(spec, settings)
    gpus = int(spec["gpus"])
    each = min(gpus, settings.gpus_per_node)
    pods, name = gpus // each, str(spec["name"])
    task = {
        "name": TASK,
        "replicas": pods,
        "minAvailable": pods,
        "maxRetry": int(spec["recover"]["attempts"]),
        "template": {
            "metadata": {
                "labels": {GANG: name},
                "annotations": {SIZE: str(pods), REQUEST: json.dumps(request, sort_keys=True)},
            },
            "spec": _pod(spec, settings, each, pods),
        },
    }
    told = {key: value for key, value in spec.items() if key != "env"}
    return {
        "apiVersion": API,
        "kind": KIND,
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": {GANG: name, "app.kubernetes.io/managed-by": "rackyard"},
            "annotations": {SPEC: json.dumps(told, sort_keys=True)},
        },
        "spec": {
            "schedulerName": "volcano",
            "queue": str(spec["queue"]),
            "minAvailable": pods,
            "maxRetry": int(spec["recover"]["attempts"]),
            "policies": [{"event": "PodFailed", "action": "RestartJob"}],
            **({"priorityClassName": settings.priority_class} if settings.priority_class else {}),
            # Its network policy would keep out whoever scrapes the pods' metrics.
            **({} if settings.host_network else {"plugins": {"svc": ["--disable-network-policy=true"]}}),
            "tasks": [task],
        },
    }


def _pod(spec: Mapping[str, Any], settings: Settings, gpus: int, pods: int) -> dict[str, Any]:
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - NCCL's, where 64 MB are the default
    for at, (source, path) in enumerate(settings.mounts):
        there = {"hostPath": {"path": source}} if source[0] == "/" else {"persistentVolumeClaim": {"claimName": source}}
        volumes.append({"name": f"mount-{at}", **there})
        mounts.append({"name": f"mount-{at}", "mountPath": path})
    hang = f"{float(spec['watch']['hang']):g}"
    container = {
        "name": "main",
        "image": settings.image,
        "command": ["python", "-m", ENTRY],
        "args": ["--warm", ",".join(warm_modules(spec)), "--hang", hang, "--", _literal(str(spec["run"]))],
        "env": _environment(spec, pods),
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
        "volumeMounts": mounts,
    }
    if spec["workdir"] != ".":
        container["workingDir"] = str(spec["workdir"])
    host: dict[str, Any] = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return {
        "schedulerName": "volcano",
        "schedulingGates": [{"name": GATE}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE,
        "automountServiceAccountToken": False,
        **({"priorityClassName": settings.priority_class} if settings.priority_class else {}),
        **(host if settings.host_network else {}),
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": volumes,
    }


def _environment(spec: Mapping[str, Any], pods: int) -> list[dict[str, Any]]:
    """The job's environment as on every backend, then what only the pod can know."""
    gang = Gang(str(spec["name"]), 1, int(spec["recover"]["attempts"]), "", 0, None, "")
    fixed = {**job_environment(gang, spec), "RACKYARD_POD_COUNT": str(pods)}
    found: list[dict[str, Any]] = [{"name": name, "value": _literal(fixed[name])} for name in sorted(fixed)]
    fields = {f"RACKYARD_POD_{name.upper()}": f"metadata.annotations['rackyard.io/{name}']" for name in _TOLD}
    fields["RACKYARD_NODE"] = "spec.nodeName"
    return found + [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def _literal(text: str) -> str:
    """Text in which Kubernetes finds no `$(NAME)` to put a value for (core/v1 Container.args)."""
    return text.replace("$", "$$")


def _carried(spec: Mapping[str, Any], settings: Settings) -> None:
    """UsageError for what a job file says and Kubernetes would not do."""
    gpus, each = int(spec["gpus"]), settings.gpus_per_node
    if gpus > each and gpus % each:
        raise NotCarried(
            "gpus",
            f"{gpus} are no whole number of nodes with {each} GPUs each",
            why="on Kubernetes every pod of a job takes the same number of GPUs, those of one node",
            fix=f"a multiple of {each}, or --gpus-per-node",
        )
    longest = f"{spec['name']}-{TASK}-{max(1, gpus // each) - 1}"
    if len(longest) > _HOST_NAME:
        raise NotCarried(
            "name",
            f"{spec['name']} is too long for Kubernetes",
            why=f"its last pod would be {longest}, and a host name has {_HOST_NAME} characters at most",
            fix=f"a name of up to {_HOST_NAME - len(longest) + len(str(spec['name']))} characters",
        )
    if not settings.image:
        fix = "give --image, or set RACKYARD_IMAGE: one with Rackyard and what the command needs"
        raise UsageError("no container image", why="pods run what is in an image", fix=fix)
    _absolute(spec)
    if spec["recover"]["mode"] != "act":
        why = "on Kubernetes the controller has the mode, for all jobs"
        raise NotCarried(
            "recover.mode", "observe is not for Kubernetes", why=why, fix="rackyard kube run --mode observe"
        )
    if spec["priority"] and not settings.priority_class:
        why = "on Kubernetes a priority is the name of a PriorityClass"
        raise NotCarried("priority", f"{spec['priority']} is not for Kubernetes", why=why, fix="--priority-class NAME")


def _absolute(spec: Mapping[str, Any]) -> None:
    checkpoint = spec["checkpoint"] or {}
    what = "must be absolute on Kubernetes"
    folders = {"checkpoint.dir": checkpoint.get("dir", "/"), "workdir": spec["workdir"]}
    for key, folder in folders.items():
        if not str(folder).startswith("/") and folder != ".":
            why = f"{folder} starts at a folder of this machine, and pods run elsewhere"
            raise NotCarried(key, what, why=why, fix="a path in the image, or of a --mount")
    if checkpoint.get("dir") == ".":
        raise NotCarried("checkpoint.dir", what, fix="a path of a --mount that all pods share")
