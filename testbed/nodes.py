"""Simulated trays as nodes: what a Site says, as Kubernetes would be told by kubelets and GPU feature discovery."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rackyard.errors import UsageError
from rackyard.fabric.labelkeys import shipped
from rackyard.fabric.labels import labels_of
from rackyard.fabric.model import Node, Site
from rackyard.fabric.simulate import simulate
from rackyard.fabric.writers import kueue, volcano
from rackyard.fabric.writers.names import kubernetes_node
from testbed.api import YAML, Api, until
from testbed.cluster import Cluster

KWOK = {"kwok.x-k8s.io/node": "fake"}
"""The annotation of nodes that KWOK plays the kubelet of."""

GPU = "nvidia.com/gpu"
_NOT_READY = "node.kubernetes.io/not-ready"
_HYPERNODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
_KUEUE = {"Topology": "topologies", "ResourceFlavor": "resourceflavors"}


def site(file: Path | None, racks: int, trays: int = 18, racks_per_block: int = 0) -> Site | None:
    """The site of a file, or a simulated one; None for neither. UsageError for both, or for numbers out of range."""
    if file is not None and racks:
        raise UsageError("--site and --racks both say which nodes to make", fix="give one of them")
    if file is not None:
        from rackyard.fabric.yamlio import load

        return load(file.read_text(encoding="utf-8"), str(file))
    return simulate(racks, trays, racks_per_block=racks_per_block) if racks else None


def manifest(node: Node, labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    """A Node with a tray's GPUs, cores and memory, of which all can be allocated. It is Ready from the start: to become
    so, by KWOK's hand, would take the API server twice the time.
    """
    name = kubernetes_node(node.name)
    arch = "arm64" if any(cpu.arch == "arm64" for cpu in node.cpus) else "amd64"
    room = {
        GPU: str(len(node.gpus)),
        "cpu": str(sum(_cores(cpu.cpus) for cpu in node.cpus) or 64),
        "memory": "960Gi",
        "pods": "110",
    }
    usual = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": arch,
        "kubernetes.io/os": "linux",
        f"{GPU}.present": "true",
        f"{GPU}.count": str(len(node.gpus)),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**usual, **labels}, "annotations": dict(annotations)},
        "status": {
            "capacity": room,
            "allocatable": room,
            "nodeInfo": {"architecture": arch, "operatingSystem": "linux", "kubeletVersion": "testbed"},
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated", "message": "as KWOK would say"}],
        },
    }


def manifests(of: Site, annotations: Mapping[str, str]) -> list[dict[str, Any]]:
    """A Node for each node of the site, in its order, with the labels that `rackyard topo label` would write."""
    table = shipped()
    labels = labels_of(of, table.written(table.groups()))
    return [manifest(node, labels[node.name], annotations) for node in of.nodes]


def create(cluster: Cluster, of: Site) -> None:
    """Make the site's nodes with KWOK as their kubelet, and what the cluster's parts are told of the topology: the
    HyperNodes where Volcano runs, the Topology and ResourceFlavor where Kueue does. Returns when all are Ready.
    """
    parts = cluster.plan.options.parts
    if "kwok" not in parts:
        raise UsageError("nodes need KWOK to be Ready", where=str(cluster.folder), fix="start the cluster with kwok")
    create_nodes(cluster.api, manifests(of, KWOK))
    if "volcano" in parts:
        create_hypernodes(cluster.api, of)
    if "kueue" in parts:
        create_topology(cluster.api, of)
    await_ready(cluster.api, len(of.nodes))


def create_nodes(api: Api, objects: list[dict[str, Any]]) -> None:
    """POST each; nothing is waited for."""
    api.many(lambda body: api.post("/api/v1/nodes", body), objects)


def create_hypernodes(api: Api, of: Site) -> None:
    """Volcano's HyperNodes, as `rackyard topo export --to volcano` writes them."""
    api.many(lambda text: api.post(_HYPERNODES, text, YAML), _documents(volcano.write(of)))


def create_topology(api: Api, of: Site) -> None:
    """Kueue's Topology and ResourceFlavor, as `rackyard topo export --to kueue` writes them."""
    for text in _documents(kueue.write(of)):
        kind = next(line for line in text.decode().splitlines() if line.startswith("kind: "))[6:]
        api.post(f"/apis/kueue.x-k8s.io/v1beta2/{_KUEUE[kind]}", text, YAML)


def await_ready(api: Api, count: int, timeout: float = 300.0) -> None:
    """Wait until so many nodes are Ready. NotYet when that takes too long."""
    until(f"{count} nodes Ready", lambda: _ready(api) >= count, timeout, pause=0.3)


def _ready(api: Api) -> int:
    """Nodes that pods can go to: Ready, and without the taint that the controller manager then takes off."""
    return sum(
        any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", ()))
        and not any(taint["key"] == _NOT_READY for taint in node["spec"].get("taints", ()))
        for node in api.items("/api/v1/nodes", resourceVersion="0")
    )


def _documents(text: str) -> list[bytes]:
    """The documents of a YAML stream, without those that are only comments."""
    parts = text.split("\n---\n")
    return [part.encode() for part in parts if "\nkind: " in f"\n{part}"]


def _cores(cpus: str) -> int:
    """How many CPUs a list such as `0-71,144` names."""
    total = 0
    for span in filter(None, cpus.split(",")):
        first, _, last = span.partition("-")
        total += int(last or first) - int(first) + 1
    return total
