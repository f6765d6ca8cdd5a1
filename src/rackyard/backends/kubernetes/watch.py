"""One kind of object as it is and as it changes: list in pages, then watch, and whatever breaks, go on.

    for event in Watch(client, What("/api/v1/pods", Pod, fields="spec.nodeName!=")):
        match event:
            case Put(pod): ...      # made, changed, or there already
            case Gone(key): ...     # deleted, also when that was found out only by listing again
            case Synced(): ...      # everything that there is has been told
            case Trouble(error): ...  # told, and tried again after a wait

It ends when another thread calls `stop`. What is held is a key and a uid for each object: the objects are the
reader's. `Pod` is a msgspec Struct of only the fields that are used.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from rackyard.backends.kubernetes.client import JSON, ApiError, Status
from rackyard.errors import RackyardError

MAX_LINE = 16 << 20
"""Bytes of one event. etcd takes objects of 1.5 MB, which grow as JSON; what is longer than this is no event."""


_STUBBORN = 3


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """What every object says of itself; kinds that use more of it have a Struct that extends this."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Watched(Protocol):
    """An object of any kind."""

    @property
    def metadata(self) -> Meta: ...


T = TypeVar("T", bound=Watched)


class Key(NamedTuple):
    """Which object; the namespace is empty for kinds that have none."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Put(Generic[T]):
    """The object as it is now."""

    object: T


@dataclass(frozen=True, slots=True)
class Gone(Generic[T]):
    """It is deleted; `last` is what it was last, where the server said so."""

    key: Key
    uid: str
    last: T | None = None


@dataclass(frozen=True, slots=True)
class Synced:
    """The list is complete; it comes again after each list that had to be read anew."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something failed; the next try is `wait` seconds away. 0: one object could not be read, and the rest goes on."""

    error: RackyardError
    wait: float


class Chunks(Protocol):
    """A body that goes on (`client.Stream`)."""

    def __iter__(self) -> Iterator[bytes]: ...

    def cut(self) -> None: ...


class Source(Protocol):
    """What is used of `client.Client`."""

    def get(self, path: str, params: Mapping[str, str], accept: str) -> bytes: ...

    def stream(
        self, path: str, params: Mapping[str, str], accept: str, patience: float
    ) -> AbstractContextManager[Chunks]: ...


@dataclass(frozen=True, slots=True)
class What(Generic[T]):
    """The kind at `path`, read as `kind`, of which field and label selectors pick some; `page` objects a request."""

    path: str
    kind: type[T]
    fields: str = ""
    labels: str = ""
    page: int = 500

    def params(self) -> dict[str, str]:
        chosen = {"fieldSelector": self.fields, "labelSelector": self.labels}
        return {key: value for key, value in chosen.items() if value}


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits after failures are drawn at random below `base` seconds, doubled each time up to `most`. A watch lasts
    `span` to twice `span` seconds, so that many do not end at once; a connection that is silent for longer is dead.
    """

    base: float = 0.5
    most: float = 30.0
    span: float = 60.0
    draw: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[threading.Event, float], object] = threading.Event.wait


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] = []


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Named(msgspec.Struct, frozen=True):
    metadata: Meta


class Watch(Generic[T]):
    """Iterate over it in one thread, once; `stop` it from any."""

    def __init__(self, source: Source, what: What[T], pace: Pace | None = None) -> None:
        self._source, self._what, self._pace = source, what, pace or Pace()
        self._decode = msgspec.json.Decoder(what.kind).decode
        self._known: dict[Key, str] = {}
        self._version = ""
        self._failures = 0
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._open: Chunks | None = None

    def stop(self) -> None:
        """End the iteration: at once where it waits or reads, else after the request under way."""
        with self._lock:
            self._stopped.set()
            if self._open is not None:
                self._open.cut()

    def __iter__(self) -> Iterator[Put[T] | Gone[T] | Synced | Trouble]:
        while not self._stopped.is_set():
            try:
                if not self._version:
                    yield from self._list()
                if not self._stopped.is_set():
                    yield from self._watch()
                continue
            except ApiError as error:
                trouble: RackyardError = error
                # Too old to go on from; or refused again and again, as where etcd went back to an older state.
                if error.status.code == 410 or (self._failures >= _STUBBORN and error.status.code != 429):
                    self._version = ""
            except _BrokenError as error:
                trouble, self._version = error, ""
            except RackyardError as error:
                trouble = error
            if not self._stopped.is_set():
                wait = self._backoff()
                yield Trouble(trouble, wait)
                self._pace.wait(self._stopped, wait)

    def _backoff(self) -> float:
        self._failures += 1
        return min(self._pace.most, self._pace.base * 2.0 ** min(self._failures - 1, 16)) * self._pace.draw()

    def _list(self) -> Iterator[Put[T] | Gone[T] | Synced | Trouble]:
        params = self._what.params() | {"limit": str(self._what.page)}
        listed: set[Key] = set()
        while not self._stopped.is_set():
            page = _decoded(self._source.get(self._what.path, params, JSON), _Page, "list")
            for raw in page.items:
                for event in self._put(raw):
                    yield event
                    if isinstance(event, Put):
                        listed.add(_key(event.object.metadata))
                    elif isinstance(event, Trouble) and (named := _name(raw)):
                        listed.add(_key(named))  # it can't be read, and yet it is there
            if page.metadata.continue_:
                params["continue"] = page.metadata.continue_
                continue
            for key in self._known.keys() - listed:
                yield Gone(key, self._known.pop(key))
            self._version = page.metadata.resource_version
            yield Synced()
            return

    def _watch(self) -> Iterator[Put[T] | Gone[T] | Synced | Trouble]:
        span = int(self._pace.span * (1 + self._pace.draw()))
        params = self._what.params() | {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(span)}
        params["resourceVersion"] = self._version
        began = self._pace.clock()
        with self._source.stream(self._what.path, params, JSON, span + 15.0) as chunks:
            with self._lock:
                self._open = chunks
                if self._stopped.is_set():
                    return
            try:
                for line in _lines(chunks):
                    yield from self._said(_decoded(line, _Line, "event"))
                    self._failures = 0
                    if self._stopped.is_set():
                        return
            finally:
                with self._lock:
                    self._open = None
        if self._pace.clock() - began < span / 2 and not self._stopped.is_set():
            # A server or proxy that hangs up at once must not be asked again at once.
            self._pace.wait(self._stopped, self._backoff())

    def _said(self, line: _Line) -> Iterator[Put[T] | Gone[T] | Trouble]:
        if line.type == "ERROR":
            status = _decoded(bytes(line.object), Status, "status")
            raise ApiError(f"watch of {self._what.path}: {status.code}", status, where=self._what.path)
        if line.type in ("ADDED", "MODIFIED"):
            for event in self._put(line.object):
                yield event
                if isinstance(event, Put):
                    self._version = event.object.metadata.resource_version or self._version
                    return
        elif line.type == "DELETED":
            meta = _decoded(bytes(line.object), _Named, "event").metadata
            self._known.pop(_key(meta), None)
            try:
                last = self._decode(line.object)
            except (msgspec.MsgspecError, RecursionError):
                last = None  # that it is gone is what counts
            yield Gone(_key(meta), meta.uid, last)
        elif line.type != "BOOKMARK":
            raise _BrokenError(f"an event of unknown type {line.type[:40]!r}", where=self._what.path)
        if (named := _name(line.object)) and named.resource_version:
            self._version = named.resource_version

    def _put(self, raw: msgspec.Raw) -> Iterator[Put[T] | Gone[T] | Trouble]:
        try:
            found = self._decode(raw)
        except (msgspec.MsgspecError, RecursionError) as error:
            named = _name(raw)
            where = f"{self._what.path} {'/'.join(_key(named)) if named else 'of no name'}"
            yield Trouble(RackyardError("an object can't be read, and is passed over", where=where, why=str(error)), 0)
            return
        key, uid = _key(found.metadata), found.metadata.uid
        if (before := self._known.get(key, uid)) != uid:  # deleted and made again while nobody watched
            yield Gone(key, before)
        self._known[key] = uid
        yield Put(found)


class _BrokenError(RackyardError):
    """What came is not what an API server says: begin from the list."""


def _lines(chunks: Chunks) -> Iterator[bytes]:
    """Whole lines; what a broken connection leaves of the last one is dropped, and comes again with the next watch."""
    left = b""
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            if left or line.strip():
                yield left + line
            left = b""
        left += rest
        if len(left) > MAX_LINE:
            raise _BrokenError("an event that does not end", why=f"over {MAX_LINE} bytes")


def _decoded(data: bytes, kind: type[Any], what: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _BrokenError(f"the API server's {what} can't be read", why=str(error)) from None


def _name(raw: msgspec.Raw) -> Meta | None:
    try:
        return msgspec.json.decode(raw, type=_Named).metadata
    except (msgspec.MsgspecError, RecursionError):
        return None


def _key(meta: Meta) -> Key:
    return Key(meta.namespace, meta.name)
