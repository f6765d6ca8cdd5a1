"""What the kubelet writes to the API server, one function for each kind of write."""

import base64
import time
import uuid
from typing import Any
from urllib.parse import quote

import msgspec

from rackyard.backends.kubernetes.client import JSON, ApiError, Client, node_path
from testbed.kubelet.lifecycle import stamp
from testbed.kubelet.nodeobjects import LEASES
from testbed.kubelet.podspec import KeyRef, Pod

COMPONENT = "rackyard-process-kubelet"

_STRATEGIC = "application/strategic-merge-patch+json"
_MERGE = "application/merge-patch+json"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES}/leases"


def register(client: Client, node: dict[str, Any]) -> None:
    """Make the node, or bring the one of that name to this state."""
    path = node_path(node["metadata"]["name"])
    try:
        client.post("/api/v1/nodes", {"fieldManager": COMPONENT}, node)
    except ApiError as error:
        if error.status.code != 409:
            raise
        client.patch(path, {"fieldManager": COMPONENT}, JSON, _MERGE, {"metadata": node["metadata"]})
        client.patch(f"{path}/status", {"fieldManager": COMPONENT}, JSON, _STRATEGIC, {"status": node["status"]})


def beat(client: Client, node: str, conditions: list[dict[str, Any]]) -> bool:
    """Say the node's conditions; False when there is no such node any more."""
    body = {"status": {"conditions": conditions}}
    return _there(lambda: client.patch(f"{node_path(node)}/status", {}, JSON, _STRATEGIC, body))


def renew(client: Client, lease: dict[str, Any]) -> None:
    """Renew the node's lease, or make it."""
    name = lease["metadata"]["name"]
    if not _there(lambda: client.patch(f"{_LEASES}/{quote(name, safe='')}", {}, JSON, _MERGE, {"spec": lease["spec"]})):
        client.post(_LEASES, {}, lease)


def say(client: Client, pod: Pod, status: dict[str, Any]) -> bool:
    """Write the pod's status; False when this very pod is there no more. Others' conditions stay."""
    body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
    return _there(lambda: client.patch(f"{_path(pod)}/status", {}, JSON, _STRATEGIC, body))


def remove(client: Client, pod: Pod) -> None:
    """The last word on a pod that was being deleted and runs no more."""
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": pod.metadata.uid},
    }
    _there(lambda: client.delete(_path(pod), {}, body))


def tell(client: Client, pod: Pod, reason: str, message: str, *, warning: bool = False) -> None:
    """An event of the pod."""
    now = stamp(time.time())
    meta = pod.metadata
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta.name[:200]}.{uuid.uuid4().hex[:16]}", "namespace": meta.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        },
        "reason": reason,
        "message": message[:1024],
        "type": "Warning" if warning else "Normal",
        "source": {"component": COMPONENT, "host": pod.spec.node_name},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    _there(lambda: client.post(f"/api/v1/namespaces/{quote(meta.namespace, safe='')}/events", {}, body))


class _Data(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


def look(client: Client, namespace: str, kind: str, reference: KeyRef) -> str | None:
    """One key of a ConfigMap or Secret (`kind` as in the path); None when it isn't there."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/{kind}/{quote(reference.name, safe='')}"
    try:
        found = msgspec.json.decode(client.get(path, {}, JSON), type=_Data).data.get(reference.key)
    except ApiError as error:
        if error.status.code == 404:
            return None
        raise
    if found is None or kind == "configmaps":
        return found
    return base64.b64decode(found).decode(errors="replace")


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{quote(pod.metadata.namespace, safe='')}/pods/{quote(pod.metadata.name, safe='')}"


def _there(request: Any) -> bool:
    """False for what is gone, or is another object by now."""
    try:
        request()
    except ApiError as error:
        if error.status.code in (404, 409):
            return False
        raise
    return True
