"""The health loop on a real API server with KWOK's nodes: cordoned for faults, left alone in a reboot, healed."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.testbed.told import Told, running

from rackyard.backends.kubernetes.client import connect
from rackyard.controller.kube.health import Options
from rackyard.controller.kube.keeper import Keeper
from rackyard.controller.kube.objects import FAULT
from rackyard.controller.kube.signals import MAINTENANCE, OVERRULED
from rackyard.fabric import simulate
from testbed import Cluster, cluster
from testbed.api import MERGE, until
from testbed.nodes import KWOK, create, create_nodes, manifests
from testbed.options import Options as ClusterOptions

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

SITE = simulate(3, 4)
QUICK = Options(mode="act", lost_after=1.0, settle=0.5, root_wait=3.0, heal_after=1.0)
RACK = [f"r01-t{tray:02d}" for tray in range(1, 5)]
STRATEGIC = "application/strategic-merge-patch+json"
NODES = "/api/v1/nodes"
(KUBELET,) = KWOK


@pytest.fixture(scope="module")
def yard(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_testbed(("kwok",))
    # A heartbeat counts as lost after half the usual time; KWOK sends one every ten seconds.
    options = ClusterOptions(flags={"kube-controller-manager": ("--node-monitor-grace-period=25s",)})
    with cluster(tmp_path_factory.mktemp("keeper") / "cluster", parts=("kwok",), options=options) as bed:
        create(bed, SITE)
        yield bed


@contextmanager
def keeper(bed: Cluster, options: Options = QUICK, disturbed: bool = False) -> Iterator[Told]:
    told = Told()
    with connect(str(bed.kubeconfig)) as client:
        loop = Keeper(client, SITE, options, told)
        with running(loop):
            yield told
        if not disturbed:
            assert not [line for _, word, line in told.lines if word == "Trouble"]


def say(bed: Cluster, node: str, kind: str, status: str = "True", message: str = "") -> None:
    """Write a condition as an agent or a kubelet does."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastTransitionTime": now, "lastHeartbeatTime": now}
    condition = {"type": kind, "status": status, "reason": "Test", "message": message, **times}
    bed.api.patch(f"{NODES}/{node}/status", {"status": {"conditions": [condition]}}, STRATEGIC)


def cordon(bed: Cluster, node: str, out: bool) -> None:
    bed.api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": out}}, MERGE)


def annotate(bed: Cluster, node: str, key: str, value: str | None) -> None:
    bed.api.patch(f"{NODES}/{node}", {"metadata": {"annotations": {key: value}}}, MERGE)


def take_from_kwok(bed: Cluster, *nodes: str) -> None:
    """From now on nobody plays these nodes' kubelet: what is written of them stands."""
    for node in nodes:
        annotate(bed, node, KUBELET, None)


def cordoned(bed: Cluster) -> list[str]:
    return sorted(n["metadata"]["name"] for n in bed.api.items(NODES) if n["spec"].get("unschedulable"))


def marks(bed: Cluster) -> dict[str, Any]:
    found = {n["metadata"]["name"]: n["metadata"].get("annotations", {}).get(FAULT) for n in bed.api.items(NODES)}
    return {name: json.loads(text) for name, text in found.items() if text}


def events(bed: Cluster, node: str) -> dict[str, str]:
    found = bed.api.items("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={node}")
    return {event["reason"]: event["message"] for event in found}


@pytest.fixture(autouse=True)
def tidy(yard: Cluster) -> Iterator[None]:
    yield
    for node in yard.api.items(NODES):
        name = node["metadata"]["name"]
        keep = [c for c in node["status"]["conditions"] if c["type"] == "Ready"]
        drop = [{"type": c["type"], "$patch": "delete"} for c in node["status"]["conditions"] if c not in keep]
        yard.api.patch(f"{NODES}/{name}/status", {"status": {"conditions": drop}}, STRATEGIC)
        say(yard, name, "Ready")
        notes = {FAULT: None, MAINTENANCE: None, OVERRULED: None, **KWOK}
        yard.api.patch(f"{NODES}/{name}", {"metadata": {"annotations": notes}, "spec": {"unschedulable": None}}, MERGE)
    yard.api.delete("/api/v1/namespaces/default/events")


def test_a_tray_with_a_fault_is_cordoned_says_why_and_heals(yard: Cluster) -> None:
    with keeper(yard) as told:
        say(yard, "r01-t02", "rackyard.io/GPUFault", message="GPU 3 fell off the bus")
        assert "GPU 3 fell off the bus" in told.wait("r01-t02", "Cordoned")
        assert cordoned(yard) == ["r01-t02"]
        mark = marks(yard)["r01-t02"]
        assert (mark["cause"], mark["subject"]) == ("tray", "r01-t02")
        until("the node says so", lambda: "GPU 3" in events(yard, "r01-t02").get("Cordoned", ""))
        say(yard, "r01-t02", "rackyard.io/GPUFault", "False")
        told.wait("r01-t02", "Uncordoned")
        assert not cordoned(yard) and not marks(yard)
        until("the node says so", lambda: "Uncordoned" in events(yard, "r01-t02"))


def test_trays_that_report_one_after_another_are_one_fault_of_the_domain(yard: Cluster) -> None:
    with keeper(yard) as told:
        for node in RACK[:3]:
            say(yard, node, "rackyard.io/NVLinkDown", message="18 of 72 links are down")
        told.wait("r01", "FaultSeen")
        until("the whole rack is cordoned", lambda: cordoned(yard) == RACK)
        assert {(mark["cause"], mark["subject"]) for mark in marks(yard).values()} == {("rack-nvlink", "r01")}


def test_pressure_cordons_nothing_and_observe_writes_nothing_to_nodes(yard: Cluster) -> None:
    with keeper(yard) as told:
        say(yard, "r01-t01", "MemoryPressure")
        say(yard, "r01-t02", "KernelDeadlock")
        told.wait("r01-t02", "Cordoned")
        assert cordoned(yard) == ["r01-t02"]
    with keeper(yard, Options(mode="observe")) as told:
        say(yard, "r02-t01", "ReadonlyFilesystem")
        assert "mode observe" in told.wait("r02-t01", "FaultSeen")
    assert cordoned(yard) == ["r01-t02"] and not events(yard, "r02-t01")


def test_a_lost_heartbeat_cordons_and_a_reboot_does_not(yard: Cluster) -> None:
    take_from_kwok(yard, "r01-t01", "r02-t01")
    with keeper(yard, Options(mode="act", lost_after=10.0, settle=0.5, heal_after=1.0)) as told:
        say(yard, "r01-t01", "Ready", "False", "kubelet is shutting down")
        say(yard, "r01-t01", "rackyard.io/NVLinkDown")
        for peer in RACK[1:]:
            say(yard, peer, "rackyard.io/FabricDegraded")
        until("the taint of the node is there", lambda: yard.api.get(f"{NODES}/r01-t01")["spec"].get("taints"))
        say(yard, "r01-t01", "rackyard.io/NVLinkDown", "False")
        say(yard, "r01-t01", "Ready")
        for peer in RACK[1:]:
            say(yard, peer, "rackyard.io/FabricDegraded", "False")
        say(yard, "r02-t01", "Ready", "Unknown", "Kubelet stopped posting node status.")
        assert "stopped posting" in told.wait("r02-t01", "Cordoned")
        assert cordoned(yard) == ["r02-t01"]
        say(yard, "r02-t01", "Ready")
        told.wait("r02-t01", "Uncordoned")
        assert {subject for subject, _, _ in told.lines} == {"r02-t01"}


def test_a_node_without_heartbeat_is_cordoned_and_healed_when_it_has_one(yard: Cluster) -> None:
    """It says that it is Ready, and then nothing more: the controller manager misses its lease."""
    lone = SITE.nodes[-1].name
    yard.api.delete(f"{NODES}/{lone}")
    create_nodes(yard.api, manifests(SITE, {})[-1:])
    with keeper(yard) as told:
        assert "Ready=Unknown" in told.wait(lone, "Cordoned")
        assert cordoned(yard) == [lone]
        say(yard, lone, "Ready")
        told.wait(lone, "Uncordoned")
        assert not cordoned(yard)


def test_a_whole_rack_without_heartbeat_is_one_subject(yard: Cluster) -> None:
    take_from_kwok(yard, *RACK)
    with keeper(yard, Options(mode="act", lost_after=3.0)) as told:
        for node in RACK:
            say(yard, node, "Ready", "Unknown")
        assert "power or management network" in told.wait("r01", "FaultSeen")
        until("the whole rack is cordoned", lambda: cordoned(yard) == RACK)
        assert {mark["subject"] for mark in marks(yard).values()} == {"r01"}


def test_what_somebody_else_cordoned_or_works_on_is_left_alone(yard: Cluster) -> None:
    cordon(yard, "r01-t01", True)
    annotate(yard, "r01-t02", MAINTENANCE, "new firmware")
    with keeper(yard) as told:
        for node in RACK[:3]:
            say(yard, node, "rackyard.io/GPUFault")
            say(yard, node, "rackyard.io/NVLinkDown")
        told.wait("r01-t03", "Cordoned")
        assert "somebody else cordoned it" in told.wait("r01-t01", "FaultSeen")
        for node in RACK[:3]:
            say(yard, node, "rackyard.io/GPUFault", "False")
            say(yard, node, "rackyard.io/NVLinkDown", "False")
        told.wait("r01-t03", "Uncordoned")
        assert cordoned(yard) == ["r01-t01"] and not marks(yard)


def test_whoever_lifts_our_cordon_is_not_fought(yard: Cluster) -> None:
    with keeper(yard) as told:
        say(yard, "r01-t01", "rackyard.io/NICDown")
        told.wait("r01-t01", "Cordoned")
        cordon(yard, "r01-t01", False)
        told.wait("r01-t01", "Overruled")
        say(yard, "r02-t01", "rackyard.io/NICDown")
        told.wait("r02-t01", "Cordoned")
        assert cordoned(yard) == ["r02-t01"] and marks(yard).keys() == {"r02-t01"}


def test_the_breaker_stops_it_and_says_so_once(yard: Cluster) -> None:
    with keeper(yard, Options(mode="act", share=0.2, heal_after=1.0)) as told:  # 6 of 12: a rack and two more
        for node in [*RACK, "r02-t01", "r03-t01"]:
            say(yard, node, "rackyard.io/GPUFault")
        until("six are cordoned", lambda: len(cordoned(yard)) == 6)
        say(yard, "r02-t02", "rackyard.io/GPUFault")
        assert "7 of 12 is over the limit of 6" in told.wait("r02-t02", "BreakerOpen")
        until("the node says so", lambda: "BreakerOpen" in events(yard, "r02-t02"))
        assert len(cordoned(yard)) == 6
        say(yard, "r03-t01", "rackyard.io/GPUFault", "False")
        told.wait("r02-t02", "Cordoned")
        assert len([word for _, word, _ in told.lines if word == "BreakerOpen"]) == 1


def test_whoever_comes_after_a_crash_knows_what_is_ours(yard: Cluster) -> None:
    with keeper(yard) as told:
        say(yard, "r01-t01", "rackyard.io/GPUFault")
        told.wait("r01-t01", "Cordoned")
    cordon(yard, "r01-t02", True)
    say(yard, "r01-t01", "rackyard.io/GPUFault", "False")
    say(yard, "r01-t03", "rackyard.io/GPUFault")
    with keeper(yard) as told:
        told.wait("r01-t03", "Cordoned")
        told.wait("r01-t01", "Uncordoned")
        assert cordoned(yard) == ["r01-t02", "r01-t03"]


def test_the_api_server_may_restart(yard: Cluster) -> None:
    with keeper(yard, disturbed=True) as told:
        say(yard, "r01-t01", "rackyard.io/GPUFault")
        told.wait("r01-t01", "Cordoned")
        yard.restart("kube-apiserver", hard=True)
        say(yard, "r01-t01", "rackyard.io/GPUFault", "False")
        say(yard, "r01-t02", "rackyard.io/GPUFault")
        told.wait("r01-t02", "Cordoned")
        told.wait("r01-t01", "Uncordoned")
