"""What a build is kept under, and what is built."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rackyard.errors import UsageError
from testbed import families
from testbed.families import FAMILIES, Family, Program, built, family, key, wanted


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Family:
    monkeypatch.setattr(families, "MODULES", tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "go.mod").write_text("module one\n")
    (tmp_path / "one" / "go.sum").write_text("")
    return Family("one", (Program("one", "example.org/one"),))


def test_a_key_is_steady_and_short(made: Family) -> None:
    assert key(made) == key(made)
    assert re.fullmatch(r"[0-9a-f]{12}", key(made))


@pytest.mark.parametrize("name", ["go.mod", "go.sum"])
def test_a_key_changes_with_the_lock_files(made: Family, name: str) -> None:
    before = key(made)
    file = made.module / name
    file.write_text(file.read_text() + "// changed\n")
    assert key(made) != before


def test_text_moved_from_one_lock_file_to_the_other_is_a_change(made: Family) -> None:
    before = key(made)
    (made.module / "go.mod").write_text("module one")
    (made.module / "go.sum").write_text("\n")
    assert key(made) != before


def test_a_key_changes_with_flags_programs_and_stamps(made: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [
        replace(made, stamps=(("example.org/one.version", "v1"),)),
        replace(made, programs=(Program("two", "example.org/one"),)),
    ]
    keys = {key(made), *(key(other) for other in others)}
    monkeypatch.setattr(families, "BUILD_FLAGS", ("-race",))
    assert len(keys | {key(made)}) == 4


def test_the_cache_is_where_the_user_has_it(made: Family, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert built(made) == tmp_path / "rackyard-testbed" / f"one-{key(made)}"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert built(made).parent == tmp_path / "home" / ".cache" / "rackyard-testbed"


@pytest.mark.parametrize("found", FAMILIES, ids=lambda found: found.name)
def test_every_program_is_a_tool_of_its_locked_module(found: Family) -> None:
    text = (found.module / "go.mod").read_text()
    assert (found.module / "go.sum").stat().st_size > 0
    tools = re.findall(r"^(?:tool |\t)([\w./-]+)$", text, re.MULTILINE)
    assert sorted(tools) == sorted(program.package for program in found.programs)


def test_no_go_code_is_vendored() -> None:
    files = {file.name for file in families.MODULES.rglob("*") if file.is_file()}
    assert files == {"go.mod", "go.sum"}


def test_the_base_is_always_wanted_and_parts_are_added() -> None:
    assert [one.name for one in wanted(())] == ["etcd", "kubernetes"]
    assert [one.name for one in wanted(("volcano", "kwok"))] == ["etcd", "kubernetes", "kwok", "volcano"]


def test_unknown_parts_and_families_are_told() -> None:
    with pytest.raises(UsageError, match="no part 'slurm'"):
        wanted(("slurm",))
    with pytest.raises(UsageError, match="no family 'slurm'"):
        family("slurm")
