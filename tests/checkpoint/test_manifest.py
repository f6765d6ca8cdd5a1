"""Reading manifests and verifying, without torch: whatever the bytes are, there is a finding and no crash."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackyard.checkpoint import layout, list_checkpoints, manifest, publish, verify
from rackyard.checkpoint.manifest import FileRecord, Manifest, ManifestError
from rackyard.findings import Verdict

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(["version", "step", "world_size", "created", "files", "versions", "metrics", "extra"])


def record(name: str, data: bytes) -> FileRecord:
    return FileRecord(name, len(data), hashlib.sha256(data).hexdigest())


def make(directory: Path, step: int, files: dict[str, bytes]) -> Path:
    temporary = directory / layout.temporary_name("x")
    temporary.mkdir()
    for name, data in files.items():
        (temporary / name).write_bytes(data)
    content = Manifest(step, 2, 1.5, tuple(record(name, data) for name, data in files.items()))
    return publish.publish(temporary, content)


def body() -> dict[str, Any]:
    content = Manifest(3, 2, 1.5, (record("a", b"x"),), {"torch": "2"}, {"write_s": 0.5})
    read: dict[str, Any] = json.loads(manifest.dumps(content))
    return read


def signed(changed: dict[str, Any]) -> bytes:
    changed.pop("digest", None)
    return json.dumps({**changed, "digest": manifest._digest(changed)}).encode()


def test_a_manifest_reads_back_as_it_was_written() -> None:
    content = Manifest(3, 2, 1.5, (record(".metadata", b""), record("__0_0.distcp", b"x")), {"torch": "2"}, {"a": 0.1})
    assert manifest.parse(manifest.dumps(content)) == content


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_in_words(data: bytes) -> None:
    with pytest.raises(ManifestError):
        manifest.parse(data)


@given(key=keys, value=json_values)
def test_any_value_in_any_place_is_read_or_refused(key: str, value: Any) -> None:
    try:
        read = manifest.parse(signed({**body(), key: value}))
    except ManifestError:
        return
    assert all(layout.is_file_name(file.name) for file in read.files)


@given(entry=json_values | st.fixed_dictionaries({"name": st.text(), "bytes": json_values, "sha256": st.text()}))
def test_any_file_entry_is_read_or_refused(entry: Any) -> None:
    with pytest.raises(ManifestError):
        manifest.parse(signed({**body(), "files": [entry]}))


@given(data=st.binary(max_size=200), cut=st.integers(0, 400))
def test_any_manifest_on_disk_gives_a_finding(tmp_path_factory: pytest.TempPathFactory, data: bytes, cut: int) -> None:
    path = make(tmp_path_factory.mktemp("any"), 1, {"a": b"x"})
    whole = (path / layout.MANIFEST).read_bytes()
    (path / layout.MANIFEST).write_bytes(whole[:cut] + data)
    (info,) = list_checkpoints(path.parent)
    finding = verify(info)
    if finding.verdict is Verdict.PASS:
        assert manifest.read(path) == manifest.parse(whole), "only white space may differ"
    else:
        assert finding.verdict is Verdict.FAIL
        assert finding.evidence[0].origin.endswith(layout.MANIFEST)


@pytest.mark.parametrize("data", [b"[" * 200_000, b"9" * 10_000, b'{"version": 1, "step": ' + b"9" * 6000 + b"}"])
def test_hostile_json_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestError):
        manifest.parse(data)


@pytest.mark.parametrize(
    "name", ["../other", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "a\0b", "manifest.json", "ü"]
)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    path = make(tmp_path, 3, {"a": b"x"})
    changed = body()
    changed["files"][0]["name"] = name
    (path / layout.MANIFEST).write_bytes(signed(changed))
    (finding,) = [verify(info) for info in list_checkpoints(tmp_path)]
    assert finding.verdict is Verdict.FAIL and "refused" in finding.summary


def test_a_later_version_is_unknown_rather_than_damaged(tmp_path: Path) -> None:
    path = make(tmp_path, 3, {"a": b"x"})
    (path / layout.MANIFEST).write_bytes(signed({**body(), "version": 2}))
    assert verify(list_checkpoints(tmp_path)[0]).verdict is Verdict.UNKNOWN


def test_a_manifest_of_another_step_is_damage(tmp_path: Path) -> None:
    make(tmp_path, 3, {"a": b"x"}).rename(tmp_path / "step-00000004")
    finding = verify(list_checkpoints(tmp_path)[0])
    assert finding.verdict is Verdict.FAIL and "of step 3" in finding.summary


def test_too_long_a_manifest_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, 3, {"a": b"x"})
    monkeypatch.setattr(manifest, "MAX_BYTES", 20)
    assert "longer than 20 bytes" in verify(list_checkpoints(tmp_path)[0]).summary


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    path = make(tmp_path / "..", 3, {"a": b"x"}).rename(tmp_path / "step-00000003")
    (path / "a").unlink()
    os.mkfifo(path / "a")
    assert "not a regular file" in verify(list_checkpoints(tmp_path)[0]).summary
    (path / "a").unlink()
    (tmp_path / "x").write_bytes(b"x")
    (path / "a").symlink_to(tmp_path / "x")
    assert verify(list_checkpoints(tmp_path)[0]).verdict is Verdict.UNKNOWN


def test_lengths_are_told_with_both_numbers(tmp_path: Path) -> None:
    path = make(tmp_path, 3, {"a": b"0123456789", "b": b"x"})
    (path / "a").write_bytes(b"012")
    (path / "b").unlink()
    finding = verify(list_checkpoints(tmp_path)[0])
    assert [e.text for e in finding.evidence] == ["a is truncated: 3 of 10 bytes", "b is missing"]
    assert "and 1 more" in finding.summary
    (path / "a").write_bytes(b"0" * 11)
    assert "a has 11 bytes where 10 were written" in verify(list_checkpoints(tmp_path)[0]).summary


def test_only_published_names_are_listed_newest_first(tmp_path: Path) -> None:
    make(tmp_path, 20, {"a": b"x"})
    make(tmp_path, 123_456_789, {"a": b"xy"})
    for name in (".tmp-step-00000030-ab", "step-30", "step-000000030", "step-0000003x", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-00000099").write_text("a file")
    infos = list_checkpoints(tmp_path)
    assert [(info.step, info.bytes, info.files, info.world_size) for info in infos] == [
        (123_456_789, 2, 1, 2),
        (20, 1, 1, 2),
    ]
    assert list_checkpoints(tmp_path / "absent") == ()


def test_the_newest_verified_is_never_pruned(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        make(tmp_path, step, {"a": b"x"})
    (tmp_path / "step-00000040" / "a").write_bytes(b"")
    assert publish.prune(tmp_path, keep=1, published=30) == (20, 10)
    assert [info.step for info in list_checkpoints(tmp_path)] == [40, 30]


def test_nothing_of_this_needs_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import rackyard.checkpoint as c, rackyard.cli.ckpt\n"
        "assert c.list_checkpoints('/nowhere') == () and c.newest_valid('/nowhere') == (None, ())\n"
        "assert 'rich' not in sys.modules and 'ruamel' not in sys.modules\n"
        "try: c.Checkpointer\n"
        "except ImportError: print('lazy')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "lazy\n"
