"""From pods to gangs: who belongs together, whether all are there, and what they ask for. Pure."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rackyard.controller.kube.domains import compute_domain
from rackyard.controller.kube.kinds import place_in_gang, size_of
from rackyard.controller.kube.objects import RANK, REQUEST, SIZE, Pod, PodGroup
from rackyard.placement import Request
from rackyard.placement.record import request_from

_NAME = re.compile(r"(?=.{1,240}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""RFC 1123 subdomain, with room for the number of an attempt."""


@dataclass(frozen=True, slots=True)
class Gang:
    """The pods of a gang in rank order, and what they ask for together."""

    key: str
    """`namespace/name`."""
    pods: tuple[Pod, ...]
    request: Request
    queue: str = ""
    """Volcano's, where it has a PodGroup."""
    kept_out: str = ""
    """Why Volcano's queue has not let it in; empty where it has, or where there is none."""
    off: frozenset[str] = frozenset()
    """Nodes that it must keep off beside those that it asks to: its pods' selectors and tolerations shut them out, or
    the scheduler refused them.
    """
    displaces: bool = True
    """Whether others may be made to give way to it: not for a while after that was in vain."""
    setback: str = ""
    """What came in its way before, as a line."""

    @property
    def wish(self) -> Request:
        """What it asks for, of the nodes that it may use."""
        return replace(self.request, exclude=self.request.exclude | self.off) if self.off else self.request

    @property
    def priority(self) -> int:
        """The lowest of its pods': what can be preempted in part is preempted whole."""
        return min(pod.spec.priority for pod in self.pods)

    @property
    def since(self) -> str:
        """When its first pod was made, RFC 3339."""
        return min(pod.metadata.creation_timestamp for pod in self.pods)

    @property
    def waits(self) -> bool:
        """Whether our gate still holds all of it."""
        return all(pod.gated for pod in self.pods)


@dataclass(frozen=True, slots=True)
class Unready:
    """Why there is nothing to place yet, or never will be: one line, and a word for a condition's reason."""

    key: str
    reason: str
    message: str
    pods: tuple[Pod, ...] = ()
    """Those that are there."""


def gang_of(key: str, pods: Sequence[Pod], group: PodGroup | None = None) -> Gang | Unready:
    """The gang that those pods make. Pods that have ended or are being deleted don't count. `group` is its PodGroup,
    where Volcano schedules it: it says the size where the pods don't.
    """
    alive = [pod for pod in pods if not pod.over and not pod.metadata.deletion_timestamp]
    if not _NAME.fullmatch(key.partition("/")[2]):
        told = (
            "a gang's name must be one that objects can have: lower-case letters, digits, hyphens and dots, up to 240"
        )
        return Unready(key, "BadName", told, tuple(alive))
    unready = _unready(pods, alive, group)
    if unready is not None:
        reason, message = unready
        return Unready(key, reason, message, tuple(alive))
    ordered = _in_order(alive)
    if ordered is None:
        told = f"no order of the pods: annotation {RANK} must be 0 to {len(alive) - 1}, or their names end in a number"
        return Unready(key, "NoRanks", told, tuple(alive))
    try:
        compute_domain(ordered)
    except ValueError as error:
        return Unready(key, "BadComputeDomain", str(error), tuple(alive))
    try:
        return Gang(key, ordered, _request(ordered), group.spec.queue if group else "", _kept_out(group))
    except ValueError as error:
        return Unready(key, "BadRequest", str(error), tuple(alive))


def _unready(pods: Sequence[Pod], alive: list[Pod], group: PodGroup | None) -> tuple[str, str] | None:
    told = {pod.metadata.annotations.get(SIZE, "") for pod in alive}
    if told == {""}:
        told = {str(size or "") for size in map(size_of, alive)}
    if told == {""} and group is not None and group.spec.min_member > 0:
        told = {str(group.spec.min_member)}
    if len(told) != 1 or not re.fullmatch(r"[1-9]\d{0,5}", size_said := next(iter(told))):
        if not alive:
            return "Ended", "its pods have ended"
        return "UnknownSize", f"annotation {SIZE} must be the same number of pods, from 1, on all of them"
    size = int(size_said)
    ended = sum(pod.over for pod in pods)
    if len(alive) < size and ended:
        return "Finishing", f"{ended} pods have ended, {len(alive)} run on"
    if len(alive) < size:
        return "MembersMissing", f"{len(alive)} of {size} pods are there"
    if len(alive) > size:
        return "TooMany", f"{len(alive)} pods say that the gang has {size}"
    others = sorted({name for pod in alive for name in pod.elsewhere})
    if others:
        return "OtherGates", f"other gates hold its pods: {', '.join(others)}"
    return None


def _kept_out(group: PodGroup | None) -> str:
    if group is None or group.admitted:
        return ""
    why = next((each.message for each in reversed(group.status.conditions) if each.message), "")
    told_by = f": {why}" if why else ""
    return f"queue {group.spec.queue or 'default'} has not let its PodGroup in ({group.status.phase or 'new'}){told_by}"


def _in_order(pods: list[Pod]) -> tuple[Pod, ...] | None:
    """By rank; None where that is not to be known. Of a gang that is let go in part, the plan knows the ranks."""
    if len(pods) == 1 or len({pod.released for pod in pods}) > 1:
        return tuple(sorted(pods, key=lambda pod: pod.key))
    places = [(place, pod) for pod in pods if (place := place_in_gang(pod)) is not None]
    if len({place for place, _ in places}) < len(pods):
        return None
    return tuple(pod for _, pod in sorted(places, key=lambda each: each[0]))


def _request(pods: tuple[Pod, ...]) -> Request:
    """ValueError for pods that differ in their GPUs, and for an annotation that is no request."""
    counts = {pod.gpus for pod in pods}
    if len(counts) > 1 or 0 in counts:
        raise ValueError(f"the pods of a gang must ask for the same number of GPUs, one or more: {sorted(counts)}")
    texts = {pod.metadata.annotations.get(REQUEST, "{}") for pod in pods}
    if len(texts) > 1:
        raise ValueError(f"annotation {REQUEST} differs between the pods")
    try:
        data = json.loads(texts.pop())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"annotation {REQUEST} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f'annotation {REQUEST} must be a JSON object, as {{"segment_gpus": 64}}')
    each = counts.pop()
    try:
        asked = request_from({**data, "gpus": each * len(pods)})
    except (ValueError, RecursionError) as error:
        raise ValueError(f"annotation {REQUEST}: {error}") from None
    return replace(asked, gpus_per_node=each)
