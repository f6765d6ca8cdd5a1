"""Reading nodes page by page, and finding a cluster to read them from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackyard.backends.kubernetes import client as clients
from rackyard.backends.kubernetes.client import Client, Retry, Unreachable, connect
from rackyard.backends.kubernetes.nodes import decode_node, read_nodes
from rackyard.errors import RackyardError, UsageError


def fill(standin: Any, count: int) -> None:
    for number in range(count):
        standin.create({"metadata": {"name": f"n{number}", "labels": {"half": str(number % 2)}}})


def test_all_pages_are_read_and_only_metadata_is_asked_for(standin: Any, client: Client) -> None:
    fill(standin, 7)
    assert [node.name for node in read_nodes(client, page=3)] == [f"n{number}" for number in range(7)]
    assert [query.get("continue") for _, _, query in standin.requests] == [None, "3", "6"]
    assert {query["accept"] for _, _, query in standin.requests} == {
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    }


def test_a_selector_picks_nodes(standin: Any, client: Client) -> None:
    fill(standin, 4)
    assert [node.name for node in read_nodes(client, "half=1")] == ["n1", "n3"]


def test_a_list_that_expires_is_begun_again(standin: Any, client: Client) -> None:
    fill(standin, 4)
    standin.expire = 2
    assert len(read_nodes(client, page=3)) == 4
    standin.expire = 3
    with pytest.raises(RackyardError, match="expired again and again"):
        read_nodes(client, page=3)


def test_pages_of_a_real_server(cluster: Any) -> None:
    names = [cluster.add(f"n{number}") for number in range(7)]
    found = read_nodes(cluster.client, f"run={cluster.prefix}", page=3)
    assert [node.name for node in found] == names and all(node.uid for node in found)


def test_our_labels_are_told_from_those_of_other_managers() -> None:
    def entry(manager: str, operation: str, *keys: str, **more: str) -> dict[str, Any]:
        fields = {"f:metadata": {"f:labels": {".": {}, **{f"f:{key}": {} for key in keys}}}}
        return {"manager": manager, "operation": operation, "fieldsV1": fields, **more}

    managed = [
        entry("rackyard", "Apply", "x/a", "x/b"),
        entry("rackyard", "Update", "x/c"),
        entry("rackyard", "Apply", "x/d", subresource="status"),
        entry("kubelet", "Update", "x/a"),
        {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}},
    ]
    found = decode_node(json.dumps({"metadata": {"name": "n", "uid": "u", "managedFields": managed}}).encode())
    assert found.ours() == {"x/a", "x/b"} and found.set_by("x/a") == ("rackyard", "kubelet")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"metadata": {"name": "n", "uid": ""}}', b"<html>"])
def test_an_answer_that_is_no_node_is_an_error(body: bytes) -> None:
    with pytest.raises(RackyardError, match="no node"):
        decode_node(body)


def test_no_damaged_answer_does_more_than_complain(fuzz: Callable[..., None]) -> None:
    fields = {"f:metadata": {"f:labels": {"f:rackyard.io/rack": {}}}}
    managed = {"manager": "rackyard", "operation": "Apply", "fieldsV1": fields}
    metadata = {"name": "n", "uid": "u", "labels": {"a": "b"}, "managedFields": [managed]}
    fuzz(lambda data: decode_node(data).ours(), [json.dumps({"metadata": metadata}).encode(), b"[" * 3000])


def test_no_server_is_tried_again_and_then_told(tmp_path: Path, waits: list[float]) -> None:
    path = tmp_path / "config"
    path.write_text(_config("http://127.0.0.1:1"))
    with (
        connect(str(path), retry=Retry(3, 0.5, waits.append, lambda: 1.0)) as client,
        pytest.raises(Unreachable, match="does not answer"),
    ):
        read_nodes(client)
    assert waits == [0.5, 1.0]


def _config(url: str) -> str:
    return f"""\
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{token: made-up}}}}]
"""


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: [", "not YAML"),
        ("", "has not the form"),
        ("current-context: c\ncontexts: []\nclusters: []", "Context 'c' not found"),
        ("contexts: []\nclusters: []", "No current context"),
        ("contexts: [{name: c}]\nclusters: []", "'context' is missing"),
        (_config("http://x").replace("cluster: c, user: u", "cluster: d, user: u"), "'d' is missing, or named"),
        (_config("http://x").replace(", user: u", ""), "names no user"),
        (_config("http://x").replace('server: "http://x"', "certificate-authority: gone.pem"), "No such file"),
        ("contexts: 5\nclusters: 5", "has not the form"),
    ],
)
def test_a_broken_kubeconfig_is_told_with_its_name(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        connect(str(path))
    assert word in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("user", "word"),
    [
        ("exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: /no/such/plug-in}", "No such file"),
        ("exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: 'false'}", "returned 1"),
        ("exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: 'true'}", "JSONDecodeError"),
        ("tokenFile: /no/such/token", "not found"),
    ],
)
def test_credentials_that_fail_only_when_used(tmp_path: Path, user: str, word: str) -> None:
    path = tmp_path / "config"
    path.write_text(_config("http://127.0.0.1:1").replace("token: made-up", user))
    with connect(str(path)) as client, pytest.raises(UsageError, match="no credentials") as caught:
        read_nodes(client)
    assert word in str(caught.value)


def test_where_a_cluster_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(clients, "_SERVICE_ACCOUNT", tmp_path / "account")
    with pytest.raises(UsageError, match="no cluster to talk to"):
        connect()

    (tmp_path / "account").mkdir()
    (tmp_path / "account" / "token").write_text("made-up")
    (tmp_path / "account" / "namespace").write_text("default")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(UsageError, match="can't be used"):  # there is no ca.crt
        connect()

    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(_config("http://home"))
    with connect() as client:
        assert client.server == "http://home"

    (tmp_path / "other").write_text(_config("http://other"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "other"))
    with connect() as client:
        assert client.server == "http://other"
    with connect(str(tmp_path / ".kube" / "config")) as client:
        assert client.server == "http://home"

    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    with pytest.raises(UsageError, match="several files"):
        connect()
