"""The loop against a stand-in for the API server: what fails is said, and tried again."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from rackyard.backends.kubernetes.client import ApiError, Status
from rackyard.backends.kubernetes.watch import Key
from rackyard.controller.kube.loop import KubeController
from rackyard.controller.kube.objects import GATE, GPU, Node, Pod
from rackyard.fabric import simulate

SITE = simulate(1, 2)


class Server:
    """Keeps pods and plans; refuses so many PATCHes first."""

    def __init__(self, refuse: int) -> None:
        self.refuse = refuse
        self.pods = {f"g-{n}": raw(n) for n in (0, 1)}
        self.plans: dict[str, Any] = {}
        self.patched: list[str] = []

    def post(self, path: str, params: Mapping[str, str], body: Any) -> bytes:
        if path.endswith("/gangplans"):
            name = body["metadata"]["name"]
            if name in self.plans:
                raise refusal(409)
            self.plans[name] = json.loads(msgspec.json.encode(body))
            self.plans[name]["metadata"]["uid"] = "p"
            return msgspec.json.encode(self.plans[name])
        return b"{}"

    def get(self, path: str, params: Mapping[str, str], accept: str) -> bytes:
        return msgspec.json.encode(self.plans[path.rpartition("/")[2]])

    def patch(self, path: str, params: Mapping[str, str], accept: str, kind: str, body: Any) -> bytes:
        if self.refuse:
            self.refuse -= 1
            raise refusal(403)
        name = path.rpartition("/")[2]
        self.patched.append(name)
        self.pods[name]["spec"]["schedulingGates"] = []
        self.pods[name]["metadata"]["resourceVersion"] = "9"
        return msgspec.json.encode(self.pods[name])


def refusal(code: int) -> ApiError:
    return ApiError(f"PATCH: {code}", Status(code=code, reason="Forbidden", message="no"), where="here")


def raw(number: int) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"g-{number}",
            "namespace": "ml",
            "uid": f"u{number}",
            "resourceVersion": "5",
            "labels": {"rackyard.io/gang": "g"},
            "annotations": {"rackyard.io/gang-size": "2"},
        },
        "spec": {"schedulingGates": [{"name": GATE}], "containers": [{"resources": {"limits": {GPU: "4"}}}]},
        "status": {},
    }


def loop(server: Server) -> tuple[KubeController, list[tuple[str, str]]]:
    told: list[tuple[str, str]] = []
    found = KubeController(server, SITE, lambda _gang, word, line: told.append((word, line)))
    ready = {"allocatable": {GPU: "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
    for node in SITE.nodes:
        found.nodes[node.name] = msgspec.convert({"metadata": {"name": node.name}, "status": ready}, Node)
    for name, pod in server.pods.items():
        found.pods[Key("ml", name)] = msgspec.convert(pod, Pod)
    return found, told


def test_a_write_that_fails_is_said_once_and_tried_again_later() -> None:
    server = Server(refuse=2)
    found, told = loop(server)
    with ThreadPoolExecutor(1) as pool:
        found._look(pool)
        assert [word for word, _ in told] == ["Placed"]
        found._look(pool)
        assert told[-1][0] == "Trouble" and "2 of 2 pods could not be written" in told[-1][1]
        assert found._again < float("inf") and server.patched == []
        found._look(pool)
        assert told[-1] == ("Released", "2 pods are let go to their nodes") and sorted(server.patched) == ["g-0", "g-1"]
        found._look(pool)
    assert len(server.patched) == 2, "what the answers said is known before the watch tells it"


def test_a_plan_that_was_stored_by_somebody_else_is_taken_over() -> None:
    server = Server(refuse=0)
    one, _ = loop(server)
    two, told = loop(server)
    with ThreadPoolExecutor(1) as pool:
        one._look(pool)
        two._look(pool)
        assert two.plans.keys() == {Key("ml", "g")} and [word for word, _ in told] == ["Placed"]
