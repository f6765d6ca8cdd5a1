"""The Node and Lease objects of simulated trays."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rackyard.fabric import Health, Node, Site
from rackyard.fabric.labelkeys import shipped
from rackyard.fabric.labels import labels_of
from testbed.kubelet.environ import ADDRESS
from testbed.kubelet.faults import Faults
from testbed.kubelet.lifecycle import stamp
from testbed.kubelet.podspec import GPU

VERSION = "v1.36.3"
LEASES = "kube-node-lease"

_CPUS, _MEMORY_GIB = 144, 960  # of a GB300 tray; simulated as the rest
_ALWAYS = {
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "arm64",
    "nvidia.com/gpu.present": "true",
    "rackyard.io/simulated": "true",
}


def usable_gpus(node: Node) -> tuple[int, ...]:
    """The indices of the GPUs that pods may be given: those that are well."""
    return tuple(gpu.index for gpu in node.gpus if gpu.health is Health.HEALTHY)


def labels(site: Site) -> dict[str, dict[str, str]]:
    """Each node's labels: the product's, those that other components read from the fabric, and the usual ones."""
    table = shipped()
    found = labels_of(site, table.written(table.groups()))
    for node in site.nodes:
        mine = found[node.name]
        mine |= _ALWAYS | {"kubernetes.io/hostname": node.name}
        if not node.domain.is_own:
            mine["nvidia.com/gpu.clique"] = str(node.domain)  # GPU feature discovery sets it on real trays
    return found


def node_object(
    node: Node, its_labels: Mapping[str, str], faults: Faults, now: float, port: int | None = None
) -> dict[str, Any]:
    """What is registered; `port` is where logs are served. Kubernetes wants both capacity and what of it may be
    used; GPUs differ when some are sick.
    """
    whole = {"cpu": str(_cpus(node)), "memory": f"{_MEMORY_GIB}Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": dict(its_labels),
            "annotations": {"rackyard.io/kubelet": "processes on one machine; this node is simulated"},
        },
        "spec": {"unschedulable": True} if node.cordoned else {},
        "status": {
            "capacity": whole | {GPU: str(len(node.gpus))},
            "allocatable": whole | {GPU: str(len(usable_gpus(node)))},
            "addresses": [{"type": "InternalIP", "address": ADDRESS}],
            "nodeInfo": _INFO,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}} if port else {},
            "conditions": conditions(faults, now, now),
        },
    }


def conditions(faults: Faults, since: float, now: float) -> list[dict[str, Any]]:
    """The node's conditions; those of the kubelet itself are as of `since`."""
    own = (
        ("Ready", "True", "KubeletReady", "the process kubelet runs (simulated node)"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "simulated"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "simulated"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "simulated"),
    )
    said = [(*one, since) for one in own]
    said += [(kind, one.status, one.reason, one.message, one.at) for kind, one in sorted(faults.conditions.items())]
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": stamp(at),
            "lastHeartbeatTime": stamp(now),
        }
        for kind, status, reason, message, at in said
    ]


def lease_object(node: str, seconds: int, now: float) -> dict[str, Any]:
    """The node's heartbeat (coordination.k8s.io/v1); its time is a MicroTime."""
    renewed = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": LEASES},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": seconds, "renewTime": renewed},
    }


_INFO = {
    "architecture": "arm64",
    "operatingSystem": "linux",
    "kubeletVersion": VERSION,
    "kubeProxyVersion": "",
    "containerRuntimeVersion": "process://1",
    "osImage": "simulated",
    "kernelVersion": "simulated",
    "machineID": "",
    "systemUUID": "",
    "bootID": "",
}


def _cpus(node: Node) -> int:
    count = 0
    for cpu in node.cpus:
        for part in cpu.cpus.split(","):
            first, _, last = part.partition("-")
            if first.isdigit():
                count += int(last or first) - int(first) + 1
    return count or _CPUS
