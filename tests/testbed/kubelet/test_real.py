"""The kubelet under a real API server, scheduler and controller manager, with real training processes."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackyard.backends.kubernetes.client import Client, connect
from rackyard.backends.local import procs
from rackyard.fabric import simulate
from testbed import Cluster, cluster
from testbed.api import Refused, until
from testbed.kubelet import logs
from testbed.kubelet.kubelet import Kubelet, Options
from testbed.kubelet.lifecycle import Backoff
from testbed.options import Options as ClusterOptions

pytestmark = pytest.mark.kube

PODS = "/api/v1/namespaces/default/pods"
OPTIONS = Options(lease=6, renew=1.0, status=5.0, backoff=Backoff(base=0.5))
SITE = simulate(racks=1, trays=2)
MANAGER = ("--node-monitor-grace-period=6s", "--node-monitor-period=1s")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, needs_testbed: Any) -> Iterator[Cluster]:
    """A cluster that finds a silent node soon."""
    needs_testbed(())
    options = ClusterOptions(flags={"kube-controller-manager": MANAGER})
    with cluster(tmp_path_factory.mktemp("kubelet") / "cluster", options=options) as found:
        yield found


@pytest.fixture
def client(real: Cluster) -> Iterator[Client]:
    with connect(str(real.kubeconfig)) as found:
        yield found


@pytest.fixture
def kubelet(real: Cluster, client: Client, tmp_path: Path) -> Iterator[Kubelet]:
    """A kubelet with two trays; what it leaves in the cluster is removed."""
    with Kubelet(client, SITE, tmp_path / "state", OPTIONS) as found:
        for node in SITE.nodes:
            until("the node is ready", lambda name=node.name: ready(real, name) == "True" and not tainted(real, name))
        yield found
        for path in ("/apis/batch/v1/namespaces/default/jobs", PODS):
            real.api.delete(path, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
        until("all pods are gone", lambda: not real.api.items(PODS))


def tainted(real: Cluster, node: str) -> bool:
    return bool(real.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints"))


def ready(real: Cluster, node: str) -> str:
    conditions = real.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return str(next(one["status"] for one in conditions if one["type"] == "Ready"))


def container(command: list[str], gpus: int = 0) -> dict[str, Any]:
    env = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    limits = {"nvidia.com/gpu": str(gpus)}
    return {"name": "main", "image": "none", "command": command, "env": env, "resources": {"limits": limits}}


def pod(real: Cluster, name: str, command: list[str], gpus: int = 0, **spec: Any) -> str:
    content = {"restartPolicy": "Never", "containers": [container(command, gpus)]} | spec
    real.api.post(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": content})
    return f"{PODS}/{name}"


def phase(real: Cluster, path: str, wanted: str) -> dict[str, Any]:
    def check() -> dict[str, Any] | None:
        found: dict[str, Any] = real.api.get(path)
        return found if found["status"]["phase"] == wanted else None

    found = until(f"{path} is {wanted}", check)
    assert found is not None
    return found


def gone(real: Cluster, path: str) -> bool:
    try:
        real.api.get(path)
    except Refused as error:
        return error.code == 404
    return False


def job(real: Cluster, name: str, count: int, seconds: float, **more: Any) -> str:
    """A Job of as many pods with one GPU each, which reduce over all of them."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    script = Path(__file__).with_name("gloo.py")
    command = ["python", str(script), "$(JOB_COMPLETION_INDEX)", str(count), str(port), str(seconds)]
    template = {"spec": {"restartPolicy": "Never", "containers": [container(command, 1)]}}
    spec = {"completions": count, "parallelism": count, "completionMode": "Indexed", "template": template, **more}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    real.api.post("/apis/batch/v1/namespaces/default/jobs", body)
    return f"/apis/batch/v1/namespaces/default/jobs/{name}"


def test_a_pod_through_the_scheduler(real: Cluster, kubelet: Kubelet, tmp_path: Path) -> None:
    path = pod(real, "plain", ["sh", "-c", "echo $NODE $CUDA_VISIBLE_DEVICES; exit 3"], gpus=2)
    status = phase(real, path, "Failed")["status"]
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert status["podIP"] == "127.0.0.1"
    assert any(one["type"] == "PodScheduled" and one["status"] == "True" for one in status["conditions"])
    ((_, text),) = logs.text(logs.find(tmp_path / "state", "default", "plain"))
    assert text.split()[0] in {node.name for node in SITE.nodes} and text.split()[1] == "0,1"
    events = real.api.items("/api/v1/namespaces/default/events", fieldSelector="involvedObject.name=plain")
    assert {"Scheduled", "Started"} <= {event["reason"] for event in events}


def test_a_job_of_eight_reduces_over_two_nodes(real: Cluster, kubelet: Kubelet, tmp_path: Path) -> None:
    path = job(real, "sum", 8, 0.0)
    until("the job is complete", lambda: real.api.get(path)["status"].get("succeeded") == 8, timeout=180)
    words = []
    for one in real.api.items(PODS):
        ((_, text),) = logs.text(logs.find(tmp_path / "state", "default", one["metadata"]["name"]))
        words.append(next(line for line in text.splitlines() if line.startswith("rank")).split())
    assert sorted(int(line[1]) for line in words) == list(range(8))
    assert {line[3] for line in words} == {"36"}
    assert Counter(line[5] for line in words) == {"r01-t01": 4, "r01-t02": 4}
    assert {(line[5], line[7]) for line in words} == {(n.name, str(g)) for n in SITE.nodes for g in range(4)}


def test_deletion_with_grace_and_after_it(real: Cluster, kubelet: Kubelet, tmp_path: Path) -> None:
    soft = pod(real, "soft", ["sh", "-c", "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.1; done"])
    hard = pod(real, "hard", ["sh", "-c", "trap '' TERM; echo $$$$; while :; do sleep 0.1; done"])
    phase(real, soft, "Running")
    phase(real, hard, "Running")
    folders = [logs.find(tmp_path / "state", "default", name) for name in ("soft", "hard")]
    until("the first listens", lambda: "".join(text for _, text in logs.text(folders[0])))
    pid = int(until("the other says who it is", lambda: "".join(text for _, text in logs.text(folders[1]))))
    who = procs.identify(pid)
    assert who is not None
    began = time.monotonic()
    real.api.delete(soft)
    real.api.delete(hard, gracePeriodSeconds="10")  # long enough to see the first end before on a slow machine
    until("the one that heeds SIGTERM is gone", lambda: gone(real, soft))
    assert procs.alive(who) and not gone(real, hard)
    until("the other is killed", lambda: gone(real, hard))
    assert time.monotonic() - began >= 10 and not procs.alive(who)
    assert "asked" in "".join(text for _, text in logs.text(logs.find(tmp_path / "state", "default", "soft")))


def test_a_lost_tray_is_not_ready_and_its_job_is_run_anew(real: Cluster, kubelet: Kubelet, tmp_path: Path) -> None:
    pods = [pod(real, f"w{n}", ["sleep", "1000"], gpus=4) for n in range(2)]
    for path in pods:
        phase(real, path, "Running")
    (lost,) = [path for path in pods if real.api.get(path)["spec"]["nodeName"] == "r01-t01"]
    kubelet.lose("r01-t01")
    began = time.monotonic()
    until("the cluster sees it", lambda: ready(real, "r01-t01") == "Unknown")
    print(f"NotReady after {time.monotonic() - began:.1f} s")
    assert ready(real, "r01-t02") == "True" and real.api.get(lost)["status"]["phase"] == "Running"
    assert "node.kubernetes.io/unreachable" in json.dumps(real.api.get("/api/v1/nodes/r01-t01")["spec"]["taints"])
    kubelet.restore("r01-t01")
    until("it is ready again", lambda: ready(real, "r01-t01") == "True")
    ended = phase(real, lost, "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 137 and ended["reason"] == "NodeLost"
    until("its taints go", lambda: not real.api.get("/api/v1/nodes/r01-t01")["spec"].get("taints"))


def test_logs_through_the_api_server(real: Cluster, kubelet: Kubelet) -> None:
    script = "seq 1 5; while ! test -e go; do sleep 0.05; done; echo last"
    path = pod(real, "talks", ["sh", "-c", script])
    phase(real, path, "Running")
    until("it has counted", lambda: real.api.get(f"{path}/log") == "1\n2\n3\n4\n5\n")
    assert real.api.get(f"{path}/log", tailLines="2") == "4\n5\n"
    assert real.api.get(f"{path}/log", limitBytes="3") == "1\n2"
    uid = real.api.get(path)["metadata"]["uid"]
    go = threading.Timer(0.5, lambda: (kubelet.folder(uid) / "work" / "go").touch())
    go.start()
    assert real.api.get(f"{path}/log", follow="true") == "1\n2\n3\n4\n5\nlast\n"
    go.join()
    with pytest.raises(Refused):
        real.api.get(f"{path}/log", previous="true")


def test_a_condition_is_seen_in_the_cluster(real: Cluster, kubelet: Kubelet) -> None:
    def said() -> dict[str, str]:
        return {one["type"]: one["status"] for one in real.api.get("/api/v1/nodes/r01-t02")["status"]["conditions"]}

    kubelet.condition("r01-t02", "NVLinkDown", reason="Xid154")
    assert said()["NVLinkDown"] == "True"
    kubelet.restore("r01-t02")
    assert said()["NVLinkDown"] == "False" and said()["Ready"] == "True"


def test_a_kubelet_that_is_killed_and_started_again_loses_nothing(real: Cluster, tmp_path: Path) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-m", "testbed.kubelet", "--kubeconfig", str(real.kubeconfig), "--racks", "1"]
    command += ["--trays", "2", "--state", str(state), "--lease", "6", "--renew", "1"]
    root = Path(__file__).parents[3]
    first = subprocess.Popen(command, cwd=root)
    path = job(real, "long", 4, 6.0)
    until("all run", lambda: real.api.get(path)["status"].get("ready") == 4, timeout=120)
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = subprocess.Popen(command, cwd=root)
    try:
        until("the job is complete", lambda: real.api.get(path)["status"].get("succeeded") == 4, timeout=120)
        assert not real.api.get(path)["status"].get("failed")
        stays = pod(real, "stays", ["sh", "-c", "echo $$$$; sleep 1000"])
        phase(real, stays, "Running")
        folder = logs.find(state, "default", "stays")
        pid = int(until("it says who it is", lambda: "".join(text for _, text in logs.text(folder))))
        who = procs.identify(pid)
    finally:
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0
    assert who is not None and not procs.alive(who)
    for one in real.api.items(PODS):
        real.api.delete(f"{PODS}/{one['metadata']['name']}", gracePeriodSeconds="0")
