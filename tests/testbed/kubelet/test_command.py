"""The command line, as far as it needs no cluster."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from rackyard.errors import UsageError
from testbed.kubelet import faults
from testbed.kubelet.__main__ import cli
from testbed.kubelet.processes import write


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder as a kubelet leaves it."""
    (tmp_path / "lock").touch()
    return tmp_path


def call(*words: object) -> str:
    result = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_faults_are_wishes_in_files(state: Path) -> None:
    call("lose", "r01-t03", "--state", state)
    call("condition", "r01-t03", "NVLinkDown", "--reason", "Xid154", "--state", state)
    found = faults.read(state, "r01-t03")
    assert found.lost and found.conditions["NVLinkDown"].status == "True"
    assert "[simulated]" in found.conditions["NVLinkDown"].message
    call("restore", "r01-t03", "--state", state)
    found = faults.read(state, "r01-t03")
    assert not found.lost and found.conditions["NVLinkDown"].status == "False"
    assert faults.read(state, "r01-t04") == faults.Faults()


def test_logs_of_the_newest_pod_of_a_name(state: Path) -> None:
    for folder, since, word in (("ended/default_p_old", 1.0, "old"), ("pods/new", 2.0, "new")):
        run = state / folder / "main" / "0"
        run.mkdir(parents=True)
        write(state / folder / "pod.json", {"namespace": "default", "name": "p", "node": "n", "since": since})
        (run / "log").write_text(f"{word}\n")
    assert call("logs", "p", "--state", state) == "==> main/0 <==\nnew\n"
    with pytest.raises(UsageError, match="no pod"):
        call("logs", "q", "--state", state)


def test_a_folder_that_no_kubelet_had(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no kubelet"):
        call("lose", "r01-t01", "--state", tmp_path / "none")


@pytest.mark.parametrize("words", [(), ("--racks", "1", "--site", "site.yaml")])
def test_one_site_is_needed(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="what site"):
        call("run", *words, "--state", tmp_path)
