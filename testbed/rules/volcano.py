"""Cases before Volcano: a PodGroup with its pods for each gang, and where they were bound."""

from collections.abc import Iterator, Sequence
from typing import Any

from rackyard.fabric.tiers import tiers
from testbed import Cluster, Options
from testbed.api import until
from testbed.nodes import GPU
from testbed.rules import objects
from testbed.rules.cases import Ask, Case, Seated

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
PART = "volcano.sh/partition-id"

CONFIGURATION = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
    arguments: {leastrequested.weight: 0, balancedresource.weight: 0}
  - name: binpack
    arguments: {binpack.resources: nvidia.com/gpu}
  - name: network-topology-aware
    arguments: {hypernode.binpack.resources: nvidia.com/gpu}
"""
"""GPUs are what nodes and HyperNodes are packed by: left to itself Volcano looks at CPU and memory only, and spreads
pods over nodes about as much as it packs them.
"""

OPTIONS = Options(name="rules", load=True, volcano=CONFIGURATION, flags={"vc-scheduler": ("--schedule-period=250ms",)})
_REASON = "NotEnoughResources"


def ask_all(bed: Cluster, cases: Sequence[Case]) -> dict[tuple[int, int], Seated]:
    """Where each gang went, by case number and the gang's place in its case. Cases whose sites have as many tiers are
    side by side: nearness counts in shares of all tiers that there are in the cluster.
    """
    found: dict[tuple[int, int], Seated] = {}
    for height in sorted({_height(case) for case in cases}):
        together = [case for case in cases if _height(case) == height]
        bodies = [body for case in together for body in objects.hypernode_objects(case)]
        objects.settle(bed.api, together)
        objects.post(bed.api, objects.HYPERNODES, bodies)
        until("HyperNodes counted", lambda bodies=bodies: _counted(bed) >= len(bodies))  # type: ignore[misc]
        for at in range(objects.MOST_GANGS):
            found |= _round(bed, [case for case in together if at < len(case.asks)], at)
        objects.clear(bed.api, GROUPS, objects.HYPERNODES)
    return found


def _height(case: Case) -> int:
    return max(groups[0].tier for groups in tiers(case.site))


def _counted(bed: Cluster) -> int:
    return sum(bool(each.get("status", {}).get("nodeCount")) for each in bed.api.items(objects.HYPERNODES))


def _round(bed: Cluster, cases: Sequence[Case], at: int) -> dict[tuple[int, int], Seated]:
    """One gang of each case; those that were not admitted are taken away."""
    if not cases:
        return {}
    objects.post(bed.api, objects.PODS, (body for case in cases for body in _pods(case, at)))
    objects.post(bed.api, GROUPS, (_group(case, at) for case in cases))
    waiting = {objects.gang_name(case, at): case for case in cases}
    found: dict[tuple[int, int], Seated] = {}

    def check() -> bool:
        found.update(_decided(bed, waiting, at))
        return len(found) == len(cases)

    until(f"gang {at} of {len(cases)} cases", check, timeout=180, pause=0.5)
    for (number, _), seated in found.items():
        if not seated:
            name = f"c{number:03d}-g{at}"
            bed.api.delete(f"{GROUPS}/{name}")
            bed.api.delete(objects.PODS, labelSelector=f"{objects.GANG}={name}", gracePeriodSeconds="0")
    return found


def _decided(bed: Cluster, waiting: dict[str, Case], at: int) -> dict[tuple[int, int], Seated]:
    """Gangs that are bound as a whole, and those that Volcano found no room for with all their pods before it."""
    seats: dict[str, list[str]] = {name: [] for name in waiting}
    for pod in bed.api.items(objects.PODS, labelSelector=objects.GANG):
        name = pod["metadata"]["labels"][objects.GANG]
        if name in seats and "nodeName" in pod["spec"]:
            seats[name].append(pod["spec"]["nodeName"].removeprefix(waiting[name].prefix))
    refused = {group["metadata"]["name"] for group in bed.api.items(GROUPS) if _refused(group)}
    found: dict[tuple[int, int], Seated] = {}
    for name, case in waiting.items():
        size = case.asks[at].pods
        if len(seats[name]) == size:
            found[case.number, at] = {node: seats[name].count(node) for node in dict.fromkeys(seats[name])}
        elif not seats[name] and name in refused:
            found[case.number, at] = {}
    return found


def _refused(group: dict[str, Any]) -> bool:
    size = group["spec"]["minMember"]
    return any(
        (each["type"], each["status"], each.get("reason")) == ("Unschedulable", "True", _REASON)
        and f"{size} Pending, {size} minAvailable" in each.get("message", "")
        for each in group.get("status", {}).get("conditions", ())
    )


def _pods(case: Case, at: int) -> Iterator[dict[str, Any]]:
    ask, name = case.asks[at], objects.gang_name(case, at)
    for pod in range(ask.pods):
        labels = {objects.GANG: name} | ({PART: str(pod // ask.part)} if ask.part else {})
        notes = {"scheduling.k8s.io/group-name": name, "volcano.sh/task-spec": "w"}
        spec = {**objects.pod_spec(case, at, ask), "schedulerName": "volcano"}
        yield {"metadata": {"name": f"{name}-{pod:02d}", "labels": labels, "annotations": notes}, "spec": spec}


def _group(case: Case, at: int) -> dict[str, Any]:
    ask, name = case.asks[at], objects.gang_name(case, at)
    wants = {GPU: str(ask.pods * ask.gpus)} | ({objects.ROUNDS[at]: str(ask.pods)} if ask.apart else {})
    spec = {"minMember": ask.pods, "queue": "default", "minResources": wants, **_topology(ask, _height(case) + 1, name)}
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def _topology(ask: Ask, top: int, name: str) -> dict[str, Any]:
    if ask.mode == "soft":
        return {"networkTopology": {"mode": "soft"}}
    if ask.mode == "domain":
        return {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
    found: dict[str, Any] = {"networkTopology": {"mode": "hard", "highestTierAllowed": top}}
    if ask.part:
        part = {
            "name": "part",
            "labelSelector": {"matchLabels": {objects.GANG: name}},
            "matchLabelKeys": [PART],
            "subGroupSize": ask.part,
            "minSubGroups": ask.pods // ask.part,
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        }
        found["subGroupPolicy"] = [part]
    return found
