"""Two real processes over gloo: what is saved is what is loaded, whatever fails in between."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackyard.checkpoint import list_checkpoints, newest_valid, verify
from rackyard.findings import Verdict

Ranks = Callable[..., dict[str, Any]]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_replicated_state_comes_back_bit_for_bit_on_every_rank(ranks: Ranks, tmp_path: Path) -> None:
    for rank, result in enumerate(ranks("round_trip_ddp", directory=tmp_path)["results"]):
        assert result["same"] and result["same_ahead"]
        assert result["values"] == [3, "seed 0"]
        assert result["extras"] and result["python"]
        assert result["reports"] == ([3] if rank == 0 else [])
        assert result["world_size"] == 2


def test_sharded_state_comes_back_bit_for_bit_on_two_and_on_three_ranks(ranks: Ranks, tmp_path: Path) -> None:
    saved = ranks("save_fsdp", directory=tmp_path)["results"][0]
    assert len(list((tmp_path / "step-00000003").glob("*.distcp"))) == 2
    for world in (2, 3):
        assert ranks("load_fsdp", world=world, directory=tmp_path)["results"] == [saved] * world


def test_state_dicts_by_parameter_name_come_back(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks("state_dict_fsdp", directory=tmp_path)["results"] == [True, True]


def test_save_returns_before_publishing_and_later_training_changes_nothing(ranks: Ranks, tmp_path: Path) -> None:
    for result in ranks("background", directory=tmp_path)["results"]:
        assert result["early"] == []
        assert result["step"] == 1 and result["w"] == 1.0


@pytest.mark.parametrize("when", ["write", "publish", "rename"])
def test_a_kill_leaves_the_old_set(ranks: Ranks, tmp_path: Path, when: str) -> None:
    ranks("save_tiny", directory=tmp_path, steps=[1])
    ranks("killed", directory=tmp_path, when=when, killed=True)
    assert [info.step for info in list_checkpoints(tmp_path)] == [1]
    for result in ranks("load_tiny", directory=tmp_path)["results"]:
        assert result["step"] == 1 and result["w"] == 1.0 and result["damage"] == []
    assert names(tmp_path) == ["step-00000001"], "the next start cleans up"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("__0_0.distcp", truncate, "is truncated"),
        ("__0_0.distcp", flip, "differs from what was written"),
        ("extras-00001.pt", flip, "differs from what was written"),
        (".metadata", flip, "differs from what was written"),
        ("manifest.json", flip, "malformed"),
        ("manifest.json", Path.unlink, "is missing"),
        ("__1_0.distcp", Path.unlink, "is missing"),
    ],
)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_used(
    ranks: Ranks, tmp_path: Path, name: str, damage: Callable[[Path], None], said: str
) -> None:
    ranks("save_tiny", directory=tmp_path, steps=[1, 2])
    damage(tmp_path / "step-00000002" / name)
    answer = ranks("load_tiny", directory=tmp_path)
    for rank, result in enumerate(answer["results"]):
        assert result["step"] == 1 and result["w"] == 1.0 and result["extras"] == {"rank": rank}
    assert len(answer["results"][0]["damage"]) == 1 and answer["results"][1]["damage"] == []
    assert name in answer["results"][0]["damage"][0] and said in answer["results"][0]["damage"][0]
    assert "using the one before it" in answer["logs"][0]
    found, findings = newest_valid(tmp_path)
    assert found is not None and found.step == 1
    assert [finding.verdict for finding in findings] == [Verdict.FAIL, Verdict.PASS]


def test_only_the_newest_are_kept_and_a_damaged_one_does_not_count(ranks: Ranks, tmp_path: Path) -> None:
    ranks("save_tiny", directory=tmp_path, steps=[1, 2, 3, 4], keep=2)
    assert names(tmp_path) == ["step-00000003", "step-00000004"]
    truncate(tmp_path / "step-00000004" / "__0_0.distcp")
    ranks("save_tiny", directory=tmp_path, steps=[5], keep=2)
    assert names(tmp_path) == ["step-00000003", "step-00000005"]


def test_a_step_computed_again_is_kept_when_whole_and_replaced_when_damaged(ranks: Ranks, tmp_path: Path) -> None:
    ranks("save_tiny", directory=tmp_path, steps=[1, 2])
    whole, broken = tmp_path / "step-00000001" / "manifest.json", tmp_path / "step-00000002"
    before = whole.read_bytes()
    flip(broken / "__0_0.distcp")
    ranks("save_tiny", directory=tmp_path, steps=[1, 2])
    assert whole.read_bytes() == before
    assert verify(list_checkpoints(tmp_path)[0]).verdict is Verdict.PASS
    assert names(tmp_path) == ["step-00000001", "step-00000002"]


@pytest.mark.parametrize("how", ["rlimit", "enospc"])
def test_one_rank_that_cannot_write_fails_the_save_on_all_and_training_goes_on(
    ranks: Ranks, tmp_path: Path, how: str
) -> None:
    answer = ranks("full_disk", directory=tmp_path, policy="warn", how=how)
    for result in answer["results"]:
        assert result["error"] == "" and "rank 1" in result["last_error"]
        assert result["names"] == ["step-00000001", "step-00000003"]
    assert answer["logs"][0].count("\n") == 1 and answer["logs"][1] == ""
    assert "step 2 not saved" in answer["logs"][0] and "newest usable is step 1" in answer["logs"][0]


def test_the_error_is_raised_where_asked_for(ranks: Ranks, tmp_path: Path) -> None:
    for result in ranks("full_disk", directory=tmp_path, policy="raise", how="enospc")["results"]:
        assert "rank 1: No space left on device" in result["error"] and "fix:" in result["error"]


def test_a_disk_that_is_really_full(ranks: Ranks, mounted: Callable[[str], Path]) -> None:
    """A tmpfs of 1 MiB: the big state of step 2 does not fit, on whichever rank meets the end."""
    place = mounted("size=1m")
    answer = ranks("full_disk", directory=place, policy="warn", how="nothing")
    for result in answer["results"]:
        assert "No space left on device" in result["last_error"]
        assert result["names"] == ["step-00000001", "step-00000003"]


@pytest.mark.parametrize("world", [1, 2])
def test_a_file_in_place_of_the_directory_is_an_error_on_every_rank(ranks: Ranks, tmp_path: Path, world: int) -> None:
    (tmp_path / "file").write_text("")
    for below in ("file", "file/below"):
        for error in ranks("opens", world=world, directory=tmp_path / below)["results"]:
            assert "can't be used" in error and "fix:" in error


def test_a_read_only_file_system_is_an_error_on_every_rank(ranks: Ranks, mounted: Callable[[str], Path]) -> None:
    for error in ranks("opens", directory=mounted("ro"))["results"]:
        assert "Read-only file system" in error and "mount the file system for writing" in error


def test_the_manifest_says_who_wrote_it(ranks: Ranks, tmp_path: Path) -> None:
    ranks("save_tiny", directory=tmp_path, steps=[7])
    body = json.loads((tmp_path / "step-00000007" / "manifest.json").read_text())
    assert body["world_size"] == 2 and body["step"] == 7 and body["versions"]["torch"]
    assert body["metrics"]["write_s"] > 0 and body["metrics"]["stall_s"] > 0
