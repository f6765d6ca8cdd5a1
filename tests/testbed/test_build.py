"""Building, as far as it goes without Go: what is said when it can't be done, and that nothing half-done is kept."""

from pathlib import Path

import pytest

from rackyard.errors import RackyardError, UsageError
from testbed import build as building
from testbed import families
from testbed.families import Asset, Family, Program, built


def stand_in(folder: Path, body: str) -> None:
    """A `go` that says it is 1.26.1 and otherwise runs `body`."""
    folder.mkdir(exist_ok=True)
    go = folder / "go"
    go.write_text(f'#!/bin/sh\nif [ "$1" = env ]; then echo ${{GO_SAYS:-go1.26.1}}; exit; fi\n{body}\n')
    go.chmod(0o755)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Family:
    monkeypatch.setattr(families, "MODULES", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "one").mkdir()
    for name in ("go.mod", "go.sum"):
        (tmp_path / "one" / name).write_text("")
    return Family("one", (Program("prog", "example.org/prog"),), (Asset("example.org", "crds", "crds"),))


WRITES = """
if [ "$1" = list ]; then echo "$FAKE_MODULE"; exit; fi
while [ "$1" != -o ]; do shift; done
echo program > "$2"
"""


def test_no_go_is_one_clear_error(made: Family, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError) as error:
        building.build([made])
    assert "no `go` on PATH" in error.value.what
    assert error.value.why
    assert "install Go 1.26 or later" in (error.value.fix or "")


def test_an_old_go_is_told_with_what_it_says(made: Family, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(tmp_path / "bin", "")
    monkeypatch.setenv("GO_SAYS", "go1.19.8")
    with pytest.raises(UsageError, match=r"go1\.19\.8"):
        building.build([made])


@pytest.mark.parametrize(
    ("text", "version"),
    [("go1.26.8\n", (1, 26)), ("go1.27rc1", (1, 27)), ("go2.0", (2, 0)), ("devel", (0, 0)), ("", (0, 0))],
)
def test_go_versions_are_read(text: str, version: tuple[int, int]) -> None:
    assert building.go_version(text) == version


def test_a_build_is_kept_whole_and_not_done_twice(
    made: Family, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(tmp_path / "bin", WRITES)
    monkeypatch.setenv("FAKE_MODULE", str(tmp_path / "module"))
    (tmp_path / "module" / "crds").mkdir(parents=True)
    (tmp_path / "module" / "crds" / "a.yaml").write_text("kind: A\n")
    (tmp_path / "module" / "crds" / "kustomization.yaml").write_text("")
    said: list[str] = []
    building.build([made], said.append)
    assert (built(made) / "prog").read_text() == "program\n"
    assert [file.name for file in (built(made) / "crds").iterdir()] == ["a.yaml"]
    assert said[0] == "testbed: building prog of example.org/prog"
    stand_in(tmp_path / "bin", "exit 1")
    building.build([made], said.append)
    assert len(said) == 2


def test_a_failed_build_leaves_nothing_and_shows_what_go_said(
    made: Family, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(tmp_path / "bin", "echo 'dial tcp: no route' >&2; exit 1")
    with pytest.raises(RackyardError) as error:
        building.build([made], lambda _: None)
    assert "dial tcp: no route" in (error.value.why or "")
    assert "proxy" in (error.value.fix or "")
    assert not built(made).exists()


def test_what_a_module_lacks_is_told(made: Family, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(tmp_path / "bin", WRITES)
    monkeypatch.setenv("FAKE_MODULE", str(tmp_path / "module"))
    with pytest.raises(RackyardError, match=r"example\.org has no crds"):
        building.build([made], lambda _: None)
    assert not built(made).exists()


def test_clusters_name_what_is_not_built(made: Family) -> None:
    with pytest.raises(UsageError, match="not built yet: one"):
        building.require([made])
