"""One process: what may be saved, what is refused when reading, and what doesn't fit."""

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rackyard.checkpoint import Checkpointer, list_checkpoints, manifest, reader  # noqa: E402
from rackyard.checkpoint.manifest import FileRecord, Manifest  # noqa: E402
from rackyard.errors import CheckpointError  # noqa: E402


class Boom:
    def __reduce__(self) -> Any:
        return (open, ("/tmp/rackyard-must-not-exist", "w"))


def state(value: float) -> dict[str, Any]:
    return {
        "w": torch.full((3, 2), value),
        "list": [torch.full((2,), value), {"deep": int(value)}],
        "pair": (torch.full((1,), value), value),
        "scalar": torch.tensor(value),
        "empty": {},
        "names": ["a", "b"] if value else [],
        7: value,
        "half": torch.full((2,), value, dtype=torch.bfloat16),
        "view": torch.full((4, 4), value).t()[1:, ::2],
    }


def replace(path: Path, name: str, data: bytes) -> None:
    """Put `data` in place of a file, with a manifest that agrees: an attacker's work, not an accident."""
    old = manifest.read(path)
    files = [f for f in old.files if f.name != name] + [FileRecord(name, len(data), hashlib.sha256(data).hexdigest())]
    (path / name).write_bytes(data)
    (path / "manifest.json").write_bytes(
        manifest.dumps(Manifest(old.step, old.world_size, old.created, tuple(files), old.versions, old.metrics))
    )


@pytest.fixture
def saved(tmp_path: Path) -> Checkpointer:
    ck = Checkpointer(tmp_path, on_error="raise")
    ck.save(5, state(2.0), {"rank": 0})
    ck.wait()
    return ck


def test_every_kind_of_entry_comes_back(saved: Checkpointer) -> None:
    loaded, found = state(0.0), saved.latest()
    assert found is not None
    assert saved.load(found, loaded) == {"rank": 0}
    expected = state(2.0)
    assert loaded["pair"][1] == 2.0 and loaded["list"][1] == {"deep": 2} and loaded[7] == 2.0
    assert loaded["names"] == ["a", "b"] and loaded["empty"] == {}
    for name in ("w", "scalar", "half", "view"):
        assert torch.equal(loaded[name], expected[name])
    assert torch.equal(loaded["list"][0], expected["list"][0]) and torch.equal(loaded["pair"][0], expected["pair"][0])


def test_nothing_saved_is_nothing_found(tmp_path: Path) -> None:
    assert Checkpointer(tmp_path).latest() is None


def test_the_index_is_a_pickle_and_runs_nothing(saved: Checkpointer) -> None:
    (info,) = list_checkpoints(saved.directory)
    replace(info.path, ".metadata", pickle.dumps(Boom()))
    with pytest.raises(CheckpointError) as raised:
        Checkpointer(saved.directory).load(info, state(0.0))
    assert "refused" in str(raised.value)
    assert not Path("/tmp/rackyard-must-not-exist").exists()


def test_extras_run_nothing(saved: Checkpointer) -> None:
    (info,) = list_checkpoints(saved.directory)
    buffer = io.BytesIO()
    torch.save({"rank": Boom()}, buffer)
    replace(info.path, "extras-00000.pt", buffer.getvalue())
    with pytest.raises(CheckpointError):
        Checkpointer(saved.directory).load(info, state(0.0))
    assert not Path("/tmp/rackyard-must-not-exist").exists()


def test_the_index_can_not_point_outside(saved: Checkpointer) -> None:
    (info,) = list_checkpoints(saved.directory)
    index = reader.read_index(info.path, manifest.read(info.path))
    next(iter(index.storage_data.values())).relative_path = "../../etc/passwd"
    replace(info.path, ".metadata", pickle.dumps(index))
    with pytest.raises(CheckpointError, match="damaged") as raised:
        Checkpointer(saved.directory).load(info, state(0.0))
    assert "points outside" in str(raised.value.why)


@pytest.mark.parametrize("hostile", [b"cos\nsystem\n(S'true'\ntR.", b"cbuiltins\neval\n.", b"ctorch\nload\n."])
def test_only_the_index_classes_are_unpickled(hostile: bytes) -> None:
    with pytest.raises(pickle.UnpicklingError, match="refused"):
        reader.RestrictedUnpickler(io.BytesIO(hostile)).load()


def test_what_does_not_fit_is_told_by_name(saved: Checkpointer) -> None:
    found = saved.latest()
    assert found is not None
    wrong = state(0.0)
    del wrong["scalar"]
    wrong["w"] = torch.zeros(3, 3)
    wrong["new"] = 1
    with pytest.raises(CheckpointError) as raised:
        saved.load(found, wrong)
    why = str(raised.value.why)
    assert "not in the checkpoint: new" in why and "not in the training state: scalar" in why
    assert "w is (3, 2) in the checkpoint and (3, 3) in the training state" in why


def test_a_part_can_be_loaded(saved: Checkpointer) -> None:
    found, part = saved.latest(), {"w": torch.zeros(3, 2)}
    assert found is not None
    Checkpointer(saved.directory, read_only=True).load(found, part, partial=True)
    assert torch.equal(part["w"], state(2.0)["w"])


def test_what_needs_unpickling_is_refused_when_saving(tmp_path: Path) -> None:
    ck = Checkpointer(tmp_path)
    with pytest.raises(CheckpointError, match="can't be saved safely") as raised:
        ck.save(1, {"a": {"b": Path("x")}})
    assert raised.value.where == "a.b"
    with pytest.raises(CheckpointError):
        ck.save(1, {}, {"r": object()})
    with pytest.raises(CheckpointError, match="one name"):
        ck.save(1, {"a.b": 1, "a": {"b": 2}})


def test_read_only_leaves_the_directory_alone(tmp_path: Path) -> None:
    ck = Checkpointer(tmp_path / "absent", read_only=True)
    assert ck.latest() is None
    with pytest.raises(CheckpointError, match="only reads"):
        ck.save(1, {})
    assert not (tmp_path / "absent").exists()


def test_a_script_that_ends_without_wait_still_publishes(tmp_path: Path) -> None:
    ck = Checkpointer(tmp_path)
    ck.save(1, {"w": torch.zeros(2)})
    assert ck._thread is not None and not ck._thread.daemon
    ck.wait()
