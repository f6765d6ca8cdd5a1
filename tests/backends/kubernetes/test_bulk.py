"""Many writes at once against a stand-in that refuses: what is tried again, by whom, and what is not."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from standin import StandIn
from tests.backends.kubernetes.conftest import kubeconfig

from rackyard.backends.kubernetes.bulk import Answer, Bulk, Write
from rackyard.backends.kubernetes.client import ApiError, Client, Retry, Unreachable, connect
from rackyard.errors import UsageError

MERGE = "application/merge-patch+json"


@pytest.fixture
def bulk(client: Client) -> Iterator[Bulk]:
    found = Bulk(client)
    yield found
    found.close()


def named(count: int) -> list[str]:
    return [f"n-{number:02d}" for number in range(count)]


def make(name: str, stubborn: bool = True) -> Write:
    """A node to be made."""
    return Write("POST", "/api/v1/nodes", {"metadata": {"name": name}}, stubborn=stubborn)


def made(answer: Answer) -> Any:
    assert isinstance(answer, bytes), answer
    return json.loads(answer)["metadata"]["name"]


def codes(answers: list[Answer]) -> list[int]:
    """0 for what succeeded."""
    return [each.status.code if isinstance(each, ApiError) else 0 for each in answers]


def test_all_are_answered_in_their_order(standin: StandIn, bulk: Bulk) -> None:
    names = named(60)
    assert [made(each) for each in bulk.send([make(name) for name in names])] == names
    assert bulk.send([]) == []
    assert len(standin.requests) == 60


def test_a_refusal_is_the_answer_to_its_write_alone_and_is_not_tried_again(standin: StandIn, bulk: Bulk) -> None:
    (name,) = named(1)
    lost = Write("PATCH", "/api/v1/nodes/missing", {"metadata": {}}, MERGE)
    missing, there = bulk.send([lost, make(name)])
    assert isinstance(missing, ApiError) and missing.status.code == 404 and "not found" in str(missing)
    assert made(there) == name and len(standin.requests) == 2


def test_409_is_an_answer(standin: StandIn, bulk: Bulk) -> None:
    (name,) = named(1)
    standin.refuse = [(409, {})]
    assert codes(bulk.send([make(name)])) == [409] and len(standin.requests) == 1


@pytest.mark.parametrize("code", [429, 500, 503])
def test_passing_trouble_is_tried_again(standin: StandIn, bulk: Bulk, code: int) -> None:
    names = named(10)
    standin.refuse = [(code, {})] * 4
    assert [made(each) for each in bulk.send([make(name) for name in names])] == names
    assert len(standin.requests) == 14


def test_the_ordinary_client_waits_as_the_server_asks(standin: StandIn, bulk: Bulk, waits: list[float]) -> None:
    (name,) = named(1)
    standin.refuse = [(429, {}), (429, {"Retry-After": "7"})]
    assert made(bulk.send([make(name)])[0]) == name
    assert waits == [7.5]


def test_trouble_that_lasts_is_told_of_all_that_is_left_and_not_waited_for_each(
    standin: StandIn, bulk: Bulk, waits: list[float]
) -> None:
    names = named(20)
    standin.refuse = [(503, {})] * 1000
    assert codes(bulk.send([make(name) for name in names])) == [503] * 20
    assert len(waits) == 2 and len(standin.requests) == 23


def test_what_is_not_stubborn_is_refused_at_once(standin: StandIn, bulk: Bulk, waits: list[float]) -> None:
    """As evictions that a disruption budget forbids."""
    names = named(6)
    standin.refuse = [(429, {"Retry-After": "10"})] * 3
    answers = bulk.send([make(name, stubborn=False) for name in names])
    assert sorted(codes(answers)) == [0, 0, 0, 429, 429, 429]
    assert waits == [] and len(standin.requests) == 6


def test_a_token_that_is_renewed_is_used(standin: StandIn, tmp_path: Path, waits: list[float]) -> None:
    """The first answer is 401; the kubeconfig's token file has another one by then."""
    token = tmp_path / "token"
    token.write_text("old")
    config = json.loads(kubeconfig(tmp_path, standin.url).read_text())
    config["users"][0]["user"] = {"tokenFile": str(token)}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    (name, other) = named(2)
    standin.refuse = [(401, {})]
    with connect(str(tmp_path / "kubeconfig"), retry=Retry(tries=3, sleep=waits.append)) as client:
        bulk = Bulk(client)
        token.write_text("new")
        try:
            assert [made(each) for each in bulk.send([make(name), make(other)])] == [name, other]
        finally:
            bulk.close()


def test_credentials_that_stay_refused_are_said(standin: StandIn, bulk: Bulk) -> None:
    (name,) = named(1)
    standin.refuse = [(401, {})] * 9
    assert codes(bulk.send([make(name)])) == [401]


def test_no_credentials_is_said_of_all(standin: StandIn, tmp_path: Path) -> None:
    config = json.loads(kubeconfig(tmp_path, standin.url).read_text())
    exec_plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/command"}
    config["users"][0]["user"] = {"exec": exec_plugin}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    with connect(str(tmp_path / "kubeconfig")) as client:
        bulk = Bulk(client)
        try:
            answers = bulk.send([make("a"), make("b")])
        finally:
            bulk.close()
    assert all(isinstance(each, UsageError) and "no credentials" in str(each) for each in answers)
    assert not standin.requests


@pytest.mark.parametrize("stubborn", [True, False])
def test_a_server_that_is_not_there_is_told_of_all(client: Client, waits: list[float], stubborn: bool) -> None:
    bulk = Bulk(replace(client, server="http://127.0.0.1:9"))
    client.http.base_url = "http://127.0.0.1:9"  # the port of nothing
    try:
        answers = bulk.send([make(name, stubborn) for name in "abc"])
    finally:
        bulk.close()
    assert all(isinstance(each, Unreachable) for each in answers) and len(waits) == (2 if stubborn else 0)


def test_an_eviction_whose_connection_broke_is_tried_again_and_a_budgets_no_is_its_own(
    standin: StandIn, client: Client, waits: list[float]
) -> None:
    """The quick way finds no server; the ordinary one does, and is refused by a budget: the others are still asked."""
    bulk = Bulk(replace(client, server="http://127.0.0.1:9"))
    names = named(3)
    standin.refuse = [(429, {"Retry-After": "10"})]
    try:
        answers = bulk.send([make(name, stubborn=False) for name in names])
    finally:
        bulk.close()
    assert codes(answers) == [429, 0, 0] and waits == []
