"""Nodes that the pods of a gang may not use, by their nodeSelector, required node affinity and tolerations. Pure.

The scheduler would refuse them there, so placement must not choose them. The rules are those of the Kubernetes
documentation ("Assigning Pods to Nodes", "Taints and Tolerations"). For gangs that are still held: what a release adds
to a pod's affinity differs from pod to pod.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rackyard.controller.kube.objects import Node, Pod, Taint, Toleration

_REFUSING = ("NoSchedule", "NoExecute")
_HOST = "kubernetes.io/hostname"
_KUEUE = "kueue.x-k8s.io/"
_NUMBER = re.compile(r"-?\d{1,19}")


@dataclass(frozen=True, slots=True)
class Pinned:
    """Pods of one gang may use different nodes, so that the order of ranks is not ours to choose: one line, with what
    to do about it.
    """

    message: str


def shut_out(
    pods: Sequence[Pod], nodes: Collection[Node], known: dict[bytes, frozenset[str]] | None = None
) -> frozenset[str] | Pinned:
    """Names of the nodes that no pod of the gang may use. `known` keeps answers for as long as the nodes stay as they
    are: many gangs ask for the same.
    """
    known = {} if known is None else known
    found: frozenset[str] = frozenset()
    first: Pod | None = None
    for pod in pods:
        if first is not None and _same(pod, first):
            continue
        out = _shut_out(pod, nodes, known)
        if first is None:
            first, found = pod, out
        elif out != found:
            return Pinned(_differ(first, pod))
    return found


def _shut_out(pod: Pod, nodes: Collection[Node], known: dict[bytes, frozenset[str]]) -> frozenset[str]:
    spec = pod.spec
    key = msgspec.json.encode((spec.node_selector, _required(pod), spec.tolerations))
    if key not in known:
        known[key] = frozenset(node.metadata.name for node in nodes if not admits(node, pod))
    return known[key]


def admits(node: Node, pod: Pod) -> bool:
    """Whether the scheduler's rules of selectors, affinity and taints let the pod onto the node."""
    labels, required = node.metadata.labels, _required(pod)
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    if required is not None and not any(_term(term, node) for term in required.get("nodeSelectorTerms") or ()):
        return False
    refusing = (taint for taint in node.spec.taints if taint.effect in _REFUSING)
    return all(any(_tolerates(each, taint) for each in pod.spec.tolerations) for taint in refusing)


def _required(pod: Pod) -> Mapping[str, Any] | None:
    affinity = (pod.spec.affinity or {}).get("nodeAffinity") or {}
    found: Mapping[str, Any] | None = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return found


def _same(pod: Pod, other: Pod) -> bool:
    mine, theirs = pod.spec, other.spec
    return (
        mine.node_selector == theirs.node_selector
        and mine.tolerations == theirs.tolerations
        and (mine.affinity == theirs.affinity or _required(pod) == _required(other))
    )


def _term(term: Mapping[str, Any], node: Node) -> bool:
    """All of a term must hold; an empty one holds for no node."""
    by_label, by_field = term.get("matchExpressions") or (), term.get("matchFields") or ()
    fields = {"metadata.name": node.metadata.name}
    return bool(by_label or by_field) and (
        all(_matches(each, node.metadata.labels) for each in by_label)
        and all(_matches(each, fields) for each in by_field)
    )


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """One requirement. A label that is not there satisfies NotIn, and neither Gt nor Lt."""
    found = labels.get(str(expression.get("key")))
    values: Sequence[str] = expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt" as operator if len(values) == 1:
            return _compares(found or "", values[0], operator)
    return False  # an operator that we do not know: nothing is placed there that could be refused


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.key == taint.key and toleration.value == taint.value
    return False  # Gt and Lt are off in most clusters (TaintTolerationComparisonOperators, alpha in 1.35)


def _compares(found: str, bound: str, operator: str) -> bool:
    """Whole numbers only."""
    if not (_NUMBER.fullmatch(found) and _NUMBER.fullmatch(bound)):
        return False
    return int(found) > int(bound) if operator == "Gt" else int(found) < int(bound)


def _differ(one: Pod, other: Pod) -> str:
    message = f"its pods are pinned to different nodes by somebody else: {_asks(one)}; {_asks(other)}"
    if _HOST in one.spec.node_selector and any(key.startswith(_KUEUE) for key in _keys(one)):
        fix = f"leave {_HOST} out of the levels of Kueue's Topology, or take our gate out of the pod template"
    else:
        fix = "the same nodeSelector, node affinity and tolerations for all of its pods"
    return f"{message}; fix: {fix}"


def _keys(pod: Pod) -> tuple[str, ...]:
    return (*pod.metadata.labels, *pod.metadata.annotations)


def _asks(pod: Pod) -> str:
    told = ", ".join(f"{key}={value}" for key, value in sorted(pod.spec.node_selector.items()))
    return f"{pod.metadata.name} asks for {told or 'others'}"
