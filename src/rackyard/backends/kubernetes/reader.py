"""Objects of one namespace, read typed: lists page by page, and what a cluster may not know."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from rackyard.backends.kubernetes.client import JSON, ApiError, Client

T = TypeVar("T")

PAGE = "500"
_NOT_THERE = (404,)
_NOT_TOLD = (403, 404)


class _List(msgspec.Struct, frozen=True):
    metadata: dict[str, Any] = {}
    items: tuple[msgspec.Raw, ...] = ()


@dataclass(frozen=True, slots=True)
class Reader:
    """Requests by one client."""

    client: Client
    namespace: str = "default"

    def path(self, group: str, kind: str, name: str = "") -> str:
        """Of the objects of a kind in the namespace, or of one of them."""
        path = f"{group}/namespaces/{quote(self.namespace, safe='')}/{kind}"
        return f"{path}/{quote(name, safe='')}" if name else path

    def items(self, path: str, kind: type[T], params: Mapping[str, str] | None = None, accept: str = JSON) -> list[T]:
        """All items of a list, page by page."""
        found: list[T] = []
        ask = {"limit": PAGE, **(params or {})}
        while True:
            page = msgspec.json.decode(self.client.get(path, ask, accept), type=_List)
            found += [msgspec.json.decode(item, type=kind) for item in page.items]
            if not (more := page.metadata.get("continue")):
                return found
            ask["continue"] = str(more)

    def maybe(
        self, path: str, kind: type[T], params: Mapping[str, str] | None = None, *, shy: bool = False
    ) -> list[T] | None:
        """A list of a kind that the cluster may not know: None then. With `shy` also where we may not look."""
        try:
            return self.items(path, kind, params)
        except ApiError as error:
            if error.status.code not in (_NOT_TOLD if shy else _NOT_THERE):
                raise
            return None

    def one(self, path: str, kind: type[T], accept: str = JSON, *, shy: bool = False) -> T | None:
        """An object; None where it is not there. With `shy` also where we may not look."""
        try:
            return msgspec.json.decode(self.client.get(path, {}, accept), type=kind)
        except ApiError as error:
            if error.status.code not in (_NOT_TOLD if shy else _NOT_THERE):
                raise
            return None
