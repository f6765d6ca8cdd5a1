"""Kueue with its real webhooks and topology-aware scheduling."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.testbed.conftest import Needs
from tests.testbed.kueues import KUEUE, kueue
from tests.testbed.kueues import queue as add_queue
from tests.testbed.listening import listening
from tests.testbed.work import ENDS, JOBS, PODS, job

from rackyard.fabric.simulate import simulate
from testbed import Cluster, cluster, nodes
from testbed.api import Refused, until
from testbed.kueue import QUEUE_LABEL

pytestmark = pytest.mark.kube


@pytest.fixture(scope="module")
def queue(needs_testbed: Needs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two racks of four trays, with a queue for all of their GPUs."""
    needs_testbed(("kwok", "kueue"))
    with cluster(tmp_path_factory.mktemp("kueue") / "cluster", parts=("kwok", "kueue")) as bed:
        nodes.create(bed, simulate(racks=2, trays=4))
        (flavor,) = bed.api.items(f"{KUEUE}/resourceflavors")
        add_queue(bed, "jobs", flavor["metadata"]["name"], 32)
        yield bed


def test_a_job_that_requires_one_rack_gets_one(queue: Cluster) -> None:
    (topology,) = queue.api.items(f"{KUEUE}/topologies")
    rack = topology["spec"]["levels"][-2]["nodeLabel"]
    asked = {**ENDS, "kueue.x-k8s.io/podset-required-topology": rack}
    queue.api.post(JOBS, job("one-rack", 4, asked, {QUEUE_LABEL: "jobs"}))
    until("the Job to end", lambda: queue.api.get(f"{JOBS}/one-rack")["status"].get("succeeded") == 4)
    assert len({pod["spec"]["nodeName"][:3] for pod in queue.api.items(PODS)}) == 1


def test_the_webhooks_are_called(queue: Cluster) -> None:
    wrong = {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "None"}]}}
    with pytest.raises(Refused, match="admission webhook"):
        queue.api.post(f"{KUEUE}/clusterqueues", kueue("ClusterQueue", "wrong", wrong))


def test_jobs_of_no_queue_do_not_need_kueue(queue: Cluster) -> None:
    queue.kill("kueue")
    queue.api.post(JOBS, job("plain", 2, ENDS))
    until("the Job to end", lambda: queue.api.get(f"{JOBS}/plain")["status"].get("succeeded") == 2)
    queue.resume("kueue")


def test_kueue_listens_on_loopback_only(queue: Cluster) -> None:
    pid = queue.running()["kueue"].pid
    assert {address for address, _ in listening([pid])[pid]} == {"127.0.0.1"}
    assert Path(f"/proc/{pid}/cwd").resolve() == queue.folder
