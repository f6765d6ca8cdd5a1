"""`--target kubernetes` on the command line: options, and what is said where there is no cluster."""

import json
from pathlib import Path

import pytest
from calling import call, job_file

from rackyard.backends.kubernetes.jobs import Jobs
from rackyard.cli.target import Target
from rackyard.errors import UsageError
from rackyard.jobs.kubejob import KubeJob, KubePod, Said
from rackyard.jobs.kubeplaced import PLACED

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
        (("--image", "x"), "--image is for Kubernetes only"),
        (("--gpus-per-node", "4"), "--gpus-per-node is for Kubernetes only"),
        (("--host-network",), "--host-network is for Kubernetes only"),
        (("--priority-class", "x"), "--priority-class is for Kubernetes only"),
        (("--mount", "a:/b"), "--mount is for Kubernetes only"),
        ((*POD, "--mount", "A_B:/x"), "'A_B' can't be the name of a claim"),
        ((*POD, "--mount", "/a/../b:/x"), "--mount '/a/../b:/x' is refused by Kubernetes"),
        (("--target", "kubernetes", "--image", "a b"), "--image 'a b' is no image"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, words: tuple[str, ...], what: str) -> None:
    for command in ("submit", "run"):
        answer = call(command, job_file(tmp_path), *words)
        assert answer.code == 2 and what in answer.err


def test_the_image_of_the_environment_is_no_word_for_the_local_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACKYARD_IMAGE", "from-there")
    assert call("submit", job_file(tmp_path), "--dry-run", "--state", tmp_path / "state").code == 0


@pytest.mark.parametrize("image", ["train", "a.example:5000/b/c_d:1.0-x", "b@sha256:0f", "[::1]:5000/b"])
def test_images_and_claims_of_every_form(tmp_path: Path, image: str) -> None:
    words = ("--mount", "a.b-c:/x", "--mount", "/data:/data", "--dry-run", "-o", "json")
    assert call("submit", job_file(tmp_path), "--target", "kubernetes", "--image", image, *words).code == 0


@pytest.mark.parametrize("name", ["Bad_NS!", "../..", "default/pods?x=", "-a", "a" * 64, "a\n"])
@pytest.mark.parametrize("words", [*COMMANDS, ("submit", "job.yaml"), ("run", "job.yaml")])
def test_what_can_be_no_namespace_is_refused_at_once(words: tuple[str, ...], name: str) -> None:
    answer = call(*words, *POD[: 4 if len(words[-1]) > 4 else 2], f"--namespace={name}")
    assert answer.code == 2 and "can't be one" in answer.err and "fix: " in answer.err


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("gpus: 7\n", "gpus: 7 are no whole number of nodes", 2),
        ("gpus: 8\ncheckpoint: {dir: ./ckpt}\n", "checkpoint.dir: must be absolute on Kubernetes", 3),
        ("gpus: 8\npriority: 5\n", "priority: 5 is not for Kubernetes", 3),
        ("gpus: 8\nrecover: {mode: observe}\n", "recover.mode: observe is not for Kubernetes", 3),
    ],
)
def test_what_kubernetes_would_not_do_has_its_place_in_the_file(
    tmp_path: Path, text: str, what: str, line: int
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"run: python x.py\n{text}")
    answer = call("submit", file, *POD, "--dry-run")
    assert answer.code == 2 and what in answer.err and f"at:  {file}:{line}:" in answer.err, answer


@pytest.mark.parametrize(
    ("given", "text", "typed"),
    [
        (Target("kubernetes", None, None, "default"), "`rackyard ps --target kubernetes`; kubectl get pvc", None),
        (
            Target("kubernetes", "/a b", "c", "team", named=True),
            "`rackyard ps --target kubernetes` lists; kubectl get pvc",
            "`rackyard ps --target kubernetes -n team --context c --kubeconfig '/a b'` lists; "
            "kubectl -n team --context c --kubeconfig '/a b' get pvc",
        ),
        (
            Target("kubernetes", None, "c", "team", named=True),
            "kubectl -n other delete job x; kubectl apply -k deploy/; kubectl config view",
            "kubectl -n other --context c delete job x; kubectl --context c apply -k deploy/; kubectl config view",
        ),
    ],
)
def test_what_is_to_be_typed_reaches_the_same_cluster(given: Target, text: str, typed: str | None) -> None:
    assert given.typed(text) == (typed or text)


def test_hints_of_errors_bear_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: Jobs, name: str, *, deep: bool = False) -> None:
        raise UsageError("no job", fix="`rackyard ps -a --target kubernetes` lists the jobs")

    monkeypatch.setattr(Jobs, "read", none)
    config = closed(tmp_path)
    for words in COMMANDS[1:]:
        answer = call(*words, "--target", "kubernetes", "--kubeconfig", config, "-n", "team")
        assert f"`rackyard ps -a --target kubernetes -n team --kubeconfig {config}` lists" in answer.err


def test_next_steps_bear_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = KubeJob("j", "team", {"gpus": 4}, 0.0, state="Failed")
    monkeypatch.setattr(Jobs, "read", lambda *_, **__: failed)
    told = call("why", "j", "--target", "kubernetes", "--kubeconfig", closed(tmp_path), "-n", "team", "--context", "c")
    assert "rackyard logs j --first-error --target kubernetes -n team --context c --kubeconfig " in told.out


@pytest.mark.parametrize(("word", "begins"), [("NoSeat", "no seat     "), ("UnknownSize", "waits       ")])
def test_run_says_what_holds_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, begins: str) -> None:
    held = KubePod("j-worker-0", gated=True, conditions={PLACED: Said("False", word, "so it is")})
    looks = [KubeJob("j", "default", {"gpus": 4}, 0.0, pods=(held,)), KubeJob("j", "", {}, 0.0, state="Completed")]
    monkeypatch.setattr(Jobs, "submit", lambda *_: "j")
    monkeypatch.setattr(Jobs, "read", lambda *_: looks.pop(0))
    answer = call("run", job_file(tmp_path), *POD, "--kubeconfig", closed(tmp_path))
    assert answer.code == 0 and f"  {begins}so it is\n" in answer.out


def test_a_step_that_is_not_known_any_more_is_no_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Jobs, "listed", lambda _: [KubeJob("j", "default", {"gpus": 4}, 0.0, state="Aborted")])
    where = ("--target", "kubernetes", "--kubeconfig", closed(tmp_path))
    assert call("ps", "-a", *where).out.splitlines()[1].split()[:5] == ["j", "cancelled", "4", "0", "-"]
    assert json.loads(call("ps", "-a", "-o", "json", *where).out)[0]["step"] is None


@pytest.mark.parametrize("words", [("--kubeconfig", "/nowhere"), ("--kubeconfig", "/tmp"), ("--context", "nope")])
def test_a_kubeconfig_that_can_not_be_used(tmp_path: Path, words: tuple[str, str]) -> None:
    answer = call("ps", "--target", "kubernetes", "--kubeconfig", closed(tmp_path), *words)
    assert answer.code == 2 and "the kubeconfig can't be used" in answer.err and "fix: name " in answer.err


def test_local_submit_answers_in_json_too(tmp_path: Path) -> None:
    answer = call("submit", job_file(tmp_path), "-o", "json", "--state", tmp_path / "state")
    assert answer.code == 0 and json.loads(answer.out)["job"].startswith("job-")
