"""Reads the nodes of a cluster: their labels, and which of these we set."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from rackyard.backends.kubernetes.client import METADATA, ApiError, Client
from rackyard.errors import RackyardError, UsageError

FIELD_MANAGER = "rackyard"
"""Our name in a node's managedFields."""

PAGE = 500
"""Nodes a request, as kubectl asks for."""

_RESTARTS = 3


class _Managed(msgspec.Struct, frozen=True, rename="camel"):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw(b"{}"))


class _FieldsOfMetadata(msgspec.Struct, frozen=True):
    labels: dict[str, msgspec.Raw] = msgspec.field(name="f:labels", default_factory=dict)


class _Fields(msgspec.Struct, frozen=True):
    metadata: _FieldsOfMetadata = msgspec.field(name="f:metadata", default_factory=_FieldsOfMetadata)


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """What we read of a node's metadata."""

    name: str
    uid: Annotated[str, msgspec.Meta(min_length=1)]  # without it, a write could create a node
    labels: dict[str, str] = {}
    managed_fields: tuple[_Managed, ...] = ()

    def set_by(self, key: str) -> tuple[str, ...]:
        """The field managers that set a label."""
        return tuple(entry.manager for entry in self.managed_fields if key in _labels(entry))

    def ours(self) -> frozenset[str]:
        """The labels that we set by server-side apply."""
        return frozenset(
            key
            for entry in self.managed_fields
            if entry.manager == FIELD_MANAGER and entry.operation == "Apply" and not entry.subresource
            for key in _labels(entry)
        )


class PartialNode(msgspec.Struct, frozen=True):
    """A node of which only the metadata was asked for."""

    metadata: Metadata


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    continue_: str = msgspec.field(name="continue", default="")


class _NodeList(msgspec.Struct, frozen=True):
    metadata: _ListMetadata
    items: tuple[PartialNode, ...] | None = ()
    """An API server without nodes answers null where metadata only is asked for."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node as the cluster has it. `managed` are the labels that we set; `uid` tells it from a later node so named."""

    name: str
    uid: str
    labels: dict[str, str]
    managed: frozenset[str]


def read_nodes(client: Client, selector: str = "", page: int = PAGE) -> tuple[ClusterNode, ...]:
    """All nodes, or those that a label selector picks, page by page. ApiError or Unreachable when that fails."""
    for _ in range(_RESTARTS):
        try:
            return tuple(_read(client, selector, page))
        except ApiError as error:
            if error.status.code != 410:
                raise
            # The snapshot that the pages are of has been dropped by the server: only a new list is consistent.
    raise RackyardError(
        "the list of nodes expired again and again while it was read",
        where=client.server,
        why="the API server drops snapshots sooner than the pages could be read",
        fix="try again, from nearer to the API server",
    )


class _Captured(msgspec.Struct, frozen=True):
    class Meta(msgspec.Struct, frozen=True):
        name: str
        uid: str = ""
        labels: dict[str, str] = {}

    metadata: Meta


class _Capture(msgspec.Struct, frozen=True):
    items: tuple[_Captured, ...]


def captured_nodes(data: bytes, file: str) -> tuple[ClusterNode, ...]:
    """The nodes of a saved `kubectl get nodes -o json`. UsageError for anything else."""
    try:
        items = msgspec.json.decode(data, type=_Capture).items
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(
            "this is no list of Kubernetes nodes", where=file, why=str(error), fix="kubectl get nodes -o json > FILE"
        ) from None
    # kubectl leaves managedFields out, so what we set under other people's keys is not known here.
    return tuple(
        ClusterNode(item.metadata.name, item.metadata.uid, item.metadata.labels, frozenset()) for item in items
    )


def decode_node(body: bytes) -> Metadata:
    """The metadata of one node. RackyardError when the answer is no node."""
    try:
        return msgspec.json.decode(body, type=PartialNode).metadata
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RackyardError("the answer of the API server is no node", why=str(error)) from None


def _read(client: Client, selector: str, page: int) -> list[ClusterNode]:
    params = {"limit": str(page)} | ({"labelSelector": selector} if selector else {})
    found: list[ClusterNode] = []
    while True:
        body = client.get("/api/v1/nodes", params, METADATA.format("PartialObjectMetadataList"))
        try:
            answer = msgspec.json.decode(body, type=_NodeList)
            found += [
                ClusterNode(item.metadata.name, item.metadata.uid, item.metadata.labels, item.metadata.ours())
                for item in answer.items or ()
            ]
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RackyardError(
                "the answer of the API server is no list of nodes", where=client.server, why=str(error)
            ) from None
        if not answer.metadata.continue_:
            return found
        params = params | {"continue": answer.metadata.continue_}


def _labels(entry: _Managed) -> frozenset[str]:
    """The label keys of one manager; fields are named `f:<key>` (managedFields, FieldsV1)."""
    try:
        fields = msgspec.json.decode(entry.fields_v1, type=_Fields)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RackyardError("managedFields of a node can't be read", why=str(error)) from None
    return frozenset(key[2:] for key in fields.metadata.labels if key.startswith("f:"))
