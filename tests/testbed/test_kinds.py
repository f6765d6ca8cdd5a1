"""The real JobSet, LeaderWorkerSet and Trainer: whose pods they are, what becomes of them, and their ComputeDomain."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec
import pytest
from ruamel.yaml import YAML
from tests.testbed.gangkinds import (
    DOMAINS,
    JOBSETS,
    LWS,
    TRAINER,
    WORKERS,
    definition,
    jobset,
    of_kind,
    template,
    trainjob,
    workers,
)
from tests.testbed.gangset import CRDS, PLANS, PODS, ROOT, SITE, controller, established, plans
from tests.testbed.listening import listening

from rackyard.controller.kube.domains import ASKED, compute_domain
from rackyard.controller.kube.kinds import gang_name, owner_of, place_in_gang, size_of
from rackyard.controller.kube.objects import Pod
from testbed import Cluster, cluster
from testbed.api import MERGE, Refused, until
from testbed.nodes import create

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

PARTS = ("kwok", "jobset", "lws", "trainer")


@pytest.fixture(scope="module")
def yard(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_testbed(PARTS)
    with cluster(tmp_path_factory.mktemp("kinds") / "cluster", parts=PARTS) as bed:
        create(bed, SITE)
        bed.api.post(CRDS, YAML(typ="safe").load((ROOT / "deploy" / "crd.yaml").read_text()))
        bed.api.post(CRDS, definition())
        until("the CRDs are served", lambda: established(bed) and served(bed))
        yield bed


@pytest.fixture(autouse=True)
def tidy(yard: Cluster) -> Iterator[None]:
    yield
    for path in (f"{TRAINER}/trainjobs", f"{TRAINER}/trainingruntimes", JOBSETS, LWS):
        for each in yard.api.items(path):
            with suppress(Refused):
                yard.api.delete(f"{path}/{each['metadata']['name']}", propagationPolicy="Background")
    until("no pod is left", lambda: not yard.api.items(PODS), 60)
    for each in yard.api.items(PLANS):  # the garbage collector learns of new kinds every half minute only
        with suppress(Refused):
            yard.api.delete(f"{PLANS}/{each['metadata']['name']}")


def pods(bed: Cluster) -> list[Pod]:
    """Those that are not being deleted."""
    found = [msgspec.convert(each, Pod) for each in bed.api.items(PODS)]
    return [each for each in found if not each.metadata.deletion_timestamp and not each.over]


def gangs(bed: Cluster) -> dict[str, list[Pod]]:
    """The pods of each gang, in rank order."""
    found: dict[str, list[Pod]] = {}
    for each in pods(bed):
        if name := gang_name(each):
            found.setdefault(name, []).append(each)
    return {name: sorted(each, key=lambda pod: place_in_gang(pod) or ()) for name, each in found.items()}


def hosts(of: list[Pod]) -> list[str]:
    return [each.spec.hostname for each in of]


def uids(of: list[Pod]) -> set[str]:
    return {each.metadata.uid for each in of}


def test_the_pods_of_a_jobset_are_one_gang(yard: Cluster) -> None:
    jobset(yard)
    until("the pods are there", lambda: len(pods(yard)) == 5)
    found = gangs(yard)
    assert {name: hosts(of) for name, of in found.items()} == {"js": ["js-w-0-0", "js-w-0-1", "js-w-1-0", "js-w-1-1"]}
    made = yard.api.get(f"{JOBSETS}/js")
    assert owner_of(found["js"][0]).uid == made["metadata"]["uid"]


def test_each_group_of_a_leaderworkerset_is_a_gang(yard: Cluster) -> None:
    workers(yard)
    until("the pods are there", lambda: len(pods(yard)) == 6)
    found = gangs(yard)
    assert {name: hosts(of) for name, of in found.items()} == {
        "lw-0": ["lw-0", "lw-0-1", "lw-0-2"],
        "lw-1": ["lw-1", "lw-1-1", "lw-1-2"],
    }
    assert {size_of(each) for of in found.values() for each in of} == {3}


def test_a_trainjob_is_a_jobset_of_its_name(yard: Cluster) -> None:
    trainjob(yard)
    until("the pods are there", lambda: len(pods(yard)) == 2)
    assert {name: hosts(of) for name, of in gangs(yard).items()} == {"tj": ["tj-node-0-0", "tj-node-0-1"]}


@pytest.mark.parametrize(
    ("make", "names"),
    [(jobset, ["js"]), (workers, ["lw-0", "lw-1"]), (trainjob, ["tj"])],
    ids=["jobset", "lws", "trainer"],
)
def test_gangs_are_bound_in_order_and_come_back_whole(
    yard: Cluster, make: Callable[[Cluster], None], names: list[str]
) -> None:
    make(yard)
    with controller(yard) as told:
        for name in names:
            told.wait(name, "Bound")
        before, at = gangs(yard), len(told.lines)
        for name in names:
            members = plans(yard, name)[-1]["spec"]["members"]
            assert [pod.spec.node_name for pod in before[name]] == [member["node"] for member in members]
        taken = before[names[0]][-1]
        where = {"name": taken.metadata.name, "namespace": "default"}
        evicted = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": where}
        yard.api.post(f"{PODS}/{taken.metadata.name}/eviction", evicted)
        told.wait(names[0], "Bound", at)
    after = gangs(yard)
    assert hosts(after[names[0]]) == hosts(before[names[0]])
    assert not uids(after[names[0]]) & uids(before[names[0]]), "all of the gang are new"
    assert all(uids(after[name]) == uids(before[name]) for name in names[1:]), "other gangs were left alone"
    assert all(pod.spec.node_name for of in after.values() for pod in of)


def test_the_compute_domain_of_a_gang_is_accepted_and_goes_with_it(yard: Cluster) -> None:
    of = template(2, resourceClaims=[{"name": "channel", "resourceClaimTemplateName": "lw-channel"}])
    of["metadata"]["annotations"][ASKED] = "lw-channel"
    of["spec"]["containers"][0]["resources"]["claims"] = [{"name": "channel"}]
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": of}}
    yard.api.post(LWS, of_kind(*WORKERS, "lw", spec))
    until("the pods are there", lambda: len(pods(yard)) == 2)
    body = compute_domain(gangs(yard)["lw-0"])
    assert body is not None
    yard.api.post(f"{DOMAINS}?fieldValidation=Strict", body)
    with pytest.raises(Refused, match="409"):
        yard.api.post(DOMAINS, body)
    with pytest.raises(Refused, match="422"):
        yard.api.patch(f"{DOMAINS}/lw", {"spec": {"numNodes": 2}}, MERGE)
    yard.api.delete(f"{LWS}/lw", propagationPolicy="Background")
    until("it went with its owner", lambda: not yard.api.items(DOMAINS), 60)


def served(bed: Cluster) -> bool:
    try:
        return bed.api.get(DOMAINS)["items"] == []
    except Refused:
        return False


def test_they_listen_on_loopback_only(yard: Cluster) -> None:
    running = {yard.running()[name].pid for name in PARTS[1:]}
    assert {address for at in listening(running).values() for address, _ in at} == {"127.0.0.1"}
