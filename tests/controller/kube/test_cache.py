"""What the watches have told, and which gangs changed by it."""

from typing import Any

import msgspec
import pytest
from tests.controller.kube.test_gangs import group as pod_group
from tests.controller.kube.test_gangs import pod

from rackyard.backends.kubernetes.watch import Gone, Key, Put
from rackyard.controller.kube.cache import Cache
from rackyard.controller.kube.gangs import Gang, Unready
from rackyard.controller.kube.objects import FAULT, GANG, GPU, GangPlan, Node, Pod, PodGroup


def at(found: Any, version: int | str, **meta: Any) -> Any:
    """The object at that resource version."""
    changed = msgspec.structs.replace(found.metadata, resource_version=str(version), **meta)
    return msgspec.structs.replace(found, metadata=changed)


def node(*, version: int = 1, gpus: int = 4, ready: str = "True", **more: Any) -> Node:
    annotations = {FAULT: "{}"} if more.get("fault") else {}
    meta = {"name": "n", "resourceVersion": str(version), "annotations": annotations}
    status = {"allocatable": {GPU: str(gpus)}, "conditions": [{"type": "Ready", "status": ready}]}
    spec = {"unschedulable": more.get("cordoned", False)}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Node)


def plan(version: int, phase: str = "Planned", uid: str = "p") -> GangPlan:
    meta = {"name": "g-1", "namespace": "ml", "uid": uid, "resourceVersion": str(version)}
    spec = {"gang": "g", "attempt": 1, "siteDigest": "d", "members": []}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": phase}}, GangPlan)


def loaded() -> Cache:
    cache = Cache()
    for number in (0, 1):
        assert cache.put(at(pod(f"g-{number}"), 5))
    return cache


def test_pods_make_a_gang_that_is_looked_at_when_one_of_them_changes() -> None:
    cache = loaded()
    assert cache.changed() == {"ml/g"}
    assert isinstance(cache.gangs()["ml/g"], Gang) and not cache.changed()
    assert cache.put(at(pod("g-1", size=3), 6))
    assert cache.changed() == {"ml/g"} and isinstance(cache.gangs()["ml/g"], Unready)
    assert {each.metadata.name for each in cache.members("ml/g")} == {"g-0", "g-1"} and cache.members("ml/x") == []


def test_an_older_version_is_not_believed_but_for_an_object_made_anew() -> None:
    """The answer to a write comes before the watch tells of what was before it."""
    cache = loaded()
    cache.gangs()
    assert cache.put(at(pod("g-0", gates=()), 9))
    assert not cache.put(at(pod("g-0"), 8))
    assert not cache.pods[Key("ml", "g-0")].gated
    assert cache.put(at(pod("g-0"), 3, uid="new"))
    assert cache.pods[Key("ml", "g-0")].metadata.uid == "new"
    assert cache.put(plan(9, "Ended")) and not cache.put(plan(8, "Bound")) and cache.put(plan(2, uid="q"))
    assert cache.plans[Key("ml", "g-1")].metadata.uid == "q"


def test_a_version_that_is_no_number_counts_as_new() -> None:
    cache = Cache()
    assert cache.put(at(pod("g-0"), "abc")) and cache.put(at(pod("g-0"), "abd"))


def test_a_pod_that_changes_its_gang_leaves_the_other() -> None:
    cache = loaded()
    cache.gangs()
    assert cache.put(at(pod("g-1", labels={GANG: "h"}), 6))
    assert cache.changed() == {"ml/g", "ml/h"}
    found = cache.gangs()
    assert {key: gang.reason for key, gang in found.items() if isinstance(gang, Unready)} == {
        "ml/g": "MembersMissing",
        "ml/h": "MembersMissing",
    }


@pytest.mark.parametrize("last", [0, 1])
def test_a_gang_is_gone_with_its_last_pod_and_also_when_that_leaves_it(last: int) -> None:
    cache = loaded()
    cache.gangs()
    assert cache.heed(Gone(Key("ml", "g-0"), ""), Pod)
    if last:
        assert cache.put(at(pod("g-1", labels={GANG: "h"}), 6))
        assert set(cache.gangs()) == {"ml/h"}
    else:
        assert cache.heed(Gone(Key("ml", "g-1"), ""), Pod)
        assert cache.gangs() == {}
    assert not cache.heed(Gone(Key("ml", "g-0"), ""), Pod), "nothing more to forget"


def test_of_other_pods_only_where_they_are_matters() -> None:
    cache = Cache()

    def other(version: int, node: str = "", phase: str = "Pending") -> Pod:
        meta = {"name": "x", "namespace": "ml", "uid": "x", "resourceVersion": str(version)}
        return msgspec.convert({"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}, Pod)

    assert cache.put(other(1)) and not cache.put(other(2)) and cache.put(other(3, "n"))
    assert not cache.put(other(4, "n", "Running")) and cache.put(other(5, "n", "Succeeded"))
    assert cache.gangs() == {}


def test_of_a_node_only_what_decisions_need_matters() -> None:
    cache = Cache()
    assert cache.heed(Put(node()), Node) and not cache.heed(Put(node(version=2)), Node)
    for changed in (node(cordoned=True), node(ready="Unknown"), node(gpus=3), node(fault=True)):
        assert cache.put(changed) and cache.put(node())
    assert cache.heed(Gone(Key("", "n"), ""), Node) and not cache.heed(Gone(Key("", "n"), ""), Node)


def test_a_plan_that_is_gone_matters() -> None:
    cache = Cache()
    assert cache.heed(Put(plan(1)), GangPlan) and cache.heed(Gone(Key("ml", "g-1"), ""), GangPlan)
    assert not cache.plans


def test_a_pod_group_that_changes_is_news_of_its_gang_alone() -> None:
    cache = Cache(queues=True)
    named = {"scheduling.k8s.io/group-name": "pg"}
    for number in (0, 1):
        made = pod(f"g-{number}", size=None, annotations=named)
        cache.put(msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, scheduler_name="volcano")))
    cache.put(pod("h-0", labels={GANG: "h"}))
    assert isinstance(found := cache.gangs()["ml/g"], Unready) and found.reason == "UnknownSize", "not made yet"
    assert cache.heed(Put(pod_group("Pending")), PodGroup)
    assert cache.changed() == {"ml/g"}
    assert isinstance(found := cache.gangs()["ml/g"], Gang) and found.kept_out
    cache.put(pod_group("Inqueue"))
    assert isinstance(found := cache.gangs()["ml/g"], Gang) and not found.kept_out
    assert cache.heed(Gone(Key("ml", "pg"), ""), PodGroup) and isinstance(cache.gangs()["ml/g"], Unready)


def test_without_volcano_a_pod_group_is_of_no_account() -> None:
    cache = Cache()
    named = {"scheduling.k8s.io/group-name": "pg"}
    cache.put(pod("g-0", size=1, annotations=named))
    assert isinstance(cache.gangs()["ml/g"], Gang)
