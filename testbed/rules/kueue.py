"""Cases before Kueue: a Workload for each gang, as Kueue makes one of a Job, and the topology that it was assigned."""

from collections.abc import Sequence
from typing import Any

from rackyard.fabric.labelkeys import shipped
from rackyard.fabric.writers.kueue import HOSTNAME, levels
from testbed import Cluster, Options
from testbed.api import until
from testbed.nodes import GPU
from testbed.rules import objects
from testbed.rules.cases import Ask, Case, Seated

API = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS = f"{API}/namespaces/default/workloads"
OPTIONS = Options(name="rules", load=True)
_PENDING = "couldn't assign flavors"


def ask_all(bed: Cluster, cases: Sequence[Case]) -> dict[tuple[int, int], Seated]:
    """Where each gang went, by case number and the gang's place in its case; all cases are side by side."""
    objects.settle(bed.api, cases)
    bed.api.many(lambda case: _queue(bed, case), cases)
    until("queues", lambda: all(map(_active, bed.api.items(f"{API}/clusterqueues"))))
    found: dict[tuple[int, int], Seated] = {}
    for at in range(objects.MOST_GANGS):
        found |= _round(bed, [case for case in cases if at < len(case.asks)], at)
    kinds = ("namespaces/default/localqueues", "clusterqueues", "resourceflavors", "topologies")
    objects.clear(bed.api, WORKLOADS, *(f"{API}/{kind}" for kind in kinds))
    return found


def _queue(bed: Cluster, case: Case) -> None:
    """Flavor, topology and queues of a case, called after it; the flavor has its nodes only."""
    name = case.site.name
    keys = [{"nodeLabel": key} for key in levels(case.site, shipped())]
    _post(bed, "topologies", "Topology", name, {"levels": keys})
    flavor = {"nodeLabels": {objects.CASE: case.prefix + "nodes"}, "topologyName": name}
    _post(bed, "resourceflavors", "ResourceFlavor", name, flavor)
    covered = [GPU, *objects.ROUNDS]
    quota = [{"name": each, "nominalQuota": 1000} for each in covered]
    group = {"coveredResources": covered, "flavors": [{"name": name, "resources": quota}]}
    queue = {"namespaceSelector": {}, "resourceGroups": [group]}
    _post(bed, "clusterqueues", "ClusterQueue", name, queue)
    _post(bed, "namespaces/default/localqueues", "LocalQueue", name, {"clusterQueue": name})


def _post(bed: Cluster, path: str, kind: str, name: str, spec: dict[str, Any]) -> None:
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}}
    bed.api.post(f"{API}/{path}", {**head, "spec": spec})


def _active(queue: dict[str, Any]) -> bool:
    conditions = queue.get("status", {}).get("conditions", ())
    return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)


def _round(bed: Cluster, cases: Sequence[Case], at: int) -> dict[tuple[int, int], Seated]:
    """One gang of each case; those that were not admitted are taken away."""
    if not cases:
        return {}
    objects.post(bed.api, WORKLOADS, (_workload(case, at) for case in cases))
    waiting = {objects.gang_name(case, at): case for case in cases}
    found: dict[tuple[int, int], Seated] = {}

    def check() -> bool:
        for workload in bed.api.items(WORKLOADS):
            case = waiting.get(workload["metadata"]["name"])
            seated = None if case is None else _seated(workload)
            if case is not None and seated is not None:
                found[case.number, at] = {node.removeprefix(case.prefix): pods for node, pods in seated.items()}
        return len(found) == len(cases)

    until(f"gang {at} of {len(cases)} cases", check, timeout=180, pause=0.5)
    for (number, _), seated in found.items():
        if not seated:
            bed.api.delete(f"{WORKLOADS}/c{number:03d}-g{at}")
    return found


def _workload(case: Case, at: int) -> dict[str, Any]:
    ask = case.asks[at]
    spec = {**objects.pod_spec(case, at, ask), "restartPolicy": "Never"}
    domain = levels(case.site, shipped())[-2]
    group = {"name": "main", "count": ask.pods, "template": {"spec": spec}, "topologyRequest": _topology(ask, domain)}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": objects.gang_name(case, at)},
        "spec": {"queueName": case.site.name, "podSets": [group]},
    }


def _topology(ask: Ask, domain: str) -> dict[str, Any]:
    if ask.mode == "required":
        return {"required": domain}
    parts = {"podSetSliceRequiredTopology": domain, "podSetSliceSize": ask.part} if ask.part else {}
    return {"preferred": domain, **parts}


def _seated(workload: dict[str, Any]) -> dict[str, int] | None:
    """Pods on each node; none for a Workload that was looked at and not admitted, None for one that waits its turn."""
    status = workload.get("status", {})
    if "admission" in status:
        (assigned,) = status["admission"]["podSetAssignments"]
        return _decoded(assigned["topologyAssignment"])
    for each in status.get("conditions", ()):
        if each["type"] == "QuotaReserved" and each["status"] == "False" and _PENDING in each.get("message", ""):
            return {}
    return None


def _decoded(assignment: dict[str, Any]) -> dict[str, int]:
    """Host names and pods of a TopologyAssignment (v1beta2): names are prefix + root + suffix, or the same for all."""
    assert assignment["levels"] == [HOSTNAME]
    found: dict[str, int] = {}
    for part in assignment["slices"]:
        (names,) = part["valuesPerLevel"]
        each = names.get("individual", {})
        before, after = each.get("prefix", ""), each.get("suffix", "")
        hosts = [before + root + after for root in each["roots"]] if each else [names["universal"]]
        counts = part["podCounts"]
        pods = counts["individual"] if "individual" in counts else [counts["universal"]] * len(hosts)
        found |= dict(zip(hosts, pods, strict=True))
    return found
