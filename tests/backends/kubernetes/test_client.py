"""What is sent, and how often, by the requests that write."""

import json
from collections.abc import Callable

import httpx2
import pytest

from rackyard.backends.kubernetes.client import ApiError, Client, Retry, Unreachable

Answer = Callable[[httpx2.Request], httpx2.Response]


def made(answer: Answer, waits: list[float]) -> Client:
    http = httpx2.Client(transport=httpx2.MockTransport(answer), base_url="http://made.up")
    return Client(http, "http://made.up", Retry(tries=3, base=0.5, sleep=waits.append, draw=lambda: 1.0))


def test_what_each_sends(waits: list[float]) -> None:
    asked: list[tuple[str, str, str, str]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        kind = request.headers.get("Content-Type", "")
        asked.append((request.method, str(request.url), kind, request.content.decode()))
        return httpx2.Response(200, json={"done": True})

    with made(answer, waits) as client:
        assert json.loads(client.post("/a", {"dryRun": "All"}, {"x": 1})) == {"done": True}
        client.put("/a/b", {}, {"x": 2})
        client.delete("/a/b", {}, {"gracePeriodSeconds": 0})
        client.delete("/a/c", {})
    assert asked == [
        ("POST", "http://made.up/a?dryRun=All", "application/json", '{"x":1}'),
        ("PUT", "http://made.up/a/b", "application/json", '{"x":2}'),
        ("DELETE", "http://made.up/a/b", "application/json", '{"gracePeriodSeconds":0}'),
        ("DELETE", "http://made.up/a/c", "application/json", ""),
    ]


def test_writes_are_tried_again_while_it_is_worth_it(waits: list[float]) -> None:
    codes = [503, 429, 201]

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(codes.pop(0), json={})

    with made(answer, waits) as client:
        client.post("/a", {}, {})
    assert waits == [0.5, 1.0]


@pytest.mark.parametrize(
    ("method", "verb"), [("post", "grant create on"), ("put", "grant update on"), ("delete", "grant delete on")]
)
def test_who_may_not_is_told_what_to_grant(waits: list[float], method: str, verb: str) -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(403, json={"code": 403, "message": "no"})

    with made(answer, waits) as client, pytest.raises(ApiError, match=verb) as caught:
        getattr(client, method)("/a", {}, {})
    assert caught.value.status.code == 403 and waits == []


def test_a_stream_is_not_tried_again_and_is_no_answer_when_it_breaks(waits: list[float]) -> None:
    def broken(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    with made(broken, waits) as client, pytest.raises(Unreachable), client.stream("/a", {}, "application/json", 1.0):
        pass
    assert waits == []
