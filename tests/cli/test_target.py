"""`--target kubernetes` on the command line: options, and what is said where there is no cluster."""

import json
from pathlib import Path

import pytest
from calling import call, job_file

COMMANDS = (("ps",), ("why", "j"), ("logs", "j"), ("attempts", "j"), ("cancel", "j"))
POD = ("--target", "kubernetes", "--image", "i")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster, no home, no image."""
    for name in ("KUBECONFIG", "RACKYARD_IMAGE", "RACKYARD_TARGET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def closed(folder: Path) -> Path:
    """A kubeconfig for a port where nobody listens."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    return folder / "kubeconfig"


@pytest.mark.parametrize("words", COMMANDS)
def test_without_a_kubeconfig(words: tuple[str, ...]) -> None:
    answer = call(*words, "--target", "kubernetes")
    assert answer.code == 2 and "no kubeconfig" in answer.err and "fix: give --kubeconfig" in answer.err


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    answer = call("ps", "--target", "kubernetes", "--kubeconfig", closed(tmp_path))
    assert answer.code == 1 and "the API server does not answer" in answer.err and "127.0.0.1:1" in answer.err


def test_submit_without_a_cluster_shows_the_manifest(tmp_path: Path) -> None:
    file = job_file(tmp_path, gpus=8)
    made = call("submit", file, *POD, "-n", "team", "--mount", "ckpt:/ckpt", "--dry-run", "-o", "json")
    job = json.loads(made.out)
    assert made.code == 0 and job["metadata"]["namespace"] == "team" and job["spec"]["minAvailable"] == 2
    assert job["spec"]["tasks"][0]["template"]["spec"]["volumes"][1]["persistentVolumeClaim"] == {"claimName": "ckpt"}
    assert call("submit", file, *POD).code == 2


def test_the_target_and_the_image_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACKYARD_TARGET", "kubernetes")
    monkeypatch.setenv("RACKYARD_IMAGE", "from-there")
    made = call("submit", job_file(tmp_path), "--dry-run", "-o", "yaml")
    assert made.code == 0 and "image: from-there" in made.out


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--target", "kubernetes"), "no container image"),
        ((*POD, "--mount", "ckpt"), "--mount 'ckpt' can't be read"),
        ((*POD, "--accept", "gpu-links"), "--accept is for --target local only"),
        (("--context", "c"), "--context is for Kubernetes only"),
        (("--namespace", "n"), "--namespace is for Kubernetes only"),
        (("--target", "slurm"), "slurm"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, words: tuple[str, ...], what: str) -> None:
    answer = call("submit", job_file(tmp_path), *words)
    assert answer.code == 2 and what in answer.err


def test_local_submit_answers_in_json_too(tmp_path: Path) -> None:
    answer = call("submit", job_file(tmp_path), "-o", "json", "--state", tmp_path / "state")
    assert answer.code == 0 and json.loads(answer.out)["job"].startswith("job-")
