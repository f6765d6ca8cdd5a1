"""Applies a plan of label changes, one server-side apply for each node.

What others set is told, and not overwritten unless asked.
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rackyard.backends.kubernetes.client import METADATA, ApiError, Client, Unreachable, node_path
from rackyard.backends.kubernetes.nodes import FIELD_MANAGER, ClusterNode, Metadata, decode_node
from rackyard.errors import ConflictError, RackyardError, UsageError
from rackyard.fabric.labelplan import Change

_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MERGE = "application/merge-patch+json"
_ACCEPT = METADATA.format("PartialObjectMetadata")


class Outcome(StrEnum):
    """What became of one node."""

    APPLIED = "applied"
    CONFLICT = "conflict"
    """Somebody else set a label to another value, or holds one that should go; `error` names them."""
    GONE = "gone"
    """The node was deleted, or another of that name has come, since it was read; nothing was written."""
    FAILED = "failed"
    NOT_TRIED = "not tried"
    """An earlier failure would have met this node too."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The result for one node; `error` says what, where, why and what to do unless all went well."""

    node: str
    outcome: Outcome
    error: RackyardError | None = None


@dataclass(frozen=True, slots=True)
class How:
    """`dry_run`: the server checks and answers, and stores nothing. `force`: take labels over from whoever set them.
    At most `at_once` requests are under way.
    """

    dry_run: bool = False
    force: bool = False
    at_once: int = 16


def apply(
    client: Client,
    changes: Sequence[Change],
    nodes: Mapping[str, ClusterNode],
    how: How | None = None,
    told: Callable[[Applied], None] | None = None,
) -> tuple[Applied, ...]:
    """Write the changes to the nodes as they were read (`nodes`, by name); results in the order of `changes`.

    `told` is called with each result as it comes, from the threads that work. Never raises for what a server answers.
    """
    work = _Work(client, nodes, how or How())
    if work.how.at_once < 1:
        raise UsageError(f"at_once: {work.how.at_once} is out of range", fix="a number from 1")

    def one(change: Change) -> Applied:
        result = work.one(change)
        if told is not None:
            told(result)
        return result

    with ThreadPoolExecutor(work.how.at_once, thread_name_prefix="label") as pool:
        try:
            return tuple(pool.map(one, changes))
        except BaseException:  # Ctrl-C: what is under way ends, what waits does not start
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Work:
    def __init__(self, client: Client, nodes: Mapping[str, ClusterNode], how: How) -> None:
        self.client = client
        self.nodes = nodes
        self.how = how
        self.stop = threading.Event()

    def one(self, change: Change) -> Applied:
        if self.stop.is_set():
            return Applied(change.node, Outcome.NOT_TRIED)
        try:
            return self.write(change)
        except ApiError as error:
            if error.status.code in (401, 403):
                self.stop.set()  # it is no different for the next node
            return Applied(change.node, Outcome.FAILED, error)
        except (Unreachable, UsageError) as error:
            self.stop.set()
            return Applied(change.node, Outcome.FAILED, error)
        except RackyardError as error:
            return Applied(change.node, Outcome.FAILED, error)

    def write(self, change: Change) -> Applied:
        """Apply says all labels that we want, and the server drops those that we set before and no longer say."""
        node = self.nodes[change.node]
        try:
            now = self.patch(node, _APPLY, change.wanted, {"force": "true"} if self.how.force else {})
        except ApiError as error:
            return self.refused(node, error)
        left = [key for key, _ in change.remove if key in now.labels]
        if left and self.how.force:
            self.patch(node, _MERGE, dict.fromkeys(left), {})
        elif left:
            return Applied(node.name, Outcome.CONFLICT, _held(node.name, [(key, now.set_by(key)) for key in left]))
        return Applied(node.name, Outcome.APPLIED)

    def patch(
        self, node: ClusterNode, kind: str, labels: Mapping[str, str | None], extra: Mapping[str, str]
    ) -> Metadata:
        # The uid says that the node must be the one that was read: an apply without it would create a node that was
        # deleted meanwhile.
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "uid": node.uid, "labels": labels},
        }
        params = {"fieldManager": FIELD_MANAGER, **extra} | ({"dryRun": "All"} if self.how.dry_run else {})
        return decode_node(self.client.patch(node_path(node.name), params, _ACCEPT, kind, body))

    def refused(self, node: ClusterNode, error: ApiError) -> Applied:
        causes = error.status.details.causes if error.status.details else ()
        held = [cause for cause in causes if cause.reason == "FieldManagerConflict"]
        if held:
            return Applied(node.name, Outcome.CONFLICT, _overruled(node.name, [(c.field, c.message) for c in held]))
        if error.status.code in (404, 409, 422) and self.changed(node):
            return Applied(node.name, Outcome.GONE, _gone(node.name))
        raise error

    def changed(self, node: ClusterNode) -> bool:
        """Whether the node is no longer the one that was read."""
        try:
            return decode_node(self.client.get(node_path(node.name), {}, _ACCEPT)).uid != node.uid
        except ApiError as error:
            if error.status.code == 404:
                return True
            raise


def _overruled(node: str, causes: list[tuple[str, str]]) -> ConflictError:
    """Causes as the API server words them: the field `.metadata.labels.<key>`, and `conflict with "<manager>" ...`."""
    lines = []
    for place, message in causes:
        manager = re.search(r'"([^"]*)"', message)
        key = place.removeprefix(".metadata.labels.")
        lines.append(f"{key} was set by {manager[1] if manager else message or 'somebody else'}")
    return ConflictError(
        f"labels of node {node} are somebody else's; none of its labels was written",
        where=f"node {node}",
        why="; ".join(lines),
        fix="have them stop setting it, or take it over with --force",
    )


def _held(node: str, left: list[tuple[str, tuple[str, ...]]]) -> ConflictError:
    lines = []
    for key, managers in left:
        others = [manager for manager in managers if manager != FIELD_MANAGER]
        lines.append(f"{key} is set by {', '.join(others) or 'nobody that is known'}")
    return ConflictError(
        f"labels of node {node} that should go are somebody else's too, and stay",
        where=f"node {node}",
        why="; ".join(lines),
        fix="have them stop setting it, or remove it with --force",
    )


def _gone(node: str) -> RackyardError:
    return RackyardError(
        f"node {node} was deleted or replaced since it was read; nothing was written to it",
        where=f"node {node}",
        fix="run the command again when it is back",
    )
