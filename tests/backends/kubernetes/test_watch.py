"""List and watch: told from scripts of what a server says, and once over a socket."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import msgspec
import pytest

from rackyard.backends.kubernetes import watch as watches
from rackyard.backends.kubernetes.client import ApiError, Client, Retry, Status, Unreachable
from rackyard.backends.kubernetes.watch import Gone, Key, Meta, Pace, Put, Synced, Trouble, Watch, What

PATH = "/api/v1/things"


class Thing(msgspec.Struct, frozen=True):
    """An object with one field that is used."""

    metadata: Meta
    size: int = 0


def thing(name: str, version: int, uid: str = "", size: int = 0) -> dict[str, Any]:
    meta = {"name": name, "namespace": "n", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"kind": "Thing", "metadata": meta, "size": size, "unused": {"a": [1, 2]}}


def page(version: int, *things: dict[str, Any], more: str = "") -> bytes:
    meta = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return json.dumps({"kind": "ThingList", "metadata": meta, "items": things}).encode()


def event(kind: str, content: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"kind": "Thing", "metadata": {"resourceVersion": str(version)}})


def refusal(code: int) -> ApiError:
    return ApiError(f"GET: {code}", Status(code=code), where="here")


class Script:
    """A server that says what it was given: pages (or errors) to lists, pieces (or errors) to watches, in this order.
    When a watch has no script left, it stops the watcher.
    """

    def __init__(self, pages: list[Any], streams: list[list[Any]]) -> None:
        self.pages, self.streams = pages, streams
        self.lists: list[dict[str, str]] = []
        self.watches: list[dict[str, str]] = []
        self.stop: Any = lambda: None

    def get(self, path: str, params: Mapping[str, str], accept: str) -> bytes:
        assert path == PATH and accept == "application/json"
        self.lists.append(dict(params))
        found = self.pages.pop(0)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, bytes)
        return found

    @contextmanager
    def stream(self, path: str, params: Mapping[str, str], accept: str, patience: float) -> "Iterator[Pieces]":
        self.watches.append(dict(params))
        if not self.streams:
            self.stop()
        yield Pieces(self.streams.pop(0) if self.streams else [])


@dataclass
class Pieces:
    """A body."""

    pieces: list[Any]
    cuts: int = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def cut(self) -> None:
        self.cuts += 1


@dataclass
class Told:
    """What a watch told, and how long it waited."""

    events: list[Any] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def short(self) -> list[str]:
        words = []
        for one in self.events:
            match one:
                case Put(found):
                    words.append(f"+{found.metadata.name}@{found.metadata.resource_version}")
                case Gone(key, _):
                    words.append(f"-{key.name}")
                case Synced():
                    words.append("synced")
                case Trouble():
                    words.append("trouble")
        return words


def told(script: Script, **what: Any) -> Told:
    found, now = Told(), [0.0]

    def wait(_: threading.Event, seconds: float) -> None:
        found.waits.append(seconds)

    pace = Pace(base=1.0, most=8.0, span=60, draw=lambda: 1.0, clock=lambda: now[0], wait=wait)
    watch = Watch(script, What(PATH, Thing, **what), pace)
    script.stop = watch.stop
    found.events = list(watch)
    return found


def test_pages_then_changes_from_where_the_list_was() -> None:
    script = Script(
        [page(7, thing("a", 1), thing("b", 2), more="next"), page(7, thing("c", 3))],
        [[event("MODIFIED", thing("a", 8, size=5)), event("DELETED", thing("b", 9)), event("ADDED", thing("d", 10))]],
    )
    found = told(script, page=2, fields="spec.x=y", labels="l in (a,b)")
    assert found.short() == ["+a@1", "+b@2", "+c@3", "synced", "+a@8", "-b", "+d@10"]
    assert found.events[4].object.size == 5
    assert found.events[5].last.metadata.resource_version == "9"
    chosen = {"fieldSelector": "spec.x=y", "labelSelector": "l in (a,b)"}
    assert script.lists == [chosen | {"limit": "2"}, chosen | {"limit": "2", "continue": "next"}]
    assert [one["resourceVersion"] for one in script.watches] == ["7", "10"]
    assert script.watches[0] == chosen | {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "120",
    }


def test_a_bookmark_says_where_to_go_on_and_nothing_else() -> None:
    script = Script([page(7)], [[bookmark(90)], []])
    assert told(script).short() == ["synced"]
    assert [one["resourceVersion"] for one in script.watches] == ["7", "90", "90"]


def test_pieces_need_not_be_lines() -> None:
    text = event("ADDED", thing("a", 8)) + b"\n" + event("ADDED", thing("b", 9))
    for size in (1, 7, 100, 1000):
        script = Script([page(7)], [[text[at : at + size] for at in range(0, len(text), size)]])
        assert told(script).short() == ["synced", "+a@8", "+b@9"]


@pytest.mark.parametrize(
    "broken",
    [refusal(410), event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})],
    ids=["refused", "in the stream"],
)
def test_410_lists_again_and_tells_what_went_meanwhile(broken: Any) -> None:
    script = Script(
        [page(7, thing("a", 1), thing("b", 2), thing("c", 3)), page(20, thing("a", 1), thing("c", 19, uid="another"))],
        [[broken]],
    )
    found = told(script)
    assert found.short() == ["+a@1", "+b@2", "+c@3", "synced", "trouble", "+a@1", "-c", "+c@19", "-b", "synced"]
    assert [one.uid for one in found.events if isinstance(one, Gone)] == ["uid-c", "uid-b"]
    assert script.watches[-1]["resourceVersion"] == "20"


def test_a_list_that_expires_between_pages_is_begun_again() -> None:
    script = Script([page(7, thing("a", 1), more="x"), refusal(410), page(9, thing("b", 8))], [])
    found = told(script)
    assert found.short() == ["+a@1", "trouble", "+b@8", "-a", "synced"]
    assert [one.get("continue") for one in script.lists] == [None, "x", None]


def test_a_broken_stream_goes_on_from_the_last_event() -> None:
    cut = event("ADDED", thing("b", 9))[:20]
    script = Script(
        [page(7)], [[event("ADDED", thing("a", 8)), cut, Unreachable("gone")], [event("ADDED", thing("b", 9))]]
    )
    assert told(script).short() == ["synced", "+a@8", "trouble", "+b@9"]
    assert [one["resourceVersion"] for one in script.watches] == ["7", "8", "9"]


def test_waits_grow_with_failures_and_begin_anew_after_a_success() -> None:
    down = Unreachable("no answer")
    script = Script([down, down, down, down, down, page(7)], [[bookmark(8)], []])
    found = told(script)
    assert [one.wait for one in found.events if isinstance(one, Trouble)] == [1, 2, 4, 8, 8]
    assert found.waits == [1, 2, 4, 8, 8, 1, 2]  # a stream that ends at once is no success


@pytest.mark.parametrize(
    "line", [b"{nonsense\n", b'{"type": 5}\n', b'{"type": "WHAT", "object": {}}\n', b"[" * 3000 + b"\n"]
)
def test_a_line_that_is_no_event_begins_from_the_list(line: bytes) -> None:
    script = Script([page(7, thing("a", 1)), page(9, thing("a", 8))], [[line]])
    assert told(script).short() == ["+a@1", "synced", "trouble", "+a@8", "synced"]


def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "MAX_LINE", 1000)
    script = Script([page(7), page(8)], [[b"x" * 600, b"x" * 600, AssertionError("read on")]])
    assert told(script).short() == ["synced", "trouble", "synced"]


def test_an_object_that_cannot_be_read_is_told_and_passed_over() -> None:
    odd = thing("odd", 2) | {"size": "large"}
    script = Script(
        [page(7, thing("a", 1), odd), page(30, odd)],
        [[event("MODIFIED", odd | {"metadata": odd["metadata"] | {"resourceVersion": "11"}})], [refusal(410)]],
    )
    found = told(script)
    assert found.short() == ["+a@1", "trouble", "synced", "trouble", "trouble", "trouble", "-a", "synced"]
    assert found.events[1].wait == 0 and "n/odd" in str(found.events[1].error)
    assert [one["resourceVersion"] for one in script.watches] == ["7", "11", "30"]


def test_one_that_was_read_before_stays_known_when_it_cannot_be_read() -> None:
    odd = thing("a", 2) | {"size": "large"}
    script = Script([page(7, thing("a", 1)), page(9, odd)], [[refusal(410)]])
    assert told(script).short() == ["+a@1", "synced", "trouble", "trouble", "synced"]


def test_a_server_that_refuses_again_and_again_is_listed_anew() -> None:
    """As when etcd went back to an older state: the version is of a future that never came (504 in the stream)."""
    error = event("ERROR", {"kind": "Status", "code": 504, "message": "Too large resource version"})
    script = Script([page(70), page(7)], [[error]] * 4)
    assert told(script).short() == ["synced", "trouble", "trouble", "trouble", "trouble", "synced"]


def test_stop_in_the_middle_of_pages() -> None:
    script = Script([page(7, thing("a", 1), more="x")], [])
    watch = Watch(script, What(PATH, Thing))
    found = []
    for one in watch:
        found.append(one)
        watch.stop()
    assert len(found) == 1 and script.watches == []


def test_stop_ends_a_wait() -> None:
    script = Script([Unreachable("down")], [])
    watch = Watch(script, What(PATH, Thing), Pace(base=1000, most=1000, draw=lambda: 1.0))
    heard = threading.Event()

    def listen() -> None:
        for one in watch:
            assert isinstance(one, Trouble)
            heard.set()

    thread = threading.Thread(target=listen)
    thread.start()
    assert heard.wait(30)
    watch.stop()
    thread.join(30)
    assert not thread.is_alive()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if "watch=1" not in self.path:
            self._answer(200, page(7, thing("a", 1)))
        elif self.server.calls:  # type: ignore[attr-defined]
            self._answer(self.server.calls.pop(), b'{"kind": "Status", "code": 403, "message": "no"}')  # type: ignore[attr-defined]
        else:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            line = event("ADDED", thing("b", 8))
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.server.over.wait(60)  # type: ignore[attr-defined]

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_over_a_socket_with_a_refusal_and_a_stop_while_it_reads() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.over, server.calls = threading.Event(), [403]  # type: ignore[attr-defined]
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    found = Told()
    read = threading.Event()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        with Client(httpx2.Client(base_url=url), url, Retry(tries=1)) as client:
            watch = Watch(client, What(PATH, Thing), Pace(base=0.001))

            def listen() -> None:
                for one in watch:
                    found.events.append(one)
                    if isinstance(one, Put) and one.object.metadata.name == "b":
                        read.set()

            thread = threading.Thread(target=listen)
            thread.start()
            assert read.wait(30)
            watch.stop()
            thread.join(30)
            assert not thread.is_alive()
    finally:
        server.over.set()  # type: ignore[attr-defined]
        server.shutdown()
        serving.join()
        server.server_close()
    assert found.short() == ["+a@1", "synced", "trouble", "+b@8"]
    error = found.events[2].error
    assert isinstance(error, ApiError) and error.status.code == 403 and "get, list and watch" in str(error)


def test_no_damaged_stream_does_more_than_complain(fuzz: Any) -> None:
    def read(data: bytes) -> None:
        told(Script([page(7), page(7)], [[data]]))

    seeds = [
        event("ADDED", thing("a", 8)) + event("DELETED", thing("a", 9)),
        bookmark(9),
        event("ERROR", {"code": 410}),
    ]
    fuzz(read, seeds)


def test_keys_of_objects_without_namespace() -> None:
    node = {"metadata": {"name": "r01", "uid": "u", "resourceVersion": "1"}}
    script = Script([page(7, node), page(9)], [[refusal(410)]])
    found = told(script)
    assert found.events[-2] == Gone(Key("", "r01"), "u")
