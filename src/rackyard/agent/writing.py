"""What to write to the node, and writing it: labels by server-side apply, conditions by a patch of its status.

Only differences are written, and the conditions once more every `HEARTBEAT` seconds, so that who reads them sees that
somebody still looks. The agent writes to no object but its own node.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from rackyard.agent.conditions import Condition
from rackyard.agent.derive import View, own_keys, wanted
from rackyard.backends.kubernetes.client import JSON, ApiError, Client, node_path
from rackyard.backends.kubernetes.nodes import FIELD_MANAGER, Metadata
from rackyard.errors import ConflictError, RackyardError

MANAGER = "rackyard-agent"
"""Our name in managedFields. Not that of `rackyard topo label`, whose labels (rack, rails, tiers) would be dropped by
an apply that does not say them."""

HEARTBEAT = 300.0
_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_STRATEGIC = "application/strategic-merge-patch+json"


class Known(msgspec.Struct, frozen=True, rename="camel"):
    """A condition as the node has it."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[Known, ...] = ()


class NodeNow(msgspec.Struct, frozen=True):
    """The node as it was last read or written."""

    metadata: Metadata
    status: _Status = _Status()

    def labels(self) -> dict[str, str]:
        """The labels that we set."""
        labels, keys = self.metadata.labels, own_keys()
        return {key: labels[key] for key in keys & labels.keys() if MANAGER in self.metadata.set_by(key)}


def changed(conditions: Sequence[Condition], node: NodeNow) -> bool:
    """Whether the node says anything else than the conditions."""
    has = {one.type: (one.status, one.reason, one.message) for one in node.status.conditions}
    return any(has.get(one.type) != (one.status, one.reason, one.message) for one in conditions)


def status_of(conditions: Sequence[Condition], node: NodeNow, now: datetime) -> dict[str, Any]:
    """The patch of the node's status. A condition whose status stays keeps the time at which it came to be so."""
    has = {one.type: one for one in node.status.conditions}
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = []
    for one in conditions:
        old = has.get(one.type)
        since = old.last_transition_time if old is not None and old.status == one.status else None
        told.append(
            {
                "type": one.type,
                "status": one.status,
                "reason": one.reason,
                "message": one.message,
                "lastHeartbeatTime": stamp,
                "lastTransitionTime": since or stamp,
            }
        )
    return {"metadata": {"uid": node.metadata.uid}, "status": {"conditions": told}}


@dataclass(frozen=True, slots=True)
class Wrote:
    """One write: `what` is labels, conditions or heartbeat; `error` is None where it went well."""

    what: str
    error: RackyardError | None = None


class Writer:
    """Writes views to one node. Remembers what the node said last, and reads it anew after a failure and at each
    heartbeat, so that what others took away comes back.
    """

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._path = node_path(node)
        self._name = node
        self._now: NodeNow | None = None
        self._beat = float("-inf")

    def write(self, view: View, clock: float) -> tuple[Wrote, ...]:
        """Write what differs; `clock` in seconds on any one clock. Errors are results; the next call tries again."""
        due = clock - self._beat >= HEARTBEAT
        try:
            if self._now is None or due:
                self._now = self._decode(self._client.get(self._path, {}, JSON))
        except RackyardError as error:
            self._now = None
            return (Wrote("read", error),)
        wrote = []
        if changed(view.conditions, self._now) or due:
            what = "conditions" if changed(view.conditions, self._now) else "heartbeat"
            wrote.append(self._one(what, lambda now: self._conditions(view, now)))
            if wrote[-1].error is None:
                self._beat = clock
        if self._now is not None:
            labels = wanted(view, self._now.labels())
            if labels != self._now.labels():
                wrote.append(self._one("labels", lambda now: self._labels(labels, now)))
        return tuple(wrote)

    def _one(self, what: str, act: Callable[[NodeNow], NodeNow]) -> Wrote:
        assert self._now is not None
        try:
            self._now = act(self._now)
        except RackyardError as error:
            self._now = None  # gone, another node of that name, or somebody was quicker: look again
            return Wrote(what, error)
        return Wrote(what)

    def _conditions(self, view: View, now: NodeNow) -> NodeNow:
        body = status_of(view.conditions, now, datetime.now(UTC))
        params = {"fieldManager": MANAGER}
        return self._decode(self._client.patch(f"{self._path}/status", params, JSON, _STRATEGIC, body))

    def _labels(self, labels: Mapping[str, str], now: NodeNow) -> NodeNow:
        try:
            return self._apply(labels, now, {})
        except ApiError as error:
            held = error.status.details.causes if error.status.details else ()
            others = [cause.message for cause in held if f'"{FIELD_MANAGER}"' not in cause.message]
            if error.status.code != 409 or not held:
                raise
            if others:
                raise ConflictError(
                    "labels of the node are somebody else's, and none was written",
                    where=self._path,
                    why="; ".join(
                        f"{cause.field.removeprefix('.metadata.labels.')}: {cause.message}" for cause in held
                    ),
                    fix="have them stop setting it",
                ) from None
        # `rackyard topo label` wrote it from an older capture: what this host says of itself is newer.
        return self._apply(labels, now, {"force": "true"})

    def _apply(self, labels: Mapping[str, str], now: NodeNow, extra: Mapping[str, str]) -> NodeNow:
        # The uid keeps an apply from creating a node that was deleted meanwhile.
        meta = {"name": self._name, "uid": now.metadata.uid, "labels": dict(labels)}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        params = {"fieldManager": MANAGER, **extra}
        return self._decode(self._client.patch(self._path, params, JSON, _APPLY, body))

    def _decode(self, answer: bytes) -> NodeNow:
        try:
            return msgspec.json.decode(answer, type=NodeNow)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RackyardError("the answer of the API server is no node", where=self._path, why=str(error)) from None
