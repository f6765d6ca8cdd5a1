"""Which nodes the scheduler would refuse a gang's pods: each rule of the Kubernetes documentation, as objects."""

from typing import Any

import msgspec
import pytest

from rackyard.controller.kube.objects import GATE, Node, Pod
from rackyard.controller.kube.selectors import Pinned, admits, shut_out

HOST, RACK, AGE = "kubernetes.io/hostname", "rackyard.io/rack", "example.com/age"


def node(name: str, labels: dict[str, str] | None = None, *taints: tuple[str, str, str]) -> Node:
    told = [{"key": key, "value": value, "effect": effect} for key, value, effect in taints]
    meta = {"name": name, "labels": {HOST: name, **(labels or {})}}
    return msgspec.convert({"metadata": meta, "spec": {"taints": told}}, Node)


def pod(name: str = "p-0", **spec: Any) -> Pod:
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "ml"}, "spec": {"schedulingGates": [{"name": GATE}], **spec}}, Pod
    )


def requires(*terms: dict[str, Any]) -> dict[str, Any]:
    """An affinity with these terms."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


NODES = (
    node("a", {RACK: "r1", AGE: "3"}),
    node("b", {RACK: "r2", AGE: "-7"}),
    node("c", {AGE: "old"}),
)
ALL = "abc"


def allowed(*pods: Pod) -> str:
    """The names of the nodes that are left."""
    out = shut_out(pods, NODES)
    assert isinstance(out, frozenset)
    return "".join(sorted(set(ALL) - out))


@pytest.mark.parametrize(
    ("spec", "left"),
    [
        ({}, ALL),
        ({"nodeSelector": {RACK: "r1"}}, "a"),
        ({"nodeSelector": {RACK: "r1", HOST: "b"}}, ""),
        ({"nodeSelector": {"example.com/none": ""}}, ""),
        ({"affinity": {}}, ALL),
        ({"affinity": {"nodeAffinity": {}}}, ALL),
        ({"affinity": requires()}, ""),
        ({"affinity": requires({})}, ""),
        ({"affinity": requires({}, label(RACK, "In", "r2"))}, "b"),
        ({"affinity": requires(label(RACK, "In", "r1", "r2"))}, "ab"),
        ({"affinity": requires(label(RACK, "NotIn", "r1"))}, "bc"),
        ({"affinity": requires(label(RACK, "Exists"))}, "ab"),
        ({"affinity": requires(label(RACK, "DoesNotExist"))}, "c"),
        ({"affinity": requires(label(AGE, "Gt", "-8"))}, "ab"),
        ({"affinity": requires(label(AGE, "Lt", "3"))}, "b"),
        ({"affinity": requires(label(AGE, "Gt", "x"))}, ""),
        ({"affinity": requires(label(AGE, "Lt", "1", "9"))}, ""),
        ({"affinity": requires(label(AGE, "Like", "3"))}, ""),
        ({"affinity": requires(label(HOST, "In", "a"), label(HOST, "In", "c"))}, "ac"),
        (
            {"affinity": requires({"matchExpressions": [*label(RACK, "Exists")["matchExpressions"],
                                                        *label(AGE, "Gt", "0")["matchExpressions"]]})},
            "a",
        ),
        (
            {"affinity": requires({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]})},
            "c",
        ),
        (
            {"affinity": requires({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["c"]}],
                                   **label(RACK, "NotIn", "r1")})},
            "b",
        ),
        ({"nodeSelector": {RACK: "r1"}, "affinity": requires(label(RACK, "In", "r2"))}, ""),
    ],
)  # fmt: skip
def test_selectors_and_affinity(spec: dict[str, Any], left: str) -> None:
    assert allowed(pod(**spec)) == left


def test_what_is_only_preferred_shuts_nothing_out() -> None:
    term = {"weight": 1, "preference": label(RACK, "In", "r1")}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert allowed(pod(affinity=affinity)) == ALL
    assert admits(node("d", None, ("k", "v", "PreferNoSchedule")), pod())


@pytest.mark.parametrize(
    ("toleration", "taint", "goes"),
    [
        (None, ("k", "v", "NoSchedule"), False),
        (None, ("k", "v", "NoExecute"), False),
        ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, ("k", "v", "NoSchedule"), True),
        ({"key": "k", "value": "v"}, ("k", "v", "NoExecute"), True),
        ({"key": "k", "value": "w"}, ("k", "v", "NoSchedule"), False),
        ({"key": "k", "operator": "Exists"}, ("k", "v", "NoSchedule"), True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, ("k", "v", "NoSchedule"), False),
        ({"key": "l", "operator": "Exists"}, ("k", "v", "NoSchedule"), False),
        ({"operator": "Exists"}, ("k", "v", "NoExecute"), True),
        ({"operator": "Exists", "effect": "NoSchedule"}, ("k", "v", "NoExecute"), False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}, ("k", "", "NoExecute"),
         True),
        ({"key": "k", "operator": "Gt", "value": "1"}, ("k", "5", "NoSchedule"), False),
    ],
)  # fmt: skip
def test_taints(toleration: dict[str, Any] | None, taint: tuple[str, str, str], goes: bool) -> None:
    given = pod(tolerations=[toleration] if toleration else [])
    assert admits(node("d", None, taint), given) is goes


def test_every_taint_must_be_borne() -> None:
    two = node("d", None, ("k", "v", "NoSchedule"), ("l", "", "NoExecute"))
    one = [{"key": "k", "operator": "Exists"}]
    assert not admits(two, pod(tolerations=one))
    assert admits(two, pod(tolerations=[*one, {"key": "l", "operator": "Exists"}]))


def test_pods_that_ask_for_the_same_in_other_words_agree() -> None:
    first, second = pod("p-0", nodeSelector={RACK: "r1"}), pod("p-1", nodeSelector={HOST: "a"})
    assert allowed(first, second) == "a" and allowed() == ALL


def test_pods_that_may_use_different_nodes_are_pinned() -> None:
    found = shut_out([pod("p-0", nodeSelector={HOST: "a"}), pod("p-1", nodeSelector={HOST: "b"})], NODES)
    assert isinstance(found, Pinned)
    assert found.message.startswith("its pods are pinned to different nodes by somebody else: p-0 asks for")
    assert "p-1 asks for kubernetes.io/hostname=b; fix: the same nodeSelector" in found.message


def test_of_kueue_it_is_said_what_its_topology_must_not_have() -> None:
    pods = [pod(f"p-{at}", nodeSelector={HOST: name}) for at, name in enumerate("ab")]
    for each in pods:
        each.metadata.labels["kueue.x-k8s.io/podset"] = "main"
    found = shut_out(pods, NODES)
    assert isinstance(found, Pinned) and "; fix: leave kubernetes.io/hostname out of the levels of" in found.message


def test_answers_are_kept_for_those_who_ask_for_the_same() -> None:
    known: dict[bytes, frozenset[str]] = {}
    given = pod(nodeSelector={RACK: "r1"})
    assert shut_out([given], NODES, known) == shut_out([given], (), known) == {"b", "c"} and len(known) == 1
