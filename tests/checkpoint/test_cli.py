"""`rackyard ckpt`, on checkpoints made without torch."""

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from rackyard.checkpoint import layout, publish
from rackyard.checkpoint.manifest import FileRecord, Manifest
from rackyard.cli.ckpt import ckpt
from rackyard.errors import UsageError


def make(directory: Path, step: int) -> Path:
    temporary = directory / layout.temporary_name("x")
    temporary.mkdir()
    (temporary / "a").write_bytes(b"x")
    content = Manifest(step, 2, 1.5, (FileRecord("a", 1, hashlib.sha256(b"x").hexdigest()),))
    return publish.publish(temporary, content)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(ckpt, [str(argument) for argument in arguments])


@pytest.fixture
def two(tmp_path: Path) -> Path:
    make(tmp_path, 10)
    make(tmp_path, 20)
    return tmp_path


def test_ls_shows_the_same_in_every_form(two: Path) -> None:
    rows = json.loads(call("ls", two, "-o", "json").stdout)
    assert [(row["step"], row["ranks"], row["files"], row["bytes"]) for row in rows] == [(20, 2, 1, 1), (10, 2, 1, 1)]
    assert rows[0]["created"] == "1970-01-01T00:00:01+00:00"
    assert YAML(typ="safe").load(call("ls", two, "-o", "yaml").stdout) == rows
    assert str(two / "step-00000020") in call("ls", two).stdout


def test_ls_lists_what_can_not_be_read_too(two: Path) -> None:
    (two / "step-00000020" / "manifest.json").write_text("{")
    assert "unknown" in call("ls", two).stdout


def test_verify_says_which_file_and_exits_with_4(two: Path) -> None:
    assert call("verify", two).exit_code == 0
    (two / "step-00000020" / "a").write_bytes(b"")
    done = call("verify", two)
    assert done.exit_code == 4
    assert "a is truncated: 0 of 1 bytes" in done.stdout
    assert call("verify", two, "--step", 10).exit_code == 0
    findings = json.loads(call("verify", two, "-o", "json").stdout)
    assert [finding["verdict"] for finding in findings] == ["FAIL", "PASS"]


def test_a_missing_directory_or_step_is_wrong_usage(two: Path) -> None:
    for arguments in (("ls", two / "absent"), ("verify", two / "absent"), ("verify", two, "--step", 5)):
        assert isinstance(call(*arguments).exception, UsageError)
    assert call("ls").exit_code == 2
    assert call("interval", "--stall", "0", "--mtbf", "5").exit_code == 2


def test_interval(two: Path) -> None:
    data = json.loads(call("interval", "--stall", "2", "--mtbf", "86400", "-o", "json").stdout)
    assert data["interval_s"] == pytest.approx(586.5, abs=0.1)
    assert "predicted" in call("interval", "--stall", "2", "--mtbf", "86400").stdout


def test_an_empty_directory_has_no_checkpoints(tmp_path: Path) -> None:
    assert "no checkpoints" in call("ls", tmp_path).stdout
    assert call("verify", tmp_path).exit_code == 0
