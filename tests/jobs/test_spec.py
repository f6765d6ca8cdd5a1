"""The spec as a value: defaults, the round trip through events, the rules between keys."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rackyard.errors import SpecError
from rackyard.jobs.spec import Every, JobSpec, Spread

LEAST = {"name": "a", "run": "python t.py", "gpus": 8}


def spec(**keys: Any) -> JobSpec:
    return JobSpec.from_dict({**LEAST, **keys})


def refused(**keys: Any) -> str:
    with pytest.raises(SpecError) as caught:
        spec(**keys)
    return str(caught.value)


def test_run_and_gpus_are_enough() -> None:
    least = spec()
    assert least.spread == "pack"
    assert least.checkpoint is None
    assert least.warm is None
    assert least.recover.mode == "act"
    assert least.watch.hang == 600
    assert least.segments == 1
    assert least.data_parallel == 8


def test_everything_survives_an_event() -> None:
    full = spec(
        gpus=16,
        gpu="GB300",
        segment={"gpus": 8, "required": False},
        spread={"racks": 2},
        rails="any",
        parallel={"framework": "megatron", "tp": 2, "pp": 2, "cp": 2, "ep": 2},
        checkpoint={"dir": "/ckpt", "every": "1.5h", "keep": 2, "replicas": 1},
        recover={"attempts": 2, "spares": 1, "mode": "observe"},
        watch={"hang": "90s", "slow": {"ratio": 2, "steps": 5}},
        warm=["torch", "numpy.linalg"],
        queue="prod",
        priority=-3,
        env={"A": "1", "B": ""},
        workdir="/srv/job",
    )
    stored = json.loads(json.dumps(full.to_dict()))
    assert JobSpec.from_dict(stored) == full
    assert JobSpec.from_dict(stored).to_dict() == stored
    assert stored["watch"]["hang"] == 90
    assert full.spread == Spread(2)
    assert full.segments == 2
    assert full.data_parallel == 2


every_values = st.one_of(
    st.just(Every()),
    st.builds(Every, steps=st.integers(1, 10**6)),
    st.builds(Every, seconds=st.integers(1, 10**12).map(lambda micros: micros / 1e6)),
)


@given(every_values)
def test_every_parses_back(every: Every) -> None:
    assert Every.parse(str(every)) == every


def test_a_spec_never_changes() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec().gpus = 9


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"gpus": 0}, "gpus: must be greater than or equal to 1"),
        ({"gpus": True}, "gpus: must be a whole number, not true"),
        ({"gpus": 8.0}, "gpus: must be a whole number"),
        ({"run": ""}, "run: "),
        ({"run": "  "}, "must name a command"),
        ({"run": "a 'b"}, "can't be split"),
        ({"name": "Upper"}, "DNS label"),
        ({"name": "a" * 64}, "DNS label"),
        ({"name": "a\n"}, "DNS label"),
        ({"segment": {"gpus": 3}}, "must divide the job's 8 GPUs"),
        ({"parallel": {"tp": 3}}, "tp * pp * cp = 3 must divide"),
        ({"parallel": {"pp": 2, "ep": 3}}, "must divide the 4 ranks"),
        ({"spread": {"racks": 3}, "segment": {"gpus": 4}}, "3 racks are more than the job has segments (2)"),
        ({"spread": {"racks": 9}}, "9 racks are more than the job has GPUs (8)"),
        ({"spread": {"racks": 0}}, "spread"),
        ({"spread": "wide"}, "spread"),
        ({"checkpoint": {"dir": "c", "every": "0s"}}, "no time at all"),
        ({"checkpoint": {"dir": "c", "every": 20}}, "write 20 steps, 10m or auto"),
        ({"checkpoint": {"dir": ""}}, "checkpoint.dir"),
        ({"checkpoint": {}}, "checkpoint.dir: missing"),
        ({"watch": {"hang": True}}, "its unit"),
        ({"watch": {"hang": -1}}, "watch.hang"),
        ({"watch": {"hang": float("nan")}}, "watch.hang"),
        ({"watch": {"hang": "0s"}}, "longer than nothing"),
        ({"watch": {"slow": {"ratio": 1}}}, "greater than 1"),
        ({"watch": {"slow": {"ratio": float("nan")}}}, "watch.slow.ratio"),
        ({"recover": {"mode": "acts"}}, "did you mean act?"),
        ({"warm": ["torch; import os"]}, "warm[0]"),
        ({"env": {"RANK": "1"}}, "set by Rackyard"),
        ({"env": {"RACKYARD_JOB": "1"}}, "set by Rackyard"),
        ({"env": {"A=B": "1"}}, "not the name of an environment variable"),
        ({"env": {"A": "x\0"}}, "NUL"),
        ({"target": "slurm"}, "slurm is planned, not built"),
        ({"gpus_": 1}, "did you mean gpus?"),
        ({"workdir": 3}, "must be text"),
    ],
)
def test_what_is_refused(keys: dict[str, Any], says: str) -> None:
    assert says in refused(**keys)


def test_all_problems_are_told_at_once() -> None:
    text = refused(gpus=0, priority="x", queue="-")
    assert "and 2 more problems" in text
    assert "priority" in text
    assert "queue" in text
