"""The agent in act mode on a real API server, under its own account: what it writes, and that it may do no more."""

import copy
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.agent.hosts import NODE, captured, change, driver, failed, readings, tree
from tests.cli.calling import call

from rackyard.agent.derive import View, derive
from rackyard.agent.host import Memory
from rackyard.agent.writing import HEARTBEAT, MANAGER, Writer
from rackyard.backends.kubernetes.client import Client, Retry, connect
from rackyard.fabric.facts import Facts
from testbed import Cluster, cluster
from testbed.api import Refused, until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

ACT = Path(__file__).parents[2] / "deploy/components/act"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
SYSTEM = "/api/v1/namespaces/rackyard-system"
ROLE = f"{PATHS['ClusterRole']}/rackyard-agent"
MANIFESTS = [
    each
    for file in ("agent-rbac", "agent-policy")
    for each in YAML(typ="safe").load_all((ACT / f"{file}.yaml").read_text())
]
(GRANTED,) = (each["rules"] for each in MANIFESTS if each["kind"] == "ClusterRole")
OTHER = "r01-t02"


@dataclass
class Ground:
    """A cluster with two nodes, and a connection to it as the agent of the first."""

    bed: Cluster
    client: Client
    kubeconfig: Path

    def node(self, name: str = NODE) -> dict[str, Any]:
        found = self.bed.api.get(f"/api/v1/nodes/{name}")
        assert isinstance(found, dict)
        return found

    def conditions(self) -> dict[str, dict[str, str]]:
        return {each["type"]: each for each in self.node()["status"].get("conditions", [])}

    def fresh(self) -> Writer:
        """A writer, and the node as it was before any agent."""
        for name in (NODE, OTHER):
            if any(each["metadata"]["name"] == name for each in self.bed.api.items("/api/v1/nodes")):
                self.bed.api.delete(f"/api/v1/nodes/{name}")
            self.bed.api.post("/api/v1/nodes", {"metadata": {"name": name, "labels": {"zone": "z1"}}})
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "well"}
            self.bed.api.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}})
        return Writer(self.client, NODE)

    def grant(self, rules: list[dict[str, Any]]) -> None:
        self.bed.api.put(ROLE, {**self.bed.api.get(ROLE), "rules": rules})


@pytest.fixture(scope="module")
def ground(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    needs_testbed(())
    with cluster(tmp_path_factory.mktemp("agent") / "cluster") as bed:
        bed.api.post("/api/v1/namespaces", {"metadata": {"name": "rackyard-system"}})
        bed.api.post(f"{SYSTEM}/serviceaccounts", {"metadata": {"name": "rackyard-agent"}})
        for each in MANIFESTS:
            bed.api.post(f"{PATHS[each['kind']]}?fieldValidation=Strict", each)
        file = tmp_path_factory.mktemp("account") / "kubeconfig"
        with connect(str(kubeconfig(bed, file)), retry=Retry(tries=1)) as client:
            found = Ground(bed, client, file)
            found.fresh()
            until("the policy holds", lambda: "own node only" in refusal(found, OTHER, {"metadata": {"labels": None}}))
            yield found


def kubeconfig(bed: Cluster, file: Path) -> Path:
    """As the agent's pod on the first node has it: a token that is bound to the pod, and so to the node."""
    container = {"name": "agent", "image": "none"}
    spec = {"serviceAccountName": "rackyard-agent", "nodeName": NODE, "containers": [container]}
    pod = bed.api.post(f"{SYSTEM}/pods", {"metadata": {"name": "agent"}, "spec": spec})
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "agent", "uid": pod["metadata"]["uid"]}
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    body = {**kind, "spec": {"expirationSeconds": 3600, "boundObjectRef": bound}}
    token = bed.api.post(f"{SYSTEM}/serviceaccounts/rackyard-agent/token", body)["status"]["token"]
    config = json.loads(bed.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    file.write_text(json.dumps(config))
    return file


def refusal(ground: Ground, node: str, body: dict[str, Any], status: bool = False) -> str:
    """What the API server says to a merge patch of the agent's; empty when it took it."""
    answer = ground.client.http.patch(
        f"/api/v1/nodes/{node}" + ("/status" if status else ""),
        json=body,
        headers={"Content-Type": "application/merge-patch+json"},
    )
    return "" if answer.is_success else str(answer.json().get("message", answer.status_code))


def view_of(facts: Facts) -> View:
    return derive(NODE, readings(facts), Memory(), 0.0)[0]


HEALTHY = view_of(captured())


def ill(links: int = 16) -> View:
    facts = captured()
    facts.gpus = [change(gpu, links=links) if gpu.index == 1 else gpu for gpu in facts.gpus]
    return view_of(facts)


def wrote(writer: Writer, view: View, at: float) -> list[str]:
    done = writer.write(view, at)
    assert [str(each.error) for each in done if each.error] == []
    return [each.what for each in done]


def test_conditions_and_labels_are_written_and_only_what_changed(ground: Ground) -> None:
    writer = ground.fresh()
    assert wrote(writer, HEALTHY, 0.0) == ["conditions", "labels"]
    assert wrote(writer, HEALTHY, 30.0) == []
    node, found = ground.node(), ground.conditions()
    assert {kind: each["status"] for kind, each in found.items()} == {
        "Ready": "True",
        "rackyard.io/NVLinkDown": "False",
        "rackyard.io/GPUFault": "False",
        "rackyard.io/FabricDegraded": "False",
        "rackyard.io/NICDown": "False",
    }
    assert node["metadata"]["labels"].items() >= {**HEALTHY.labels, "zone": "z1"}.items()
    before = found["rackyard.io/NICDown"]
    assert wrote(writer, ill(), 60.0) == ["conditions", "labels"]
    found = ground.conditions()
    assert found["rackyard.io/NVLinkDown"]["status"] == "True"
    assert "16 of 18 NVLinks up" in found["rackyard.io/NVLinkDown"]["message"]
    assert found["rackyard.io/NICDown"]["lastTransitionTime"] == before["lastTransitionTime"]
    assert ground.node()["metadata"]["labels"]["rackyard.io/degraded-links"] == "2"


def test_the_time_of_a_transition_is_of_the_status_and_outlives_the_agent(ground: Ground) -> None:
    writer = ground.fresh()
    wrote(writer, ill(), 0.0)
    old = "2026-01-01T00:00:00Z"
    conditions = [
        {**each, "lastTransitionTime": old} if each["type"] == "rackyard.io/NVLinkDown" else each
        for each in ground.conditions().values()
    ]
    ground.bed.api.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": conditions}})
    again = Writer(ground.client, NODE)
    assert wrote(again, ill(12), 0.0) == ["conditions", "labels"]  # another message, the same status
    assert ground.conditions()["rackyard.io/NVLinkDown"]["lastTransitionTime"] == old
    wrote(again, HEALTHY, 30.0)
    assert ground.conditions()["rackyard.io/NVLinkDown"]["lastTransitionTime"] != old


def test_a_heartbeat_comes_every_five_minutes_and_brings_back_what_was_taken_away(ground: Ground) -> None:
    writer = ground.fresh()
    wrote(writer, HEALTHY, 0.0)
    ground.bed.api.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": []}})
    ground.bed.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {"rackyard.io/domain": None}}})
    assert wrote(writer, HEALTHY, HEARTBEAT - 1) == []
    assert wrote(writer, HEALTHY, HEARTBEAT) == ["conditions", "labels"]
    assert wrote(writer, HEALTHY, 2 * HEARTBEAT - 1) == []
    assert wrote(writer, HEALTHY, 2 * HEARTBEAT) == ["heartbeat"]
    assert ground.conditions()["rackyard.io/GPUFault"]["status"] == "False"
    assert "rackyard.io/domain" in ground.node()["metadata"]["labels"]


def test_while_the_driver_is_silent_the_place_stays_and_the_state_goes(ground: Ground) -> None:
    writer = ground.fresh()
    wrote(writer, HEALTHY, 0.0)
    blind, _ = derive(NODE, (readings(captured())[0], failed("nvml")), Memory(), 0.0)
    assert wrote(Writer(ground.client, NODE), blind, 30.0) == ["conditions", "labels"]
    labels = ground.node()["metadata"]["labels"]
    assert labels["rackyard.io/domain"] == HEALTHY.labels["rackyard.io/domain"]
    assert "rackyard.io/degraded-gpus" not in labels
    assert ground.conditions()["rackyard.io/GPUFault"]["status"] == "Unknown"


def test_labels_of_topo_label_stay_and_older_values_of_it_give_way(ground: Ground) -> None:
    writer = ground.fresh()
    labels = {"rackyard.io/rack": "r01", "rackyard.io/leaf-rail-0": "leaf", "rackyard.io/degraded-links": "9"}
    applied(ground, "rackyard", labels)
    assert wrote(writer, HEALTHY, 0.0) == ["conditions", "labels"]
    found = ground.node()["metadata"]["labels"]
    assert found.items() >= {**labels, "rackyard.io/degraded-links": "0"}.items()


def test_labels_of_somebody_else_are_not_taken_over(ground: Ground) -> None:
    writer = ground.fresh()
    applied(ground, "admin", {"rackyard.io/domain": "by"})
    (conditions, labels) = writer.write(HEALTHY, 0.0)
    assert conditions.error is None and labels.error is not None
    assert "rackyard.io/domain" in str(labels.error) and '"admin"' in str(labels.error)
    assert ground.node()["metadata"]["labels"]["rackyard.io/domain"] == "by"


def applied(ground: Ground, manager: str, labels: dict[str, str]) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}
    path = f"/api/v1/nodes/{NODE}?fieldManager={manager}&force=true"
    ground.bed.api.patch(path, body, "application/apply-patch+yaml")


def test_a_node_that_was_made_anew_is_read_anew(ground: Ground) -> None:
    writer = ground.fresh()
    wrote(writer, HEALTHY, 0.0)
    ground.fresh()
    (first, *_) = writer.write(ill(), 30.0)
    assert first.error is not None and "422" in str(first.error)
    assert wrote(writer, ill(), 60.0) == ["conditions", "labels"]


def test_a_node_that_is_gone_is_not_made(ground: Ground) -> None:
    writer = ground.fresh()
    wrote(writer, HEALTHY, 0.0)
    ground.bed.api.delete(f"/api/v1/nodes/{NODE}")
    assert all(each.error is not None for each in writer.write(ill(), 30.0))
    assert [each.what for each in writer.write(ill(), 60.0)] == ["read"]
    with pytest.raises(Refused, match="404"):
        ground.node()


def test_what_it_set_is_known_by_its_name(ground: Ground) -> None:
    wrote(ground.fresh(), HEALTHY, 0.0)
    managers = {each["manager"] for each in ground.node()["metadata"]["managedFields"]}
    assert MANAGER in managers


def test_the_command_acts_until_it_is_ended_and_leaves_the_conditions(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.fresh()
    monkeypatch.setenv("PYTHONPATH", driver(tmp_path / "driver"))
    root, log = tree(tmp_path / "root"), tmp_path / "log"
    words = ["--node", NODE, "--mode", "act", "--root", str(root), "--every", "1s", "--timeout", "2m"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "rackyard", "kube", "agent", *words, "--kubeconfig", str(ground.kubeconfig)],
            stdout=out,
            stderr=out,
        )
    try:
        until("the node is well", lambda: status(ground, "rackyard.io/NICDown") == "False")
        port = next(root.glob("sys/devices/pci0/*/infiniband/mlx5_1/ports/1"))
        (port / "state").write_text("1: DOWN\n")
        (port / "phys_state").write_text("2: Polling\n")
        until("it is seen", lambda: status(ground, "rackyard.io/NICDown") == "True")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "mlx5_1 port 1 is DOWN/Polling, and was up before" in ground.conditions()["rackyard.io/NICDown"]["message"]
    assert "NICDown: True" in log.read_text() and "Traceback" not in log.read_text()


def test_what_could_not_be_written_is_told_as_every_error_is(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", driver(tmp_path / "driver"))
    root = tree(tmp_path / "root")
    words = ("--node", "elsewhere", "--mode", "act", "--once", "--root", root, "--timeout", "2m")
    ground.grant([])
    try:
        until("it may not", lambda: ground.client.http.get("/api/v1/nodes/elsewhere").status_code == 403)
        answer = call("kube", "agent", *words, "--kubeconfig", ground.kubeconfig)
    finally:
        ground.grant(GRANTED)
    lines = answer.err.splitlines()
    assert answer.code == 1 and [line.partition(":")[0] for line in lines] == ["error", "  at", "  why", "  fix"]
    assert lines[0] == "error: node elsewhere was not written: GET /api/v1/nodes/elsewhere: 403"


def status(ground: Ground, kind: str) -> str:
    return ground.conditions().get(kind, {}).get("status", "")


# --- what it may ------------------------------------------------------------------------------------------------------


EACH = [(at, f"{rule['resources'][0]} {rule['verbs'][0]}") for at, rule in enumerate(GRANTED)]


@pytest.mark.parametrize(("at", "what"), EACH, ids=[what for _, what in EACH])
def test_with_all_rules_it_works_and_without_this_one_it_does_not(ground: Ground, at: int, what: str) -> None:
    rules = copy.deepcopy(GRANTED)

    def errors() -> list[str]:
        done = ground.fresh().write(ill(), 0.0)
        return [" ".join(str(each.error).split()) for each in done if each.error]

    try:
        ground.grant(rules)
        until("it may", lambda: not errors())
        ground.grant([rule for number, rule in enumerate(rules) if number != at])
        said = until("it may not", errors)
        assert any("403" in line and "rackyard-system:rackyard-agent" in line for line in said)
    finally:
        ground.grant(rules)
        until("it may again", lambda: not errors())


@pytest.mark.parametrize(
    ("node", "body", "status", "why"),
    [
        (OTHER, {"metadata": {"labels": {"rackyard.io/rack": "x"}}}, False, "own node only"),
        (OTHER, {"status": {"conditions": []}}, True, "own node only"),
        (NODE, {"metadata": {"labels": {"zone": "z2"}}}, False, "labels under rackyard.io/ only"),
        (NODE, {"metadata": {"labels": {"zone": None}}}, False, "labels under rackyard.io/ only"),
        (NODE, {"metadata": {"labels": {"node-role": "x"}}}, False, "labels under rackyard.io/ only"),
        (NODE, {"metadata": {"annotations": {"a": "b"}}}, False, "labels and conditions only"),
        (NODE, {"spec": {"unschedulable": True}}, False, "labels and conditions only"),
        (NODE, {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, False, "labels and conditions only"),
        (NODE, {"status": {"conditions": []}}, True, "conditions under rackyard.io/ only"),
        (NODE, {"status": {"capacity": {"nvidia.com/gpu": "8"}}}, True, "nothing of a node's status but conditions"),
        (NODE, {"metadata": {"labels": {"rackyard.io/tray": "1"}}}, False, ""),
    ],
)
def test_the_policy_keeps_it_to_its_own(
    ground: Ground, node: str, body: dict[str, Any], status: bool, why: str
) -> None:
    ground.fresh()
    said = refusal(ground, node, body, status)
    assert (why in said) if why else said == ""


def test_the_policy_binds_nobody_else(ground: Ground) -> None:
    ground.fresh()
    ground.bed.api.patch(f"/api/v1/nodes/{OTHER}", {"metadata": {"labels": {"zone": "z3"}}})
