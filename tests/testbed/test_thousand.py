"""A gang of 1,000 pods on 1,260 nodes: whatever is killed in the middle of its release, it is bound as a whole."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from rackyard.controller.kube.objects import GANG, GATE, GPU, SIZE
from rackyard.errors import NotYet
from rackyard.fabric import simulate
from rackyard.fabric.yamlio import dump
from testbed import Cluster, Options, cluster
from testbed.api import until
from testbed.nodes import create

pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]

SITE = simulate(70, racks_per_block=8)
PODS = 1000
PATH = "/api/v1/namespaces/default/pods"
PLANS = "/apis/rackyard.io/v1alpha1/namespaces/default/gangplans"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def yard(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_testbed(("kwok",))
    folder = tmp_path_factory.mktemp("thousand")
    with cluster(folder / "cluster", parts=("kwok",), options=Options(load=True)) as bed:
        create(bed, SITE)
        crd = YAML(typ="safe").load((ROOT / "deploy" / "crd.yaml").read_text())
        bed.api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        (folder / "site.yaml").write_text(dump(SITE))
        yield bed


@pytest.fixture(autouse=True)
def tidy(yard: Cluster) -> Iterator[None]:
    yield
    yard.api.delete(PATH, gracePeriodSeconds="0")
    until("no pod is left", lambda: not yard.api.items(PATH), 120)
    yard.api.delete(PLANS)


class Controller:
    """`rackyard kube run` as a process, and what it says."""

    def __init__(self, bed: Cluster) -> None:
        site = bed.folder.parent / "site.yaml"
        command = [sys.executable, "-m", "rackyard", "kube", "run", "--site", str(site), "--no-lease"]
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [*command, "--kubeconfig", str(bed.kubeconfig)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                self.lines.append(line)

    def says(self, word: str) -> None:
        self.until(f"it says {word}", lambda: any(f": {word}:" in line for line in self.lines))

    def until(self, what: str, check: Callable[[], object]) -> None:
        try:
            until(what, check, 180, pause=0.01)
        except NotYet as error:
            error.add_note("".join(self.lines[-20:]))
            raise

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._reader.join()


@contextmanager
def controller(bed: Cluster) -> Iterator[Controller]:
    found = Controller(bed)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.kill()


def submit(bed: Cluster) -> None:
    def one(number: int) -> None:
        body: dict[str, Any] = {
            "metadata": {
                "name": f"g-{number}",
                "labels": {GANG: "g"},
                "annotations": {SIZE: str(PODS)},
            },
            "spec": {
                "schedulingGates": [{"name": GATE}],
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "none", "resources": {"limits": {GPU: "4"}}}],
            },
        }
        bed.api.post(PATH, body)

    bed.api.many(one, range(PODS))


def free(bed: Cluster, pod: str) -> bool:
    return "schedulingGates" not in bed.api.get(f"{PATH}/{pod}")["spec"]


def let_go(bed: Cluster) -> int:
    return sum("schedulingGates" not in pod["spec"] for pod in bed.api.items(PATH, resourceVersion="0"))


def bound_as_planned(bed: Cluster) -> int:
    """Racks that the gang spans, when all of its pods are where its one plan wants them."""
    (plan,) = bed.api.items(PLANS)
    wanted = {member["pod"]: member["node"] for member in plan["spec"]["members"]}
    assert {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in bed.api.items(PATH)} == wanted
    assert plan["status"]["phase"] == "Bound" and len(set(wanted.values())) == PODS
    return len({SITE.node(node).rack for node in wanted.values()})


def test_killed_in_the_middle_of_a_release_the_next_one_completes_it(yard: Cluster) -> None:
    with controller(yard) as first:
        first.says("Watching")
        submit(yard)
        first.until("some are let go", lambda: free(yard, "g-100"))
        first.kill()
    left = let_go(yard)
    assert 0 < left < PODS, "it was killed too late to show anything"
    with controller(yard) as second:
        second.says("Bound")
    assert bound_as_planned(yard) == 56, "the fewest racks that 1,000 pods fit into"


def test_the_api_server_is_killed_in_the_middle_of_a_release(yard: Cluster) -> None:
    with controller(yard) as one:
        one.says("Watching")
        submit(yard)
        one.until("some are let go", lambda: free(yard, "g-100"))
        yard.restart("kube-apiserver", hard=True)
        one.says("Bound")
    assert bound_as_planned(yard) == 56
