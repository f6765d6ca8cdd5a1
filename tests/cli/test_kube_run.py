"""`rackyard kube run` against a stand-in for the API server: what it says, what it writes, and how it ends."""

import json
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.apis import LEASE, PLANS, Api, serving
from tests.cli.calling import call, end, start, wait_until

from rackyard.controller.kube.objects import GANG, GATE, GPU, SIZE
from rackyard.fabric import simulate

SITE = simulate(2, 3)
PODS, NODES, GANGPLANS = "/api/v1/pods", "/api/v1/nodes", f"{PLANS}/gangplans"


def node(name: str, **more: str) -> dict[str, Any]:
    conditions = [{"type": kind.replace("_", "/"), "status": status} for kind, status in more.items()]
    status = {"allocatable": {GPU: "4"}, "conditions": [{"type": "Ready", "status": "True"}, *conditions]}
    meta = {"name": name, "uid": f"u-{name}", "resourceVersion": "5", "labels": {}, "annotations": {}}
    return {"metadata": meta, "spec": {}, "status": status}


def pod(gang: str, rank: int, size: int) -> dict[str, Any]:
    name = f"{gang}-{rank}"
    made = {"uid": f"u-{name}", "resourceVersion": "5", "creationTimestamp": "2026-01-02T03:04:05Z"}
    meta = {"name": name, "namespace": "ml", "labels": {GANG: gang}, "annotations": {SIZE: str(size)}, **made}
    containers = [{"name": "main", "resources": {"limits": {GPU: "4"}}}]
    return {"metadata": meta, "spec": {"schedulingGates": [{"name": GATE}], "containers": containers}, "status": {}}


def yard() -> Api:
    """Two gangs wait, one of which does not fit; one node is ill. Another controller has the lease."""
    nodes = [node(each.name) for each in SITE.nodes]
    nodes[0] = node(SITE.nodes[0].name, **{"rackyard.io_GPUFault": "True"})
    pods = [pod("fits", rank, 2) for rank in range(2)] + [pod("large", rank, 9) for rank in range(9)]
    return Api({PODS: pods, NODES: nodes, GANGPLANS: []})


@contextmanager
def running(api: Api, folder: Path, *words: str) -> Iterator[list[str]]:
    """The lines that it says; SIGTERM ends it, and ends it well."""
    process = start(*command(api, folder, *words), PYTHONUNBUFFERED="1")
    lines: list[str] = []

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip("\n"))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield lines
    finally:
        process.send_signal(signal.SIGTERM)
        reader.join(90)
        assert end(process).code == 0


def command(api: Api, folder: Path, *words: str) -> list[str]:
    """With the site of `SITE` unless one lies in the folder."""
    site = folder / "site.yaml"
    if not site.exists():
        site.write_text("simulate: {racks: 2, trays: 3}\n")
    return ["kube", "run", "--site", str(site), "--kubeconfig", str(api.kubeconfig(folder)), *words]


def said(lines: list[str], *parts: str) -> bool:
    return any(all(part in line for part in parts) for line in lines)


def test_observe_runs_beside_an_acting_one_and_writes_nothing(tmp_path: Path) -> None:
    with serving(yard()) as api:
        with running(api, tmp_path, "--mode", "observe", "--share", "1") as lines:
            wait_until(lambda: said(lines, "ml/fits: WouldPlace"))
            wait_until(lambda: said(lines, "ml/large: NoSeat"))
            wait_until(lambda: said(lines, "r01-t01: FaultSeen", "mode observe"))
        assert api.writes == []
        assert not any(path.startswith(LEASE.rpartition("/")[0]) for _, path in api.asked)


def test_the_site_that_is_installed_by_default_is_called_empty(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[2] / "deploy/site.yaml", tmp_path)
    with serving(yard()) as api, running(api, tmp_path, "--mode", "observe") as lines:
        wait_until(lambda: said(lines, "SiteDiffers: site empty is empty, and nothing will be placed; 6 nodes"))


def test_trouble_that_lasts_is_told_once(tmp_path: Path) -> None:
    api = yard()
    api.refuse = {"/api/v1/": 403, f"{PLANS}/": 403}
    with serving(api), running(api, tmp_path, "--no-lease") as lines:
        wait_until(lambda: [path for _, path in api.asked].count(PODS) >= 4)
    for path in (PODS, NODES, GANGPLANS):
        assert len([line for line in lines if f"GET {path}: 403" in line]) == 1, lines


@pytest.mark.parametrize("words", [["--no-lease"], [], ["--mode", "observe"]], ids=["alone", "in turns", "observing"])
def test_credentials_that_are_not_accepted_end_it_with_the_same_message(tmp_path: Path, words: list[str]) -> None:
    api = yard()
    api.refuse = {"/": 401}
    with serving(api):
        answer = end(start(*command(api, tmp_path, *words)))
        url = api.url
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.splitlines() == [
        f"error: GET {PLANS}: 401",
        f"  at:  {url}",
        f"  why: {PLANS} is not for you",
        "  fix: the credentials of the kubeconfig are not accepted: renew them",
    ]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Path.mkdir, "it is a folder"),
        (lambda site: site.write_bytes(b"racks: \xff\xfe"), "it is not UTF-8: byte 0xff at 7"),
    ],
)
def test_a_site_that_is_no_text_file_is_refused_with_what_to_do(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    make(tmp_path / "site.yaml")
    answer = call("kube", "run", "--site", tmp_path / "site.yaml")
    assert answer.code == 2 and f"why: {why}\n  fix: give the path of a site YAML file" in answer.err


def first_block(text: str, beginning: str) -> str:
    return next(part.partition("```")[0] for part in text.split("```sh\n")[1:] if beginning in part)


@pytest.mark.parametrize("page", ["README.md", "README_zh.md"])
def test_the_job_of_the_readme_goes_to_kubernetes_as_the_readme_says(tmp_path: Path, page: str) -> None:
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    job = first_block(text, "cat > job.yaml").partition("<<'EOF'\n")[2].partition("EOF")[0]
    (line,) = (line for line in text.splitlines() if line.startswith("rackyard submit job.yaml --target kubernetes"))
    sentence = next(part for part in text.split("\n\n") if "`out/ckpt`" in part)
    file = tmp_path / "job.yaml"
    words = [str(file) if word == "job.yaml" else word for word in line.split()[1:]]
    file.write_text(job)
    assert "checkpoint.dir: must be absolute" in call(*words, "--dry-run", "-o", "json").err
    for here, there in (("out/meshes", "/data/meshes"), ("out/ckpt", "/ckpt")):
        assert f"`{here}`" in sentence and f"`{there}`" in sentence
        job = job.replace(here, there)
    file.write_text(job)
    answer = call(*words, "--dry-run", "-o", "json")
    assert answer.code == 0, answer.err
    spec = json.loads(answer.out)["spec"]["tasks"][0]["template"]["spec"]
    claims = {volume["persistentVolumeClaim"]["claimName"] for volume in spec["volumes"] if "emptyDir" not in volume}
    paths = {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    assert claims == {"data", "ckpt"} and {"/data", "/ckpt"} <= paths
