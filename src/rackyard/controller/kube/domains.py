"""The ComputeDomain of a gang: its nodes' IMEX daemons, without which GPUs of different nodes share no memory over
NVLink. Pure.

One is enough for a gang that spans NVLink domains: the driver keeps a ComputeDomainClique for each pair of
ComputeDomain and clique, and the daemons of a clique know each other only. It follows the placement and constrains
nothing (kubernetes-sigs/dra-driver-nvidia-gpu: `cmd/compute-domain-daemon/cdclique.go`, issue #804). Schema: v1beta1 of
the definition in its Helm chart, 0.4.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rackyard.controller.kube.kinds import LWS, gang_name, owner_of
from rackyard.controller.kube.objects import GANG, Pod
from rackyard.fabric import Site

ASKED = "rackyard.io/compute-domain"
"""Annotation of a gang's pods: the resource claim template that its ComputeDomain is to make, and their claims name."""
API, PLURAL = "resource.nvidia.com/v1beta1", "computedomains"

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SHOWN = 4


def compute_domain(pods: Sequence[Pod]) -> dict[str, Any] | None:
    """The object to create with the plan of a gang, whose pods are in rank order; None when it asks for none.
    ValueError, a line for people, for pods that can't have one.
    """
    template = _template(pods)
    if not template:
        return None
    first = pods[0]
    name = _name(first)
    for what, each in (("gang", name), (ASKED, template)):
        if not _NAME.fullmatch(each):
            raise ValueError(f"{what} {each!r} can't name an object: lower-case letters, digits, hyphens and dots")
    owner = owner_of(first)
    return {
        "apiVersion": API,
        "kind": "ComputeDomain",
        "metadata": {
            "name": name,
            "namespace": first.metadata.namespace,
            "ownerReferences": [
                {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
            ],
        },
        # 0 holds no pod back until so many daemons are there; older definitions require the field.
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": template}}},
    }


def clash(wanted: Mapping[str, Any], there: Iterable[Mapping[str, Any]]) -> str:
    """Why it can't be created beside the ComputeDomains of its namespace; empty when it can, or is there already."""
    name, template = wanted["metadata"]["name"], _made_by(wanted)
    for other in there:
        theirs = other["metadata"]["name"]
        if theirs == name and other["metadata"].get("deletionTimestamp"):
            return f"ComputeDomain {name} of an earlier gang is still being deleted"
        if theirs == name and _made_by(other) != template:
            return f"ComputeDomain {name} is there, and makes template {_made_by(other)!r}, not {template!r}"
        if theirs != name and _made_by(other) == template:
            return f"ComputeDomain {theirs} makes template {template!r} already; each gang needs its own"
    return ""


def spread(nodes: Iterable[str], site: Site) -> str:
    """What to say of a gang with a ComputeDomain on these nodes, one for each pod; empty within one NVLink domain."""
    pods = Counter(str(site.node(node).domain) for node in nodes if site.has_node(node))
    if len(pods) < 2:
        return ""
    shown = [f"{count} pods in {domain}" for domain, count in pods.most_common(_SHOWN)]
    more = [f"and {len(pods) - _SHOWN} more"] if len(pods) > _SHOWN else []
    return f"its ComputeDomain spans {len(pods)} NVLink domains, and memory is shared within each only: " + ", ".join(
        shown + more
    )


def _template(pods: Sequence[Pod]) -> str:
    """ValueError unless the pods agree, and each claims from the template."""
    asked = {pod.metadata.annotations.get(ASKED, "") for pod in pods}
    if len(asked) > 1:
        raise ValueError(f"annotation {ASKED} must be the same on all pods of the gang: {sorted(asked)}")
    template = asked.pop() if asked else ""
    without = [pod for pod in pods if template not in _templates(pod)]
    if template and without:
        raise ValueError(
            f"annotation {ASKED} is {template!r}, but {len(without)} of {len(pods)} pods have no claim from it: "
            f"spec.resourceClaims of {without[0].key} needs resourceClaimTemplateName: {template}"
        )
    return template


def _templates(pod: Pod) -> set[str]:
    return {claim.resource_claim_template_name for claim in pod.spec.resource_claims}


def _name(pod: Pod) -> str:
    """The gang's name; of a LeaderWorkerSet its own: the pods of all its groups have one template, hence one domain."""
    labels = pod.metadata.labels
    return labels[LWS] if LWS in labels and GANG not in labels else gang_name(pod)


def _made_by(domain: Mapping[str, Any]) -> str:
    return str(domain["spec"]["channel"]["resourceClaimTemplate"]["name"])
