"""A stand-in for the product's client and the API server behind it: objects by path, patches merged, watches fed."""

import copy
import itertools
import json
import queue
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rackyard.backends.kubernetes.client import ApiError, Status, Unreachable

PODS = "/api/v1/pods"


def refused(code: int, path: str) -> ApiError:
    return ApiError(f"{path}: {code}", Status(code=code, message=path), where="stand-in")


class FakeApi:
    """Pods are bound from the start. `down`: nothing answers."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.down = False
        self.streams: list[Body] = []
        self._versions, self._uids = itertools.count(1), itertools.count(1)

    # What tests do.

    def pod(self, name: str, command: list[str], node: str = "r01-t01", **more: Any) -> str:
        """Make a pod, and return its path. `gpus`, `env`, `annotations`, `policy` and `container` say more of it."""
        limits = {"nvidia.com/gpu": str(more.get("gpus", 0))}
        container = {"name": "main", "command": command, "env": more.get("env", []), "resources": {"limits": limits}}
        path = f"/api/v1/namespaces/default/pods/{name}"
        meta = {"name": name, "namespace": "default", "uid": f"uid-{next(self._uids)}"}
        self.put(
            path,
            {
                "metadata": meta | {"annotations": more.get("annotations", {})},
                "spec": {
                    "nodeName": node,
                    "restartPolicy": more.get("policy", "Never"),
                    "containers": [container | more.get("container", {})],
                },
                "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
            },
        )
        return path

    def put(self, path: str, content: dict[str, Any]) -> None:
        kind = "MODIFIED" if path in self.objects else "ADDED"
        content["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[path] = content
        self._feed(path, kind, content)

    def drop(self, path: str) -> None:
        """Delete without grace."""
        self._feed(path, "DELETED", self.objects.pop(path))

    def mark_deleted(self, path: str, at: str) -> None:
        """Ask for a graceful deletion with this deadline."""
        found = copy.deepcopy(self.objects[path])
        found["metadata"]["deletionTimestamp"] = at
        self.put(path, found)

    def status(self, path: str) -> dict[str, Any]:
        return self.objects[path].get("status", {})

    def state(self, path: str) -> dict[str, Any]:
        """The state of the pod's first container."""
        return (self.status(path).get("containerStatuses") or [{}])[0].get("state", {})

    def conditions(self, path: str) -> dict[str, str]:
        return {one["type"]: one["status"] for one in self.status(path)["conditions"]}

    def reasons(self) -> list[str]:
        return [one["reason"] for one in self.events]

    # What the kubelet asks.

    def get(self, path: str, params: Mapping[str, str], accept: str) -> bytes:
        self._reach()
        if path == PODS:
            items = [one for where, one in self.objects.items() if "/pods/" in where]
            return json.dumps({"metadata": {"resourceVersion": str(next(self._versions))}, "items": items}).encode()
        if path not in self.objects:
            raise refused(404, path)
        return json.dumps(self.objects[path]).encode()

    def post(self, path: str, params: Mapping[str, str], body: Any) -> bytes:
        self._reach()
        if path.endswith("/events"):
            self.events.append(body)
            return b"{}"
        where = f"{path}/{body['metadata']['name']}"
        if where in self.objects:
            raise refused(409, where)
        self.put(where, copy.deepcopy(body))
        return b"{}"

    def patch(self, path: str, params: Mapping[str, str], accept: str, kind: str, body: Any) -> bytes:
        self._reach()
        where = path.removesuffix("/status")
        if where not in self.objects:
            raise refused(404, where)
        found = copy.deepcopy(self.objects[where])
        uid = body.get("metadata", {}).get("uid")
        if uid and uid != found["metadata"]["uid"]:
            raise refused(409, where)
        self.put(where, _merged(found, body, strategic="strategic" in kind))
        return b"{}"

    def delete(self, path: str, params: Mapping[str, str], body: Any = None) -> bytes:
        self._reach()
        if path not in self.objects:
            raise refused(404, path)
        assert body["gracePeriodSeconds"] == 0 and body["preconditions"]["uid"] == self.objects[path]["metadata"]["uid"]
        self.drop(path)
        return b"{}"

    @contextmanager
    def stream(self, path: str, params: Mapping[str, str], accept: str, patience: float) -> "Iterator[Body]":
        self._reach()
        body = Body()
        self.streams.append(body)
        yield body

    def _reach(self) -> None:
        if self.down:
            raise Unreachable("nothing answers")

    def _feed(self, path: str, kind: str, content: dict[str, Any]) -> None:
        if "/pods/" in path:
            for stream in self.streams:
                stream.said.put(json.dumps({"type": kind, "object": content}).encode() + b"\n")


class Body:
    """A watch's body, which ends when it is cut."""

    def __init__(self) -> None:
        self.said: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[bytes]:
        while line := self.said.get():
            yield line

    def cut(self) -> None:
        self.said.put(b"")


def _merged(old: dict[str, Any], new: dict[str, Any], *, strategic: bool) -> dict[str, Any]:
    for key, value in new.items():
        if strategic and key == "conditions":
            named = {one["type"]: one for one in old.get(key, [])} | {one["type"]: one for one in value}
            old[key] = list(named.values())
        elif isinstance(value, dict) and isinstance(old.get(key), dict):
            old[key] = _merged(dict(old[key]), value, strategic=strategic)
        else:
            old[key] = value
    return old
