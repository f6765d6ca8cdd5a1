"""What priorities and queues do by themselves for pods that are gated first and then pinned, with each scheduler."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.testbed.conftest import Needs
from tests.testbed.work import PODS, template

from rackyard.fabric.simulate import simulate
from testbed import Cluster, Options, cluster, nodes
from testbed.api import until
from testbed.nodes import GPU

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
EVENTS = "/api/v1/namespaces/default/events"
GATE = "rackyard.io/placement"
RACK = [f"r01-t0{number}" for number in range(1, 5)]
"""The site: one rack of four trays."""

PREEMPTING = """\
actions: "enqueue, allocate, preempt, reclaim"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
{overcommit}
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""


@contextmanager
def rack(folder: Path, overcommit: bool = False) -> Iterator[Cluster]:
    text = PREEMPTING.replace("{overcommit}", "  - name: overcommit" if overcommit else "")
    options = Options(volcano=text, flags={"vc-scheduler": ("--schedule-period=250ms",)})
    with cluster(folder, parts=("kwok", "volcano"), options=options) as bed:
        nodes.create(bed, simulate(racks=1, trays=4))
        for name, value in (("low", 10), ("high", 1000)):
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            bed.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {**kind, "value": value})
        yield bed


@pytest.fixture(scope="module")
def bed(needs_testbed: Needs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_testbed(("kwok", "volcano"))
    with rack(tmp_path_factory.mktemp("priority") / "cluster") as found:
        yield found


@pytest.fixture(scope="module")
def committed(needs_testbed: Needs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With the plugin overcommit, as Volcano is shipped."""
    needs_testbed(("kwok", "volcano"))
    with rack(tmp_path_factory.mktemp("overcommit") / "cluster", overcommit=True) as found:
        yield found


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for name in ("bed", "committed"):
        if name in request.fixturenames:
            found: Cluster = request.getfixturevalue(name)
            found.api.delete(GROUPS)
            found.api.delete(PODS, gracePeriodSeconds="0")
            until("an empty rack", lambda found=found: not found.api.items(PODS))  # type: ignore[misc]


def gang(bed: Cluster, name: str, size: int, priority: str, queue: str = "default", **spec: Any) -> None:
    """A PodGroup and its pods of a whole tray each; for Volcano. Its `minResources` are said as a Job's are."""
    sized = spec.pop("sized", True)
    for at in range(size):
        volcano = {"schedulerName": "volcano", "priorityClassName": priority, **spec}
        body = template({"scheduling.k8s.io/group-name": name}, **volcano)
        body["metadata"] |= {"name": f"{name}-{at}", "labels": {"gang": name}}
        bed.api.post(PODS, body)
    needs = {GPU: str(4 * size)}
    wants = {"minMember": size, "queue": queue, "priorityClassName": priority}
    wants |= {"minResources": needs} if sized else {}
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name}}
    bed.api.post(GROUPS, {**kind, "spec": wants})


GATED = [{"name": GATE}]


def pods(bed: Cluster, name: str) -> list[dict[str, Any]]:
    """Those of a gang that are not being deleted."""
    found = bed.api.items(PODS, labelSelector=f"gang={name}")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def where(bed: Cluster, name: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in pods(bed, name)]


def phase(bed: Cluster, name: str) -> str:
    return str(bed.api.get(f"{GROUPS}/{name}").get("status", {}).get("phase", ""))


def release(bed: Cluster, name: str, to: list[str], nominate: bool = True) -> None:
    """As the controller does it: nominated, then pinned and let go in one PATCH."""
    for pod, node in zip(pods(bed, name), to, strict=True):
        path = f"{PODS}/{pod['metadata']['name']}"
        if nominate:
            bed.api.patch(f"{path}/status", {"status": {"nominatedNodeName": node}})
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        need = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        bed.api.patch(path, {"spec": {"affinity": {"nodeAffinity": need}, "schedulingGates": None}})


def runs(bed: Cluster, name: str, to: list[str]) -> Callable[[], bool]:
    return lambda: where(bed, name) == to


def test_kube_scheduler_preempts_for_a_pinned_pod_once_it_is_let_go(bed: Cluster) -> None:
    low = template({}, priorityClassName="low", nodeSelector={"kubernetes.io/hostname": RACK[0]})
    low["metadata"] |= {"name": "low-0", "labels": {"gang": "low"}}
    bed.api.post(PODS, low)
    until("the low one is bound", runs(bed, "low", [RACK[0]]))
    high = template({}, priorityClassName="high", schedulingGates=GATED)
    high["metadata"] |= {"name": "high-0", "labels": {"gang": "high"}}
    bed.api.post(PODS, high)
    release(bed, "high", [RACK[0]], nominate=False)
    until("the high one is bound", runs(bed, "high", [RACK[0]]))
    assert pods(bed, "low") == []


def test_a_queue_over_its_capability_keeps_the_second_gang_pending(bed: Cluster) -> None:
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "small"}}
    bed.api.post(QUEUES, {**kind, "spec": {"weight": 1, "reclaimable": True, "capability": {GPU: "12"}}})
    gang(bed, "first", 2, "low", "small")
    until("the first is bound", lambda: all(where(bed, "first")))
    gang(bed, "second", 2, "low", "small", schedulingGates=GATED)
    until("Volcano says why", lambda: "queue resource quota insufficient" in said(bed, "second"))
    assert phase(bed, "second") == "Pending"
    bed.api.delete(PODS, labelSelector="gang=first", gracePeriodSeconds="0")
    bed.api.delete(f"{GROUPS}/first")
    until("the second is let in", lambda: phase(bed, "second") == "Inqueue")


def said(bed: Cluster, group: str) -> str:
    """The messages of all events of a PodGroup, and of its conditions."""
    events = bed.api.items(EVENTS, fieldSelector=f"involvedObject.name={group}")
    conditions = bed.api.get(f"{GROUPS}/{group}").get("status", {}).get("conditions", ())
    return "\n".join(each.get("message", "") for each in (*events, *conditions))


def test_a_full_queue_keeps_a_gang_pending_whatever_its_priority(bed: Cluster) -> None:
    """Nothing is preempted for it: `preempt` looks at gangs that are let in. A Job's PodGroup says `minResources`."""
    gang(bed, "low", 4, "low")
    until("the low one is bound", lambda: all(where(bed, "low")))
    gang(bed, "high", 2, "high", schedulingGates=GATED)
    until("Volcano says why", lambda: "queue resource quota insufficient" in said(bed, "high"))
    assert phase(bed, "high") == "Pending"


def test_volcano_preempts_for_a_pinned_nominated_gang_that_is_let_in(bed: Cluster) -> None:
    """Without `minResources` it is let into a full queue."""
    gang(bed, "low", 4, "low")
    until("the low one is bound", lambda: all(where(bed, "low")))
    gang(bed, "high", 2, "high", schedulingGates=GATED, sized=False)
    until("the high one is let in", lambda: phase(bed, "high") == "Inqueue")
    release(bed, "high", RACK[1:3])
    until("the high one is bound", runs(bed, "high", RACK[1:3]))
    assert not {*where(bed, "low")} & {*RACK[1:3]}


def test_overcommit_keeps_a_gang_out_of_a_full_cluster_whatever_its_priority(committed: Cluster) -> None:
    gang(committed, "low", 4, "low")
    until("the low one is bound", lambda: all(where(committed, "low")))
    gang(committed, "high", 2, "high", schedulingGates=GATED)
    until("Volcano says why", lambda: "resource in cluster is overused" in said(committed, "high"))
    assert phase(committed, "high") == "Pending"


def test_volcano_reclaims_for_a_pinned_nominated_gang_of_another_queue(bed: Cluster) -> None:
    """Queues of equal weight deserve two trays each: the one that has all four gives back, whatever the priority."""
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "other"}}
    bed.api.post(QUEUES, {**kind, "spec": {"weight": 1, "reclaimable": True}})
    gang(bed, "much", 4, "low")
    until("the first is bound", lambda: all(where(bed, "much")))
    gang(bed, "due", 2, "low", "other", schedulingGates=GATED)
    until("the second is let in", lambda: phase(bed, "due") == "Inqueue")
    release(bed, "due", RACK[1:3])
    until("the second is bound", runs(bed, "due", RACK[1:3]))
    assert not {*where(bed, "much")} & {*RACK[1:3]}
