"""From pods to gangs: who belongs together, whether all are there, and what they ask for. Pure."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rackyard.controller.kube.objects import RANK, REQUEST, SIZE, Pod
from rackyard.placement import Request
from rackyard.placement.record import request_from

_NUMBER = re.compile(r"(?:^|-)(\d+)$")
_RANKS = (RANK, "batch.kubernetes.io/job-completion-index", "volcano.sh/task-index")


@dataclass(frozen=True, slots=True)
class Gang:
    """The pods of a gang in rank order, and what they ask for together."""

    key: str
    """`namespace/name`."""
    pods: tuple[Pod, ...]
    request: Request


@dataclass(frozen=True, slots=True)
class Unready:
    """Why there is nothing to place yet, or never will be: one line, and a word for a condition's reason."""

    key: str
    reason: str
    message: str


def gangs(pods: Iterable[Pod]) -> list[Gang | Unready]:
    """All gangs, by name. Pods that are done or being deleted are not counted."""
    members: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.gang and not pod.over and not pod.metadata.deletion_timestamp:
            members.setdefault(pod.gang, []).append(pod)
    return [_gang(key, members[key]) for key in sorted(members)]


def _gang(key: str, pods: list[Pod]) -> Gang | Unready:
    sizes = {pod.metadata.annotations.get(SIZE, "") for pod in pods}
    told = sizes.pop()
    if sizes or not re.fullmatch(r"[1-9]\d{0,5}", told):
        return Unready(key, "UnknownSize", f"annotation {SIZE} must be the same number of pods on all of them")
    size = int(told)
    if len(pods) < size:
        return Unready(key, "MembersMissing", f"{len(pods)} of {size} pods are there")
    if len(pods) > size:
        return Unready(key, "TooMany", f"{len(pods)} pods say that the gang has {size}")
    ranks = [_rank(pod) for pod in pods]
    if sorted(rank for rank in ranks if rank is not None) != list(range(size)):
        return Unready(key, "NoRanks", f"the pods' places in the gang must be 0 to {size - 1}: annotation {RANK}")
    ordered = tuple(pod for _, pod in sorted(zip(ranks, pods, strict=True), key=lambda each: each[0] or 0))
    try:
        return Gang(key, ordered, _request(ordered))
    except ValueError as error:
        return Unready(key, "BadRequest", str(error))


def _rank(pod: Pod) -> int | None:
    said = {**pod.metadata.labels, **pod.metadata.annotations}
    told = next((said[key] for key in _RANKS if key in said), None)
    if told is None:
        found = _NUMBER.search(pod.metadata.name)
        told = found.group(1) if found else ""
    return int(told) if told.isascii() and told.isdigit() and len(told) <= 6 else None


def _request(pods: tuple[Pod, ...]) -> Request:
    """ValueError for pods that differ in their GPUs, and for an annotation that is no request."""
    counts = {pod.gpus for pod in pods}
    if len(counts) > 1 or 0 in counts:
        raise ValueError(f"the pods of a gang must ask for the same number of GPUs, one or more: {sorted(counts)}")
    texts = {pod.metadata.annotations.get(REQUEST, "{}") for pod in pods}
    if len(texts) > 1:
        raise ValueError(f"annotation {REQUEST} differs between the pods")
    data = json.loads(texts.pop())
    if not isinstance(data, dict):
        raise ValueError(f"annotation {REQUEST} is no JSON object")
    each = counts.pop()
    asked = request_from({**data, "gpus": each * len(pods)})
    return replace(asked, gpus_per_node=each)
