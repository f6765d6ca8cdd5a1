"""Objects that the tests of the test bed submit."""

from typing import Any

from testbed.api import Api, Refused

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
VOLCANO_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"

ENDS = {"testbed.rackyard.io/complete-after": "0s"}


def template(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    """A pod that takes a whole tray."""
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def pod(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    made = template(annotations)
    return {"metadata": {"name": name, **made["metadata"]}, "spec": made["spec"]}


def job(name: str, pods: int, annotations: dict[str, str], labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"completions": pods, "parallelism": pods, "template": template(annotations)},
    }


def volcano_job(name: str, pods: int, annotations: dict[str, str]) -> dict[str, Any]:
    """A gang; everything that Volcano's webhooks would fill in is given."""
    task = {
        "name": "w",
        "replicas": pods,
        "minAvailable": pods,
        "maxRetry": 1,
        "template": template(annotations, schedulerName="volcano"),
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "queue": "default",
            "minAvailable": pods,
            "schedulerName": "volcano",
            "maxRetry": 1,
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
            "tasks": [task],
        },
    }


def gone(api: Api, path: str) -> bool:
    """Whether nothing is at the path any more."""
    try:
        api.get(path)
    except Refused as error:
        return error.code == 404
    return False
