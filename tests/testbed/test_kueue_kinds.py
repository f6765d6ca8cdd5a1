"""JobSets and TrainJobs that Kueue queues, on a real API server: it decides when, Rackyard where."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from ruamel.yaml import YAML
from tests.cli.calling import Answer, call
from tests.testbed.gangkinds import JOBSETS, TRAINER, jobset, trainjob
from tests.testbed.gangset import CRDS, PODS, ROOT, SITE, controller, established, plan, plans
from tests.testbed.kueues import KUEUE, kueue, queue

from testbed import Cluster, cluster
from testbed.api import Refused, until
from testbed.nodes import create

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

PARTS = ("kwok", "kueue", "jobset", "trainer")


@pytest.fixture(scope="module")
def yard(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two racks of four trays, and a queue with quota for four trays."""
    needs_testbed(PARTS)
    with cluster(tmp_path_factory.mktemp("kueue-kinds") / "cluster", parts=PARTS) as bed:
        create(bed, SITE)
        bed.api.post(CRDS, YAML(typ="safe").load((ROOT / "deploy" / "crd.yaml").read_text()))
        until("the CRD is served", lambda: established(bed))
        bed.api.post(f"{KUEUE}/resourceflavors", kueue("ResourceFlavor", "plain", {}))
        queue(bed, "jobs", "plain", 16)
        yield bed


@pytest.fixture(autouse=True)
def tidy(yard: Cluster) -> Iterator[None]:
    yield
    for path in (f"{TRAINER}/trainjobs", f"{TRAINER}/trainingruntimes", JOBSETS):
        for each in yard.api.items(path):
            with suppress(Refused):
                yard.api.delete(f"{path}/{each['metadata']['name']}", propagationPolicy="Background")
    until("no pod is left", lambda: not yard.api.items(PODS), 60)


def why(bed: Cluster, name: str) -> Answer:
    return call("why", name, "--target", "kubernetes", "--kubeconfig", bed.kubeconfig)


def test_one_jobset_waits_for_the_quota_of_another(yard: Cluster) -> None:
    jobset(yard, "first", "jobs")
    with controller(yard) as told:
        told.wait("first", "Bound")
        jobset(yard, "second", "jobs")
        until("Kueue has said why", lambda: "insufficient unused quota" in why(yard, "second").out)
        assert "second is pending: Kueue has not admitted it in queue jobs" in why(yard, "second").out
        assert yard.api.get(f"{JOBSETS}/second")["spec"]["suspend"] and not plans(yard, "second")
        yard.api.delete(f"{JOBSETS}/first", propagationPolicy="Background")
        told.wait("second", "Bound")
    assert len(set(plan(yard, "second"))) == 4


def test_a_trainjob_is_let_in_by_kueue_and_placed(yard: Cluster) -> None:
    jobset(yard, "first", "jobs")
    with controller(yard) as told:
        told.wait("first", "Bound")
        trainjob(yard, "jobs")
        until("Kueue has said why", lambda: "insufficient unused quota" in why(yard, "tj").out)
        assert "tj is pending: Kueue has not admitted it in queue jobs" in why(yard, "tj").out
        yard.api.delete(f"{JOBSETS}/first", propagationPolicy="Background")
        told.wait("tj", "Bound")
    assert len(set(plan(yard, "tj"))) == 2
