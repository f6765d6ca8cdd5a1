"""The commands, asked about gangs that others made: JobSet, LeaderWorkerSet, TrainJob, StatefulSet, Job, bare pods."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.cli.calling import Answer, call
from tests.testbed.gangkinds import jobset, template, trainjob, workers
from tests.testbed.gangset import CRDS, PODS, ROOT, SITE, controller, established, submit
from tests.testbed.rig import Rig, controlled, rig
from tests.testbed.work import JOBS

from rackyard.controller.kube.objects import GANG
from testbed import Cluster, cluster
from testbed.api import Refused, until
from testbed.nodes import create

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

PARTS = ("kwok", "jobset", "lws", "trainer")


@pytest.fixture(scope="module")
def yard(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_testbed(PARTS)
    with cluster(tmp_path_factory.mktemp("others") / "cluster", parts=PARTS) as bed:
        create(bed, SITE)
        bed.api.post(CRDS, YAML(typ="safe").load((ROOT / "deploy" / "crd.yaml").read_text()))
        until("the CRD is served", lambda: established(bed))
        yield bed


def ask(bed: Cluster, *words: object) -> Answer:
    return call(*words, "--target", "kubernetes", "--kubeconfig", bed.kubeconfig)


def bare(bed: Cluster) -> None:
    for at in range(2):
        made = template(2)
        made["metadata"] |= {"name": f"bare-{at}", "labels": {GANG: "bare"}}
        bed.api.post(PODS, made)


def test_every_kind_is_listed_explained_and_ended_by_its_owner(yard: Cluster) -> None:
    """Eight trays hold the JobSet and a StatefulSet of four; the others have no seat."""
    submit(yard, "set", 4)
    jobset(yard)
    with controller(yard) as told:
        for name in ("set", "js"):
            told.wait(name, "Bound")
        workers(yard)
        trainjob(yard)
        bare(yard)
        for name in ("lw-0", "lw-1", "tj", "bare"):
            told.wait(name, "NoSeat")
        for name in ("lw-0", "lw-1", "tj", "bare"):
            until("why has it from Rackyard", lambda name=name: "waits for a seat" in ask(yard, "why", name).out)
        for name in ("set", "js"):
            until("it runs", lambda name=name: " runs: 4 pods on 4 nodes" in ask(yard, "why", name).out)
    rows = {row["job"]: row for row in json.loads(ask(yard, "ps", "-a", "-o", "json").out)}
    assert {name: (row["phase"], row["gpus"], row["attempt"]) for name, row in rows.items()} == {
        "set": ("running", 16, 1),
        "js": ("running", 16, 1),
        "lw-0": ("pending", 12, 0),
        "lw-1": ("pending", 12, 0),
        "tj": ("pending", 8, 0),
        "bare": ("pending", 8, 0),
    }
    ends = {
        "set": "statefulset.apps set",
        "js": "jobset.jobset.x-k8s.io js",
        "lw-0": "leaderworkerset.leaderworkerset.x-k8s.io lw",
        "tj": "trainjob.trainer.kubeflow.org tj",
        "bare": "pods -l rackyard.io/gang=bare",
    }
    for name, resource in ends.items():
        refused = ask(yard, "cancel", name, "-y")
        kubectl = f"kubectl -n default --kubeconfig {yard.kubeconfig}"
        assert refused.code == 2 and f"fix: {kubectl} delete {resource}" in refused.err, refused
    (attempt,) = json.loads(ask(yard, "attempts", "js", "-o", "json").out)["attempts"]
    assert attempt["number"] == 1 and attempt["seats"].count("-t0") == 4
    assert "did you mean bare?" in ask(yard, "why", "bear").err
    assert "several gangs" in ask(yard, "why", "lw").err


@pytest.fixture(scope="module")
def real(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    needs_testbed(("volcano",))
    with rig(tmp_path_factory.mktemp("other-logs")) as made:
        yield made


def of_two(command: str) -> dict[str, Any]:
    made = template(2, restartPolicy="Never", hostNetwork=True)
    made["spec"]["containers"][0]["command"] = ["sh", "-c", command]
    return made


def test_logs_stand_behind_the_pods_names(real: Rig) -> None:
    script = "echo hello from $JOB_COMPLETION_INDEX; echo 'RuntimeError: no luck'; echo bye"
    job = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "template": of_two(script)}
    real.bed.api.post(JOBS, {"metadata": {"name": "talks"}, "spec": job})
    with controlled(real):
        real.until("it is over", lambda: "talks is succeeded: all ranks ended well" in real.why("talks"))
    names = [pod["metadata"]["name"] for pod in real.bed.api.items(PODS)]
    first, second = sorted(names, key=lambda name: name.split("-")[1])
    lines = real.call("logs", "talks").out.splitlines()
    assert len(lines) == 6 and lines[0] == f"[{first}] hello from 0" and lines[3] == f"[{second}] hello from 1"
    assert real.call("logs", "talks", "--first-error", "--rank", 5).out.splitlines() == [
        f"[{second}] RuntimeError: no luck",
        f"[{second}] bye",
    ]
    assert set(real.call("logs", "talks", "-f").out.splitlines()) == set(lines)
    assert real.call("cancel", "talks", "-y").out == "talks is succeeded already\n"
    assert real.call("ps", "-a").out.splitlines()[1].split()[:4] == ["talks", "succeeded", "8", "1"]
    with suppress(Refused):
        real.bed.api.delete(f"{JOBS}/talks", propagationPolicy="Background")
