"""The kubelet on a stand-in for the API server, with real processes."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from fakeapi import FakeApi

from rackyard.backends.kubernetes.client import Client, Unreachable
from rackyard.backends.kubernetes.watch import Pace
from rackyard.backends.local import procs
from rackyard.errors import ConflictError, UsageError
from rackyard.fabric import Health, Site, simulate
from testbed.api import until
from testbed.kubelet import logs
from testbed.kubelet.__main__ import cli
from testbed.kubelet.kubelet import Kubelet, Options
from testbed.kubelet.lifecycle import Backoff, stamp

OPTIONS = Options(renew=0.05, status=0.2, tick=0.01, backoff=Backoff(base=0.01), pace=Pace(base=0.01))
SITE = simulate(racks=1, trays=2)
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/r01-t01"
FOREVER = ["sleep", "1000"]


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def made(api: FakeApi, state: Path, site: Site = SITE) -> Kubelet:
    return Kubelet(cast(Client, api), site, state, OPTIONS)


@pytest.fixture
def kubelet(api: FakeApi, tmp_path: Path) -> Iterator[Kubelet]:
    with made(api, tmp_path / "state") as found:
        yield found


def phase(api: FakeApi, path: str, wanted: str) -> dict[str, Any]:
    until(f"{path} is {wanted}", lambda: api.status(path).get("phase") == wanted, pause=0.01)
    return api.status(path)


def says_up(state: Path) -> None:
    """Waits for a container's `echo up`, after its `trap`: a pod is Running before its shell has read a line."""
    until("it says up", lambda: any(path.read_text() == "up\n" for path in state.glob("pods/*/main/*/log")))


def pids(state: Path) -> list[int]:
    """The processes that containers have as their first, from what they print with `echo $$`."""
    words = [path.read_text().strip() for path in state.glob("pods/*/main/*/log")]
    return [int(word) for word in words if word.isdigit()]


def runs(pid: int) -> bool:
    """Whether there is such a process, and more of it than what its parent has not yet taken notice of."""
    found = procs.stat(pid)
    return found is not None and found.state not in "ZX"


def test_nodes_are_registered_with_their_labels_and_beat(api: FakeApi, kubelet: Kubelet) -> None:
    node = api.objects["/api/v1/nodes/r01-t01"]
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4" and node["status"]["capacity"]["cpu"] == "144"
    labels = node["metadata"]["labels"]
    assert labels["rackyard.io/rack"] == "r01" and labels["kubernetes.io/hostname"] == "r01-t01"
    assert labels["nvidia.com/gpu.clique"] == str(SITE.node("r01-t01").domain)
    assert api.conditions("/api/v1/nodes/r01-t01")["Ready"] == "True"
    before = api.objects[LEASE]["spec"]["renewTime"]
    until("the lease is renewed", lambda: api.objects[LEASE]["spec"]["renewTime"] > before)


def test_a_node_that_is_there_already_and_one_that_was_deleted(api: FakeApi, tmp_path: Path) -> None:
    api.put("/api/v1/nodes/r01-t01", {"metadata": {"name": "r01-t01", "labels": {"mine": "1"}}})
    with made(api, tmp_path / "state"):
        assert api.objects["/api/v1/nodes/r01-t01"]["metadata"]["labels"].keys() > {"mine", "rackyard.io/rack"}
        api.drop("/api/v1/nodes/r01-t02")
        until("it is registered again", lambda: "/api/v1/nodes/r01-t02" in api.objects)


def test_sick_gpus_and_cordons_of_the_site(api: FakeApi, tmp_path: Path) -> None:
    first = SITE.nodes[0]
    sick = replace(first, gpus=(replace(first.gpus[0], health=Health.DOWN), *first.gpus[1:]), cordoned="fan")
    with made(api, tmp_path / "state", replace(SITE, nodes=(sick, SITE.nodes[1]))):
        node = api.objects["/api/v1/nodes/r01-t01"]
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "3" and node["spec"]["unschedulable"]
        path = api.pod("p", ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"], gpus=3)
        phase(api, path, "Succeeded")
        assert _log(tmp_path / "state", "p") == "1,2,3\n"


def _log(state: Path, pod: str) -> str:
    return "".join(text for _, text in logs.text(logs.find(state, "default", pod)))


def test_a_pod_runs_and_ends(api: FakeApi, kubelet: Kubelet, tmp_path: Path) -> None:
    env = [{"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['rackyard.io/rank']"}}}]
    path = api.pod("p", ["sh", "-c", "echo rank $RANK"], env=env, annotations={"rackyard.io/rank": "5"})
    status = phase(api, path, "Succeeded")
    assert _log(tmp_path / "state", "p") == "rank 5\n"
    assert status["podIP"] == "127.0.0.1" and api.conditions(path)["PodScheduled"] == "True"
    assert (
        phase(api, api.pod("q", ["sh", "-c", "exit 3"]), "Failed")["containerStatuses"][0]["state"]["terminated"][
            "exitCode"
        ]
        == 3
    )
    until("it is told", lambda: api.reasons().count("Started") == 2)


def test_pods_of_other_nodes_are_let_be(api: FakeApi, kubelet: Kubelet) -> None:
    other = api.pod("o", ["true"], node="elsewhere")
    phase(api, api.pod("p", ["true"]), "Succeeded")
    assert api.status(other)["phase"] == "Pending"


def test_restarts_on_failure_until_it_succeeds(api: FakeApi, kubelet: Kubelet) -> None:
    script = "test -e twice && exit 0; test -e once && touch twice; touch once; exit 1"
    status = phase(api, api.pod("p", ["sh", "-c", script], policy="OnFailure"), "Succeeded")
    assert status["containerStatuses"][0]["restartCount"] == 2
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1


def test_no_gpu_is_given_twice_and_too_many_are_refused(api: FakeApi, kubelet: Kubelet, tmp_path: Path) -> None:
    for name in ("a", "b"):
        phase(api, api.pod(name, ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 1000"], gpus=2), "Running")
    until("both have told", lambda: all(_log(tmp_path / "state", name) for name in ("a", "b")))
    assert [_log(tmp_path / "state", name) for name in ("a", "b")] == ["0,1\n", "2,3\n"]
    status = phase(api, api.pod("c", FOREVER, gpus=1), "Failed")
    assert status["reason"] == "OutOfnvidia.com/gpu"
    assert phase(api, api.pod("d", FOREVER, gpus=4, node="r01-t02"), "Running")
    assert phase(api, api.pod("e", FOREVER, gpus=0), "Running")


def test_gpus_of_a_pod_that_is_ending_are_waited_for(api: FakeApi, kubelet: Kubelet, tmp_path: Path) -> None:
    stubborn = ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.02; done"]
    old = api.pod("old", stubborn, gpus=4)
    says_up(tmp_path / "state")
    api.mark_deleted(old, stamp(time.time() + 10))  # long enough to be seen on a slow machine
    new = api.pod("new", FOREVER, gpus=4)
    until("it waits, saying why", lambda: "ending" in str(api.state(new)))
    phase(api, new, "Running")
    assert old not in api.objects


def test_deletion_with_grace(api: FakeApi, kubelet: Kubelet, tmp_path: Path) -> None:
    path = api.pod("p", ["sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done"])
    says_up(tmp_path / "state")
    api.mark_deleted(path, stamp(time.time() + 600))
    until("it is gone long before its grace ends", lambda: path not in api.objects)
    assert "Killing" in api.reasons()


def test_deletion_without_grace_ends_the_processes(api: FakeApi, kubelet: Kubelet, tmp_path: Path) -> None:
    path = api.pod("p", ["sh", "-c", "echo $$$$; sleep 1000"])
    phase(api, path, "Running")
    pid = until("it runs", lambda: pids(tmp_path / "state"))[0]
    api.drop(path)
    until("it ends", lambda: not runs(pid))
    until("its folder is kept aside", lambda: list((tmp_path / "state" / "ended").glob("default_p_*")))


def test_what_is_left_out_is_told(api: FakeApi, kubelet: Kubelet) -> None:
    more = {"volumeMounts": [{"name": "v", "mountPath": "/v"}], "envFrom": [{"configMapRef": {"name": "c"}}]}
    phase(api, api.pod("p", ["true"], container=more), "Succeeded")
    (event,) = [one for one in api.events if one["reason"] == "LeftOut"]
    assert event["type"] == "Warning" and "volumes of container main, envFrom of container main" in event["message"]


def test_a_missing_config_map_is_waited_for(api: FakeApi, kubelet: Kubelet, tmp_path: Path) -> None:
    reference = {"configMapKeyRef": {"name": "c", "key": "k"}}
    path = api.pod("p", ["sh", "-c", "echo $V"], env=[{"name": "V", "valueFrom": reference}])
    until("it says what is missing", lambda: "no key k" in str(api.state(path)))
    api.put("/api/v1/namespaces/default/configmaps/c", {"metadata": {"name": "c"}, "data": {"k": "there"}})
    phase(api, path, "Succeeded")
    assert _log(tmp_path / "state", "p") == "there\n"


def test_no_command(api: FakeApi, kubelet: Kubelet) -> None:
    status = phase(api, api.pod("p", []), "Failed")
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "NoCommand"


def test_a_lost_tray_takes_its_processes_with_it_and_falls_silent(
    api: FakeApi, kubelet: Kubelet, tmp_path: Path
) -> None:
    path = api.pod("p", ["sh", "-c", "echo $$$$; sleep 1000"])
    phase(api, path, "Running")
    pid = until("it runs", lambda: pids(tmp_path / "state"))[0]
    kubelet.lose("r01-t01")
    assert not runs(pid)
    time.sleep(2 * OPTIONS.renew)  # a renewal may have been under way
    silent, other = api.objects[LEASE]["spec"]["renewTime"], LEASE.replace("t01", "t02")
    beats = api.objects[other]["spec"]["renewTime"]
    late = api.pod("late", FOREVER)
    until("the other tray beats on", lambda: api.objects[other]["spec"]["renewTime"] > beats)
    assert api.objects[LEASE]["spec"]["renewTime"] == silent
    assert api.status(path)["phase"] == "Running" and api.status(late)["phase"] == "Pending"

    kubelet.restore("r01-t01")
    status = phase(api, path, "Failed")
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 137 and ended["reason"] == "NodeLost" and "[simulated]" in ended["message"]
    phase(api, late, "Running")
    until("it beats", lambda: api.objects[LEASE]["spec"]["renewTime"] > silent)


def test_conditions_come_and_go(api: FakeApi, kubelet: Kubelet) -> None:
    path = "/api/v1/nodes/r01-t02"
    kubelet.condition("r01-t02", "NVLinkDown", reason="Xid154")
    assert api.conditions(path)["NVLinkDown"] == "True"
    (said,) = [one for one in api.objects[path]["status"]["conditions"] if one["type"] == "NVLinkDown"]
    assert said["reason"] == "Xid154" and "[simulated]" in said["message"]
    kubelet.restore("r01-t02")
    assert api.conditions(path)["NVLinkDown"] == "False"
    with pytest.raises(UsageError, match="no node"):
        kubelet.lose("r99-t01")


def test_a_kubelet_started_anew_goes_on_with_what_runs(api: FakeApi, tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = made(api, state)
    first.start()
    path = api.pod("p", ["sh", "-c", "echo $$$$; while ! test -e go; do sleep 0.02; done; exit 4"], gpus=2)
    gone = api.pod("gone", ["sh", "-c", "echo $$$$; sleep 1000"], gpus=1)
    phase(api, path, "Running")
    phase(api, gone, "Running")
    running = until("both run", lambda: len(pids(state)) == 2 and pids(state))
    first.stop(end=False)
    assert all(runs(pid) for pid in running)
    api.drop(gone)

    with made(api, state):
        phase(api, api.pod("q", ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"], gpus=2), "Succeeded")
        assert _log(state, "q") in ("2,3\n", "0,3\n", "0,2\n", "1,3\n", "1,2\n") and "0,1" not in _log(state, "q")
        until("the pod that is gone runs no more", lambda: len(pids(state)) < 2 or not (state / "pods").glob("*"))
        (work,) = [one for one in state.glob("pods/*/work") if one.parent.name == api.objects[path]["metadata"]["uid"]]
        (work / "go").touch()
        status = phase(api, path, "Failed")
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
        assert status["containerStatuses"][0]["restartCount"] == 0
    assert not any(runs(pid) for pid in running)


def test_a_loss_outlives_the_kubelet(api: FakeApi, tmp_path: Path) -> None:
    with made(api, tmp_path / "state") as first:
        first.lose("r01-t01")
    with made(api, tmp_path / "state") as second:
        path = api.pod("p", ["true"])
        phase(api, api.pod("q", ["true"], node="r01-t02"), "Succeeded")
        assert api.status(path)["phase"] == "Pending"
        second.restore("r01-t01")
        phase(api, path, "Succeeded")


def test_a_pod_that_ran_and_is_not_known_here_is_not_started_again(api: FakeApi, kubelet: Kubelet) -> None:
    path = api.pod("p", FOREVER, node="none")
    found = api.objects[path]
    found["spec"]["nodeName"], found["status"]["phase"] = "r01-t01", "Running"
    api.put(path, found)
    ended = phase(api, path, "Failed")["containerStatuses"][0]["state"]["terminated"]
    assert ended["reason"] == "ContainerStatusUnknown"


def test_an_api_server_that_is_away_for_a_while(api: FakeApi, kubelet: Kubelet) -> None:
    path = api.pod("p", ["sh", "-c", "sleep 0.2; exit 6"])
    phase(api, path, "Running")
    api.down = True
    time.sleep(0.5)
    assert api.status(path)["phase"] == "Running" and kubelet.alive()
    api.down = False
    phase(api, path, "Failed")


def test_one_kubelet_a_state_folder(api: FakeApi, kubelet: Kubelet, tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match="another kubelet"):
        made(api, tmp_path / "state").start()


def test_what_a_killed_kubelet_left_can_be_ended_by_hand(api: FakeApi, tmp_path: Path) -> None:
    first = made(api, tmp_path / "state")
    first.start()
    phase(api, api.pod("p", ["sh", "-c", "echo $$$$; sleep 1000"]), "Running")
    pid = until("it runs", lambda: pids(tmp_path / "state"))[0]
    with pytest.raises(ConflictError):
        CliRunner().invoke(cli, ["end", "--state", str(tmp_path / "state")], catch_exceptions=False)
    first.stop(end=False)
    assert runs(pid)
    result = CliRunner().invoke(cli, ["end", "--state", str(tmp_path / "state")], catch_exceptions=False)
    assert result.output == "1 containers ended\n" and not runs(pid)


def test_a_start_that_fails_leaves_nothing_behind(api: FakeApi, tmp_path: Path) -> None:
    api.down = True
    with pytest.raises(Unreachable):
        made(api, tmp_path / "state").start()
    api.down = False
    with made(api, tmp_path / "state"):
        phase(api, api.pod("p", ["true"]), "Succeeded")


def test_a_process_killed_by_a_signal(api: FakeApi, kubelet: Kubelet, tmp_path: Path) -> None:
    path = api.pod("p", ["sh", "-c", "echo $$$$; sleep 1000"])
    pid = until("it runs", lambda: pids(tmp_path / "state"))[0]
    os.kill(pid, signal.SIGABRT)
    ended = phase(api, path, "Failed")["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["signal"]) == (134, 6)
