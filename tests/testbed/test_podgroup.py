"""The exported PodGroup before the kube-scheduler of Kubernetes 1.36, with the feature gates that it needs."""

from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.testbed.conftest import Needs
from tests.testbed.work import PODS, pod

from rackyard.fabric.simulate import simulate
from rackyard.fabric.writers.podgroup import API_VERSION, GATES, write
from testbed import Cluster, Options, cluster, nodes
from testbed.api import Refused, until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

SITE = simulate(racks=3, trays=4)
GROUPS = f"/apis/{API_VERSION}/namespaces/default/podgroups"
_ON = f"--feature-gates={','.join(f'{gate}=true' for gate in GATES)}"
_FLAGS = {
    "kube-apiserver": (_ON, f"--runtime-config={API_VERSION}=true"),
    "kube-scheduler": (_ON,),
    "kube-controller-manager": (_ON,),
}


@pytest.fixture(scope="module")
def gated(needs_testbed: Needs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three racks of four trays; one tray each of the first two is in use."""
    needs_testbed(("kwok",))
    folder = tmp_path_factory.mktemp("podgroup") / "cluster"
    with cluster(folder, parts=("kwok",), options=Options(flags=_FLAGS)) as bed:
        nodes.create(bed, SITE)
        for at, node in enumerate(("r01-t01", "r02-t02")):
            body = pod(f"busy-{at}", {})
            bed.api.post(PODS, {**body, "spec": {**body["spec"], "nodeName": node}})
        until("two trays in use", lambda: [each["status"]["phase"] for each in bed.api.items(PODS)] == ["Running"] * 2)
        yield bed


def gang(bed: Cluster, name: str) -> list[dict[str, Any]]:
    """The exported example by another name, with its pods."""
    (body,) = YAML(typ="safe", pure=True).load_all(write(SITE))
    body["metadata"]["name"] = name
    bed.api.post(GROUPS, body)
    size = body["spec"]["schedulingPolicy"]["gang"]["minCount"]
    for at in range(size):
        made = pod(f"{name}-{at}", {})
        made["metadata"]["labels"] = {"gang": name}
        made["spec"]["schedulingGroup"] = {"podGroupName": name}
        bed.api.post(PODS, made)
    return pods(bed, name)


def pods(bed: Cluster, name: str) -> list[dict[str, Any]]:
    return bed.api.items(PODS, labelSelector=f"gang={name}")


def told(bed: Cluster, name: str) -> dict[str, str]:
    conditions = bed.api.get(f"{GROUPS}/{name}").get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "PodGroupScheduled"), {})


def test_a_gang_lands_in_the_one_domain_that_holds_it_and_the_next_one_waits(gated: Cluster) -> None:
    assert len(gang(gated, "first")) == 4
    until("the gang is bound", lambda: all(each["spec"].get("nodeName") for each in pods(gated, "first")))
    assert {each["spec"]["nodeName"].partition("-")[0] for each in pods(gated, "first")} == {"r03"}
    gang(gated, "second")
    until("the scheduler says why", lambda: told(gated, "second").get("reason") == "Unschedulable")
    assert not any(each["spec"].get("nodeName") for each in pods(gated, "second"))


def test_a_second_level_is_refused(gated: Cluster) -> None:
    (body,) = YAML(typ="safe", pure=True).load_all(write(SITE))
    body["spec"]["schedulingConstraints"]["topology"].append({"key": "rackyard.io/tier-1"})
    with pytest.raises(Refused, match="at most 1 item"):
        gated.api.post(GROUPS, body)
