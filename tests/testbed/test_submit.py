"""Jobs on a real API server with Volcano and process nodes, by the commands that a user types."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest
from ruamel.yaml import YAML
from tests.cli.calling import call
from tests.testbed.rig import JOBS, PODS, ROOT, Rig, controlled, rig

from rackyard.backends.kubernetes.client import connect
from rackyard.controller.kube.waker import Waker
from rackyard.controller.reading import JOB_COLUMNS
from testbed.api import Refused

pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]

WORKS = """\
import os, sys, time
from pathlib import Path
import rackyard

rank, folder = int(os.environ["RANK"]), Path(sys.argv[1])
print(f"rank {rank} of {os.environ['WORLD_SIZE']} on {os.environ['RACKYARD_NODE']}")
print("attempt", os.environ["RACKYARD_ATTEMPT"], "master", os.environ["MASTER_ADDR"])
print("gpus", os.environ["CUDA_VISIBLE_DEVICES"], "local", os.environ["LOCAL_RANK"])
step = 0
while not (folder / "go").exists() or step < 3:
    step += 1
    rackyard.report_step(step, loss=1 / step)
    time.sleep(0.3)
print("done")
"""
FAILS = """\
import os, sys
print("about to fail")
if os.environ["RANK"] == "2":
    print("Traceback (most recent call last):")
    print("RuntimeError: no luck")
    sys.exit(7)
import time
time.sleep(60)
"""


@pytest.fixture(scope="module")
def yard(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    needs_testbed(("volcano",))
    with rig(tmp_path_factory.mktemp("submit")) as made:
        yield made


@pytest.fixture(autouse=True)
def tidy(yard: Rig) -> Iterator[None]:
    yield
    for job in yard.bed.api.items(JOBS):
        yard.bed.api.delete(f"{JOBS}/{job['metadata']['name']}", propagationPolicy="Background")
    for pod in yard.bed.api.items(PODS):
        with suppress(Refused):
            yard.bed.api.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds="0")
    yard.until("all is gone", lambda: not yard.bed.api.items(PODS) and not yard.bed.api.items(JOBS))


def job_file(folder: Path, name: str, script: str = WORKS, gpus: int = 8, more: str = "") -> Path:
    (folder / "script.py").write_text(script)
    run = f"python {folder / 'script.py'} {folder}"
    file = folder / f"{name}.yaml"
    file.write_text(f"name: {name}\nrun: {run}\ngpus: {gpus}\nwarm: []\n{more}")
    return file


def steps(yard: Rig, name: str) -> int:
    (row,) = [row for row in json.loads(yard.call("ps", "-a", "-o", "json").out) if row["job"] == name]
    return int(row["step"])


def test_from_submit_to_the_end(yard: Rig, tmp_path: Path) -> None:
    assert yard.call("ps").out == "JOB  PHASE  GPUS  ATTEMPT  STEP  AGE  REASON\n"
    file = job_file(tmp_path, "good", more="segment: {gpus: 8}\n")
    checked = yard.submit(file, "--dry-run")
    assert (checked.code, checked.out) == (0, f"{file}: ok; nothing was submitted\n"), checked
    answer = yard.submit(file)
    assert (answer.code, answer.out) == (0, "good\n"), answer
    yard.until(
        "why says that nobody places it", lambda: "controller has not looked at it yet" in yard.why("good"), "good"
    )
    assert "good is pending: Rackyard's controller" in yard.why("good")
    with controlled(yard):
        yard.until("it makes steps", lambda: steps(yard, "good") >= 1, "good")
        assert tuple(json.loads(yard.call("ps", "-o", "json").out)[0]) == JOB_COLUMNS
        running = yard.call("ps").out.splitlines()[1].split()
        assert running[:4] == ["good", "running", "8", "1"] and "runs: step" in yard.why("good")
        (tmp_path / "go").touch()
        yard.until("it is over", lambda: yard.state("good") == "Completed", "good")
        more = f"`rackyard ps -a --target kubernetes --kubeconfig {yard.bed.kubeconfig}` shows 1 more"
        assert yard.call("ps").err.startswith(f"no unfinished jobs; {more}")
        assert "good is succeeded: all ranks ended well at step" in yard.why("good")
    log = yard.call("logs", "good")
    where = yard.nodes("good")
    assert log.code == 0 and len(re.findall(r"^\[\d\] done$", log.out, re.M)) == 8
    assert f"[0] rank 0 of 8 on {where[0]}" in log.out and f"[7] rank 7 of 8 on {where[1]}" in log.out
    assert "[5] gpus 0,1,2,3 local 1" in log.out and "[rackyard]" not in log.out
    assert {line.split()[0] for line in yard.call("logs", "good", "--rank", 6).out.splitlines()} == {"[6]"}
    tried = yard.call("attempts", "good").out.splitlines()
    assert tried[0].split() == ["ATTEMPT", "LAUNCHED", "RESUMED", "STEP", "FAULT", "ACTION", "SEATS"]
    assert tried[1].endswith(f"succeeded  -       r01[{','.join(where)}]")


def test_the_api_server_takes_the_recorded_manifest(yard: Rig) -> None:
    """All of its fields are known to Volcano's definitions, and come back as they were."""
    job = YAML(typ="safe").load((ROOT / "tests" / "launch" / "volcano.yaml").read_text())
    job["metadata"]["namespace"] = "default"
    taken = yard.bed.api.send("POST", JOBS, job, params={"dryRun": "All", "fieldValidation": "Strict"})
    template = taken["spec"]["tasks"][0]["template"]
    assert template == job["spec"]["tasks"][0]["template"] and taken["spec"]["policies"] == job["spec"]["policies"]


def test_a_pod_taken_away_means_one_more_attempt_of_all(yard: Rig, tmp_path: Path) -> None:
    assert yard.submit(job_file(tmp_path, "again")).code == 0
    with controlled(yard):
        yard.until("it makes steps", lambda: steps(yard, "again") >= 1, "again")
        before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in yard.pods("again")}
        where = {"name": min(before), "namespace": "default"}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": where}
        yard.bed.api.post(f"{PODS}/{min(before)}/eviction", eviction)
        yard.until("there is another plan", lambda: len(yard.plans("again")) == 2, "again")
        yard.until("it makes steps again", lambda: steps(yard, "again") >= 1, "again")
        after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in yard.pods("again")}
        assert before.keys() == after.keys() and not set(before.values()) & set(after.values())
        assert yard.job("again")["status"].get("retryCount", 0) <= 1 and len(yard.plans("again")) == 2
        assert "[0] attempt 2 master 127.0.0.1" in yard.call("logs", "again").out
        gone = yard.call("logs", "again", "--attempt", 1)
        assert gone.code == 2 and "the pods of attempt 1 are gone, and their logs with them" in gone.err
        assert yard.call("logs", "again", "--attempt", 3).code == 2
        tried = json.loads(yard.call("attempts", "again", "-o", "json").out)["attempts"]
        assert [row["action"] for row in tried] == ["restart-processes", ""] and tried[0]["fault"]
        (tmp_path / "go").touch()
        yard.until("it is over", lambda: yard.state("again") == "Completed", "again")


def test_a_script_that_fails_uses_up_its_attempts(yard: Rig, tmp_path: Path) -> None:
    file = job_file(tmp_path, "bad", FAILS, gpus=4, more="recover: {attempts: 2}\n")
    assert yard.submit(file).code == 0
    with controlled(yard):
        yard.until("it is given up", lambda: yard.state("bad") == "Failed", "bad")
        yard.until("two attempts", lambda: len(yard.plans("bad")) == 2, "bad")
    told = yard.why("bad")
    assert "bad is failed: all 2 attempts are used up; pod bad-worker-0 on" in told and "exit code 7" in told
    assert "next: read its log: rackyard logs bad --first-error" in told
    errors = yard.call("logs", "bad", "--first-error")
    assert errors.out.splitlines()[:2] == ["[2] Traceback (most recent call last):", "[2] RuntimeError: no luck"]
    assert "bad is failed already" in yard.call("cancel", "bad", "-y").out


def test_a_job_that_is_cancelled_stays_listed(yard: Rig, tmp_path: Path) -> None:
    assert yard.submit(job_file(tmp_path, "stop")).code == 0
    with controlled(yard):
        yard.until("it makes steps", lambda: steps(yard, "stop") >= 1, "stop")
        assert "would cancel stop (running, step" in yard.call("cancel", "stop", "--dry-run").out
        assert yard.call("cancel", "stop").code == 2, "nobody is there to say yes"
        assert yard.call("cancel", "stop", "-y").out == "stop: cancel requested\n"
        yard.until("it is over", lambda: yard.state("stop") == "Aborted", "stop")
        yard.until("its pods are gone", lambda: not yard.pods("stop"))
    assert yard.call("ps", "-a").out.splitlines()[1].split()[:2] == ["stop", "cancelled"]
    assert yard.call("cancel", "stop", "-y").out == "stop is cancelled already\n"
    assert yard.job("stop")["status"].get("retryCount", 0) == 0


def test_run_follows_the_job_to_its_end(yard: Rig, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with controlled(yard):
        answer = yard.call("run", job_file(tmp_path, "follow", gpus=2), "--image", "none", "--host-network")
    assert answer.code == 0, answer
    assert re.search(r"placed      attempt 1: r0\d\[r0\d-t0\d\]", answer.out) and "launch      attempt 1" in answer.out
    assert answer.out.splitlines()[-1].startswith("follow: succeeded: all ranks ended well")


def test_a_job_without_a_seat_says_why(yard: Rig, tmp_path: Path) -> None:
    assert yard.submit(job_file(tmp_path, "large", gpus=36)).code == 0
    with controlled(yard):
        yard.until(
            "why has it from Rackyard", lambda: "large is pending: waits for a seat: " in yard.why("large"), "large"
        )
    assert "rackyard.io/Placed: NoSeat" in yard.why("large")


def test_what_is_wrong_is_said_with_what_to_do(yard: Rig, tmp_path: Path) -> None:
    file = job_file(tmp_path, "twice", gpus=2)
    assert yard.submit(file).code == 0
    again = yard.submit(file)
    assert (
        again.code == 2 and "there is a job 'twice' already" in again.err and "delete job.batch.volcano.sh" in again.err
    )
    for command in ("why", "logs", "attempts", "cancel"):
        none = yard.call(command, "twize")
        assert none.code == 2 and "no job 'twize'" in none.err and "did you mean twice?" in none.err
    queue = yard.submit(job_file(tmp_path, "queued", more="queue: defauld\n"))
    assert (
        queue.code == 2 and "the cluster has no queue 'defauld'" in queue.err and "did you mean default?" in queue.err
    )
    classed = yard.submit(job_file(tmp_path, "classed", gpus=2), "--priority-class", "nope", "--dry-run")
    assert classed.code == 2 and "the cluster has no PriorityClass 'nope'" in classed.err, classed
    nowhere = (
        yard.submit(file, "-n", "nope"),
        yard.submit(file, "-n", "nope", "--dry-run"),
        yard.call("ps", "-n", "nope"),
    )
    for answer in nowhere:
        assert answer.code == 2 and "no namespace 'nope'" in answer.err, answer
    early = yard.call("logs", "twice")
    assert early.code == 2 and "no log of that attempt" in early.err


def test_pods_that_the_api_server_refuses(yard: Rig, tmp_path: Path) -> None:
    """In the words that Volcano's controller really has for it."""
    quotas = "/api/v1/namespaces/default/resourcequotas"
    yard.bed.api.post(quotas, {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}})
    try:
        yard.until("the quota is known", lambda: yard.bed.api.get(f"{quotas}/small").get("status", {}).get("hard"))
        assert yard.submit(job_file(tmp_path, "refused")).code == 0
        yard.until(
            "why has it", lambda: "refused is pending: its pods can't be created" in yard.why("refused"), "refused"
        )
        told = yard.why("refused")
        assert "is forbidden: exceeded quota: small, requested: pods=1" in told.splitlines()[0]
        assert "StatusError" not in told and told.count("FailedCreate") == 1 and "resourcequota small" in told
        assert "can't be created" in yard.call("ps").out.splitlines()[1]
    finally:
        yard.bed.api.delete(f"{quotas}/small")


def test_a_script_that_is_not_there(yard: Rig, tmp_path: Path) -> None:
    file = job_file(tmp_path, "absent", gpus=2, more="recover: {attempts: 1}\n")
    file.write_text(file.read_text().replace("script.py", "none.py"))
    assert yard.submit(file).code == 0
    with controlled(yard):
        yard.until("it is given up", lambda: yard.state("absent") == "Failed", "absent")
    errors = yard.call("logs", "absent", "--first-error").out
    assert errors.startswith("[0] python") and "can't open file" in errors and "[rackyard]" not in errors
    (words,) = re.findall(r"next: read its log: rackyard (.*)", yard.why("absent"))
    assert call(*shlex.split(words)).out == errors


def test_logs_are_followed_over_attempts(yard: Rig, tmp_path: Path) -> None:
    assert yard.submit(job_file(tmp_path, "long", gpus=2)).code == 0
    words = ["logs", "long", "-f", "--rank", "1", "--target", "kubernetes", "--kubeconfig", str(yard.bed.kubeconfig)]
    with controlled(yard), (tmp_path / "followed").open("w+") as out:
        follower = subprocess.Popen([sys.executable, "-m", "rackyard", *words], stdout=out)
        try:
            yard.until("the first attempt is followed", lambda: "[1] attempt 1 master" in read(out), "long")
            yard.bed.api.delete(f"{PODS}/long-worker-0", gracePeriodSeconds="1")
            yard.until("the second is, too", lambda: "[1] attempt 2 master" in read(out), "long")
            (tmp_path / "go").touch()
            assert follower.wait(240) == 0
        finally:
            follower.kill()
            follower.wait()
        text = read(out)
    assert text.rstrip().endswith("[1] done") and "[0]" not in text and text.count("attempt 1 master") == 1


def read(out: TextIO) -> str:
    return Path(out.name).read_text()


def test_a_job_that_volcano_has_forgotten_is_woken(yard: Rig, tmp_path: Path) -> None:
    """The state in which Volcano leaves it, made by hand: in a real restart it comes about by chance."""
    api, groups = yard.bed.api, "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    assert yard.submit(job_file(tmp_path, "asleep", gpus=2)).code == 0
    yard.until("its pod is there", lambda: yard.pods("asleep"), "asleep")
    (group,) = [f"{groups}/{each['metadata']['name']}" for each in api.items(groups)]
    yard.bed.stop("vc-scheduler")
    api.patch(group, {"status": {"phase": "Pending"}})
    since = "2026-01-01T00:00:00Z"
    api.patch(
        f"{JOBS}/asleep/status",
        {"status": {"state": {"phase": "Restarting", "lastTransitionTime": since}, "terminating": 1}},
    )
    api.delete(f"{PODS}/asleep-worker-0", gracePeriodSeconds="0")
    yard.until("its pod is gone", lambda: not yard.pods("asleep"))
    api.delete(group)
    yard.bed.resume("vc-scheduler")
    told: list[tuple[str, str, str]] = []
    with connect(str(yard.bed.kubeconfig)) as client:
        waker = Waker(client, lambda *words: told.append(words))
        assert yard.state("asleep") == "Restarting" and waker.look() == 1
        assert [words[:2] for words in told] == [("default/asleep", "Woken")]
        yard.until("its pod is made anew", lambda: yard.pods("asleep"), "asleep")
        yard.until("it is awake", lambda: yard.state("asleep") == "Pending", "asleep")
        assert waker.look() == 0
