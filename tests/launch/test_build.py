"""Rank map, environment, and what is warmed."""

from pathlib import Path

import pytest

from rackyard.errors import UsageError
from rackyard.fabric import simulate
from rackyard.launch import Gang, LaunchPlan, build, check_script, warm_modules
from rackyard.placement import Occupancy, Placement, Request, place

GANG = Gang("j-1", 2, 5, "127.0.0.1", 29500, 40, "/state/nccl")


def plan(gpus: int = 8, **spec: object) -> LaunchPlan:
    seats = place(Request(gpus=gpus, segment_gpus=gpus), simulate(racks=2), Occupancy({}))
    assert isinstance(seats, Placement)
    return build({"run": "python train.py", "gpus": gpus, **spec}, seats, GANG, "/job", Path("/state/jobs/j-1"))


def test_ranks_are_rail_aligned_and_torchrun_compatible() -> None:
    made = plan()
    assert made.nodes() == ("r01-t01", "r01-t02")
    for rank in made.ranks:
        env = rank.env
        assert env["RANK"] == str(rank.rank)
        assert env["LOCAL_RANK"] == env["RACKYARD_RAIL"] == str(rank.rank % 4)
        assert (env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"], env["GROUP_WORLD_SIZE"]) == ("8", "4", "2")
        assert env["GROUP_RANK"] == str(rank.rank // 4)
        assert env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
        assert env["NCCL_TOPO_FILE"] == f"/state/nccl/{rank.node}.xml"
        assert env["NCCL_IB_HCA"].startswith("=")
        assert env["NCCL_IB_HCA"].count(",") == 3
        assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("127.0.0.1", "29500")
        assert (env["RACKYARD_ATTEMPT"], env["RACKYARD_RESUME_STEP"]) == ("2", "40")
        assert env["TORCHELASTIC_RESTART_COUNT"] == "1"


def test_a_small_job_sees_only_its_gpus() -> None:
    made = plan(gpus=2)
    assert made.ranks[0].env["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_the_users_environment_is_kept_and_the_checkpoint_is_told() -> None:
    made = plan(env={"FOO": "1", "OMP_NUM_THREADS": "7"}, checkpoint={"dir": "/ckpt", "keep": 3})
    assert (made.env["FOO"], made.env["OMP_NUM_THREADS"]) == ("1", "7")
    assert (made.env["RACKYARD_CHECKPOINT_DIR"], made.env["RACKYARD_CHECKPOINT_KEEP"]) == ("/ckpt", "3")
    assert not set(made.env) & set(made.ranks[0].env)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"run": "python train.py"}, ("torch", "torch._dynamo")),
        ({"run": "python -m pkg.train --x"}, ("torch", "torch._dynamo")),
        ({"run": "./train.sh"}, ()),
        ({"run": "python train.py | tee log"}, ()),
        ({"run": "python train.py", "warm": []}, ()),
        ({"run": "./train.sh", "warm": ["a.b"]}, ("a.b",)),
    ],
)
def test_what_is_warmed(spec: dict[str, object], expected: tuple[str, ...]) -> None:
    assert warm_modules(spec) == expected


@pytest.mark.parametrize("run", ["python gone.py --x 1", "python -u gone.py", "./gone.sh", "bin/gone arg"])
def test_a_missing_script_is_told_before_anything_starts(tmp_path: Path, run: str) -> None:
    with pytest.raises(UsageError, match="does not exist") as told:
        check_script(run, str(tmp_path))
    assert str(tmp_path) in str(told.value.where)


@pytest.mark.parametrize(
    "run", ["python -m mod", "true", "bash -c 'x/y'", "python here.py", "$HOME/x.sh", "X=1 ./a.sh"]
)
def test_what_can_not_be_told_is_let_through(tmp_path: Path, run: str) -> None:
    (tmp_path / "here.py").touch()
    check_script(run, str(tmp_path))
