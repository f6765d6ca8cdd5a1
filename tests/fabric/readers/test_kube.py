"""Kubernetes nodes: labels of every component, health as far as Kubernetes knows it, every form that kubectl writes."""

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from ruamel.yaml import YAML

from rackyard.errors import SpecError, Where
from rackyard.fabric.facts import HostFact
from rackyard.fabric.labelkeys import load
from rackyard.fabric.model import Health
from rackyard.fabric.readers.kube_nodes import READER, parse
from rackyard.fabric.readers.reader import Capture

UUID = "12345678-1234-1234-1234-123456789abc"


def node(name: str, labels: dict[str, str], **more: Any) -> dict[str, Any]:
    status = {
        "capacity": {"cpu": "144", "nvidia.com/gpu": "4"},
        "allocatable": {"cpu": "143", "nvidia.com/gpu": more.pop("gpus", "4")},
        "conditions": [
            {"type": "DiskPressure", "status": "False"},
            {"type": "Ready", "status": more.pop("ready", "True")},
        ],
        "nodeInfo": {"kernelVersion": "6.8.0-1030-nvidia-64k"},
    }
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name} | labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": more, "status": status}


def listed(*nodes: dict[str, Any]) -> bytes:
    return json.dumps({"apiVersion": "v1", "items": list(nodes), "kind": "List"}, indent=4).encode()


def hosts(data: bytes) -> list[HostFact]:
    assert READER.knows(data[:4096].decode(), "nodes")
    return READER.read(Capture("nodes", data)).hosts


def one(labels: dict[str, str], **more: Any) -> HostFact:
    (found,) = hosts(listed(node("t1", labels, **more)))
    return found


def test_gpu_feature_discovery() -> None:
    labels = {
        "nvidia.com/gpu.clique": f"{UUID}.32766",
        "nvidia.com/gpu.product": "NVIDIA-GB200",
        "nvidia.com/cuda.driver.major": "570",
        "nvidia.com/cuda.driver.minor": "124",
        "nvidia.com/cuda.driver.rev": "06",
    }
    fact = one(labels)
    assert (fact.cluster_uuid, fact.clique_id, fact.block) == (UUID, 32766, None)
    assert (fact.product, fact.driver, fact.kernel) == ("NVIDIA-GB200", "570.124.06", "6.8.0-1030-nvidia-64k")
    assert fact.labels == (("nvidia.com/gpu.clique", f"{UUID}.32766"),)
    assert one({"nvidia.com/cuda.driver-version.full": "580.1.2"}).driver == "580.1.2"


@pytest.mark.parametrize(
    ("labels", "block", "tiers", "rack"),
    [
        (
            {
                "fabric.topograph.run/tier-1": "spine",
                "fabric.topograph.run/tier-0": "leaf",
                "accelerator.topograph.run/domain": "nvl1",
            },
            "nvl1",
            ("leaf", "spine"),
            None,
        ),
        (
            {
                "network.topology.nvidia.com/leaf": "l",
                "network.topology.nvidia.com/spine": "s",
                "network.topology.nvidia.com/core": "c",
                "network.topology.nvidia.com/accelerator": "nvl1",
            },
            "nvl1",
            ("l", "s", "c"),
            None,
        ),
        (
            {
                "topology.k8s.aws/network-node-layer-1": "nn-top",
                "topology.k8s.aws/network-node-layer-2": "nn-mid",
                "topology.k8s.aws/network-node-layer-3": "nn-low",
                "topology.k8s.aws/ultraserver-id": "us-1",
            },
            "us-1",
            ("nn-low", "nn-mid", "nn-top"),
            None,
        ),
        (
            {
                "oci.oraclecloud.com/host.gpu_memory_fabric_id": "fab",
                "oci.oraclecloud.com/host.rack_id": "rack",
                "oci.oraclecloud.com/rdma.local_block_id": "lb",
                "oci.oraclecloud.com/rdma.network_block_id": "nb",
                "oci.oraclecloud.com/rdma.hpc_island_id": "hi",
            },
            "fab",
            ("lb", "nb", "hi"),
            "rack",
        ),
        (
            {"cloud.google.com/gce-topology-block": "b", "cloud.google.com/gce-topology-subblock": "sb"},
            None,
            ("sb", "b"),
            None,
        ),
        ({"ds.coreweave.com/nvlink.domain": "DH4"}, "DH4", (), None),
    ],
)
def test_keys_of_others(labels: dict[str, str], block: str | None, tiers: tuple[str, ...], rack: str | None) -> None:
    fact = one(labels)
    assert (fact.block, fact.tiers, fact.rack) == (block, tiers, rack)


def test_our_own_keys() -> None:
    labels = {
        "domain": f"{UUID}.1",
        "clique": "1",
        "rack": "r01",
        "chassis": "1820",
        "slot": "12",
        "tray": "3",
        "tier-0": "r01",
    }
    fact = one({f"rackyard.io/{key}": value for key, value in labels.items()})
    assert (fact.cluster_uuid, fact.clique_id) == (UUID, 1)
    assert (fact.rack, fact.chassis, fact.slot, fact.tray, fact.tiers) == ("r01", "1820", 12, 3, ("r01",))
    assert one({"rackyard.io/domain": "node.t1.0"}).cluster_uuid is None


TABLE = """\
[[alias]]
key = "example.com/row"
group = "mine"
fact = "rack"
write = "never"
meaning = "Row of racks."
source = "ours"
"""


def test_a_site_s_own_table() -> None:
    table = load(TABLE)
    facts = parse(Capture("n", listed(node("t1", {"example.com/row": "7"}))), table)
    assert facts.hosts[0].rack == "7"


def test_labels_that_contradict_each_other_are_both_told() -> None:
    found = hosts(listed(node("t1", {"nvidia.com/gpu.clique": "u.1", "accelerator.topograph.run/domain": "u.2"})))
    assert {(fact.clique_id, fact.source.text) for fact in found} == {
        (1, "nvidia.com/gpu.clique: u.1"),
        (2, "accelerator.topograph.run/domain: u.2"),
    }


def test_health() -> None:
    assert one({}).health is Health.HEALTHY
    assert one({}, gpus="3").health is Health.DEGRADED
    assert one({}, ready="False").health is Health.DOWN
    assert one({}, ready="Unknown").health is Health.UNKNOWN
    bare = node("t1", {"nvidia.com/gpu.clique": "u.1"})
    del bare["status"]["capacity"]
    assert hosts(listed(bare))[0].health is None  # a kubelet that is ready knows nothing of GPUs
    del bare["status"]
    assert hosts(listed(bare))[0].health is None


def test_cordons() -> None:
    assert one({}).cordoned is None
    taints = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "site/repair", "value": "fan", "effect": "NoExecute"},
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    ]
    assert one({}, unschedulable=True, taints=taints).cordoned == "unschedulable in Kubernetes (site/repair=fan)"
    assert one({}, unschedulable=True).cordoned == "unschedulable in Kubernetes"
    assert one({}, taints=taints).cordoned is None


def test_every_form_that_kubectl_writes() -> None:
    nodes = [node("t1", {"rackyard.io/rack": "a"}), node("t2", {"rackyard.io/rack": "b"}, unschedulable=True)]
    raw = json.dumps({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": nodes}).encode()
    lines = b"\n".join(json.dumps(entry).encode() for entry in nodes) + b"\n"
    text = StringIO()
    YAML(typ="safe", pure=True).dump({"apiVersion": "v1", "items": nodes, "kind": "List"}, text)
    documents = StringIO()
    YAML(typ="safe", pure=True).dump_all(nodes, documents)
    wanted = [(fact.node, fact.rack, fact.health, fact.cordoned) for fact in hosts(listed(*nodes))]
    for form in (raw, lines, text.getvalue().encode(), documents.getvalue().encode()):
        assert [(fact.node, fact.rack, fact.health, fact.cordoned) for fact in hosts(form)] == wanted
    assert [fact.node for fact in hosts(json.dumps(nodes[0]).encode())] == ["t1"]


def test_lines_are_those_of_the_nodes() -> None:
    data = listed(node("t1", {}), node("t2", {}))
    found = hosts(data)
    for fact in found:
        assert fact.source.line is not None
        below = data.decode().split("\n")[fact.source.line - 1 :]
        assert below[0].strip() == "{"
        assert f'"name": "{fact.node}"' in "\n".join(below[:6])


def test_nodes_without_gpus_are_left_out_unless_there_are_no_others() -> None:
    plain = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "login"}}
    assert [fact.node for fact in hosts(listed(plain, node("t1", {})))] == ["t1"]
    assert [fact.node for fact in hosts(listed(plain))] == ["login"]


@pytest.mark.parametrize(
    ("data", "where", "says"),
    [
        (b'{"kind": "NodeList",\n "items": [}', Where("n", 2, 12), "not JSON"),
        (b'{"kind": "NodeList",\n "items": [{"metadata": {"name": 7}}]}', Where("n", 2), "metadata.name"),
        (b'{"kind": "Pod"}', Where("n", 1), "Pod"),
        (b"kind: Node\nmetadata: {labels: {}}\n", Where("n", 1), "name"),
        (b"kind: Node\nmetadata: [\n", Where("n", 3, 1), "not valid YAML"),
        (
            b"kind: Node\nmetadata: {name: a}\n---\nkind: Node\nmetadata: {name: b}}\n",
            Where("n", 5, 20),
            "not valid YAML",
        ),
    ],
)
def test_mistakes_are_shown_where_they_are(data: bytes, where: Where, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(Capture("n", data))
    assert says in str(caught.value)
    assert caught.value.where == where


def test_it_knows_its_own() -> None:
    assert READER.knows("apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n", "x")
    assert not READER.knows('{"kind": "PodList"}', "x")
    assert not READER.knows('{"compute-nodes": []}', "x")


def test_fuzz(fuzz: Callable[..., None]) -> None:
    nodes = [node("t1", {"nvidia.com/gpu.clique": f"{UUID}.1"}), node("t2", {}, unschedulable=True)]
    lines = b"\n".join(json.dumps(entry).encode() for entry in nodes)
    fuzz(lambda data: parse(Capture("f", data)), [listed(*nodes), lines])


def test_fuzz_yaml(fuzz: Callable[..., None]) -> None:
    seed = b"kind: Node\nmetadata: {name: a, labels: {rackyard.io/rack: r1}}\nspec: {unschedulable: true}\n"
    parse(Capture("f", seed))
    fuzz(lambda data: parse(Capture("f", data)), [seed + b"---\nkind: Node\n"])
