"""What is said of a gang on the cluster's own objects: Events, and a condition of its first pod. Pure."""

from datetime import datetime
from typing import Any

from rackyard.controller.kube.objects import Pod
from rackyard.controller.kube.plans import stamp

PLACED = "rackyard.io/Placed"
"""Type of the condition on a gang's first pod: whether the gang has a place, and if not, why."""
_NORMAL = frozenset({"Placed", "Released", "Bound", "Finishing", "Ended"})
_LONGEST = 1024
"""Bytes of an Event's message that the API server takes (events.k8s.io: note)."""


def event_of(pod: Pod, reason: str, message: str, now: datetime) -> dict[str, Any]:
    """A core/v1 Event about a pod."""
    meta = pod.metadata
    time = stamp(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{meta.name[:240]}.", "namespace": meta.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        },
        "reason": f"Gang{reason}",
        "message": _cut(message),
        "type": "Normal" if reason in _NORMAL else "Warning",
        "source": {"component": "rackyard"},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }


def condition_of(pod: Pod, reason: str, message: str, now: datetime) -> dict[str, Any]:
    """A strategic merge patch of the pod's status with our condition."""
    status = "True" if reason in _NORMAL else "False"
    condition = {
        "type": PLACED,
        "status": status,
        "reason": reason,
        "message": _cut(message),
        "lastTransitionTime": stamp(now),
    }
    return {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}


def _cut(text: str) -> str:
    """On one line."""
    return " ".join(text.split()).encode()[:_LONGEST].decode(errors="ignore")
