"""A stand-in for the API server, and where the test bed is built the real one beside it."""

import itertools
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

# With `--import-mode=importlib` a test module's folder isn't searched for what it imports.
sys.path.insert(0, str(Path(__file__).parent))

from standin import StandIn, serving
from tests.testbed.conftest import need

import testbed
from rackyard.backends.kubernetes.client import Client, Retry, connect
from rackyard.backends.kubernetes.nodes import ClusterNode, read_nodes

_NUMBERS = itertools.count()


def kubeconfig(folder: Path, url: str, token: str = "made-up") -> Path:
    """A kubeconfig for that server."""
    cluster = {"server": url, "insecure-skip-tls-verify": urlsplit(url).hostname == "127.0.0.1"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": token}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


@dataclass
class Cluster:
    """A cluster to try things on. Its nodes carry names of their own, so that a real cluster keeps its others."""

    client: Client
    prefix: str
    made: list[str] = field(default_factory=list)

    def name(self, short: str) -> str:
        return f"{self.prefix}-{short}"

    def add(self, short: str, labels: dict[str, str] | None = None) -> str:
        """Make a node; its labels are set by somebody else than Rackyard."""
        name = self.name(short)
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"run": self.prefix}}}
        self.client.http.post("/api/v1/nodes", params={"fieldManager": "admin"}, json=body).raise_for_status()
        self.made.append(name)
        if labels:
            self.apply_as("admin", short, {"run": self.prefix} | labels)
        return name

    def delete(self, short: str) -> None:
        self.client.http.delete(f"/api/v1/nodes/{self.name(short)}").raise_for_status()
        self.made.remove(self.name(short))

    def apply_as(self, manager: str, short: str, labels: dict[str, str]) -> None:
        """Server-side apply by somebody else."""
        name = self.name(short)
        body: Any = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        answer = self.client.http.patch(
            f"/api/v1/nodes/{name}",
            params={"fieldManager": manager, "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            content=json.dumps(body),
        )
        answer.raise_for_status()

    def label_by_hand(self, short: str, labels: dict[str, str]) -> None:
        """What `kubectl label --overwrite` sends."""
        answer = self.client.http.patch(
            f"/api/v1/nodes/{self.name(short)}",
            params={"fieldManager": "kubectl-label"},
            headers={"Content-Type": "application/merge-patch+json"},
            content=json.dumps({"metadata": {"labels": labels}}),
        )
        answer.raise_for_status()

    def nodes(self) -> dict[str, ClusterNode]:
        """What is there, by name."""
        return {node.name: node for node in read_nodes(self.client, f"run={self.prefix}")}

    def labels(self, short: str) -> dict[str, str]:
        """The labels of a node less those that a cluster gives by itself."""
        found = self.nodes()[self.name(short)].labels
        return {key: value for key, value in found.items() if key != "run" and "kubernetes.io/" not in key}


@pytest.fixture
def standin() -> Iterator[StandIn]:
    """The stand-in."""
    with serving() as made:
        yield made


@pytest.fixture
def waits() -> list[float]:
    """The waits between tries, which nobody waits for."""
    return []


@pytest.fixture
def client(standin: StandIn, tmp_path: Path, waits: list[float]) -> Iterator[Client]:
    """A client of the stand-in."""
    retry = Retry(tries=3, base=0.5, sleep=waits.append, draw=lambda: 1.0)
    with connect(str(kubeconfig(tmp_path, standin.url)), retry=retry) as made:
        yield made


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a real API server."""
    need(())
    with testbed.cluster(tmp_path_factory.mktemp("apiserver") / "cluster") as bed:
        yield bed.kubeconfig


@pytest.fixture(params=["stand-in", pytest.param("kube-apiserver", marks=pytest.mark.kube)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The stand-in, and a real API server."""
    real = request.param == "kube-apiserver"
    client = connect(str(request.getfixturevalue("apiserver"))) if real else request.getfixturevalue("client")
    made = Cluster(client, f"rackyard-test-{os.getpid()}-{next(_NUMBERS)}")
    yield made
    for name in made.made:
        client.http.delete(f"/api/v1/nodes/{name}")
    if real:
        client.http.close()
