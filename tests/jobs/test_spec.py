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
    assert (least.groups, least.exclusive, least.apart, least.estimate) == ((), False, (), None)
    assert (least.nodes.pin, least.nodes.exclude, least.nodes.exclude_racks) == ((), (), ())
    assert (least.gpu_memory, least.nic_gbps, least.domain_gpus) == (None, None, None)


def test_everything_survives_an_event() -> None:
    full = spec(
        gpus=16,
        gpu="GB300",
        segment={"gpus": 8, "required": False},
        spread={"racks": 2},
        rails="any",
        gpu_memory=180,
        nic_gbps=400,
        domain_gpus=72,
        groups=[{"gpus": 16, "within": "block"}, {"gpus": 8, "within": "leaf", "required": True}],
        exclusive=True,
        apart=["b", "c"],
        nodes={"pin": ["r01-t01"], "exclude": ["r01-t02"], "exclude_racks": ["r02", "R 3"]},
        parallel={"framework": "megatron", "tp": 2, "pp": 2, "cp": 2, "ep": 2, "dp_weight": 0, "pp_weight": 3},
        checkpoint={"dir": "/ckpt", "every": "1.5h", "keep": 2, "replicas": 1},
        recover={"attempts": 2, "spares": 1, "mode": "observe"},
        watch={"hang": "90s", "slow": {"ratio": 2, "steps": 5}},
        warm=["torch", "numpy.linalg"],
        queue="prod",
        priority=-3,
        estimate="1.5h",
        env={"A": "1", "B": ""},
        workdir="/srv/job",
    )
    stored = json.loads(json.dumps(full.to_dict()))
    assert JobSpec.from_dict(stored) == full
    assert JobSpec.from_dict(stored).to_dict() == stored
    assert stored["watch"]["hang"] == 90
    assert stored["estimate"] == 5400
    assert stored["groups"][0] == {"gpus": 16, "within": "block", "required": False}
    assert full.spread == Spread(2)
    assert full.segments == 2
    assert full.data_parallel == 2


ADDED = ("gpu_memory", "nic_gbps", "domain_gpus", "groups", "exclusive", "apart", "nodes", "estimate")
"""Keys that job files have had since placement knows blocks and parts."""


def test_specs_stored_before_these_keys_can_be_read() -> None:
    now = spec(parallel={"tp": 2})
    stored = {key: value for key, value in now.to_dict().items() if key not in ADDED}
    stored["parallel"] = {key: value for key, value in stored["parallel"].items() if not key.endswith("_weight")}
    assert JobSpec.from_dict(stored) == now


def test_copies_in_different_racks() -> None:
    kept = spec(spread="isolate", checkpoint={"dir": "c", "replicas": 3}, segment={"gpus": 2})
    assert kept.spread == "isolate"
    assert kept.to_dict()["spread"] == "isolate"


def leaves_and_blocks(leaf: int, block: int) -> list[dict[str, Any]]:
    return [{"gpus": block, "within": "block"}, {"gpus": leaf, "within": "leaf"}]


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
        ({"name": "My_Job 2"}, "write, for example, my-job-2"),
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
        ({"groups": [{"gpus": 3, "within": "leaf"}]}, "groups[0].gpus: must divide the job's 8 GPUs"),
        (
            {"groups": [{"gpus": 2, "within": "leaf"}], "segment": {"gpus": 4}},
            "groups[0].gpus: must be a multiple of the segment's 4 GPUs; 2 is not",
        ),
        ({"groups": [{"gpus": 2, "within": "leaf"}], "segment": {"gpus": 4}}, "use one of 4, 8"),
        ({"groups": [{"gpus": 8, "within": "part"}, {"gpus": 4, "within": "part"}]}, "part is given twice"),
        ({"groups": leaves_and_blocks(4, 4)}, "the 4 GPUs within a block must be more than the 4 within a leaf"),
        ({"groups": leaves_and_blocks(8, 4)}, "groups[0].gpus: the 4 GPUs within a block must be more than the 8"),
        ({"groups": [{"gpus": 4, "within": "spine"}]}, "groups[0].within: must be leaf or block or part"),
        ({"groups": [{"gpus": 4, "within": "blok"}]}, "did you mean block?"),
        ({"groups": [{"gpus": 4, "wihin": "leaf"}]}, "did you mean within?"),
        ({"groups": [{"gpus": 4}]}, "groups[0].within: missing"),
        ({"groups": [4]}, "groups[0]: must be a mapping of keys to values, not 4"),
        ({"groups": {"gpus": 4}}, "groups: must be a list"),
        ({"spread": "isolat"}, "did you mean isolate?"),
        ({"spread": "isolate"}, "set checkpoint.replicas to 1 or more"),
        ({"spread": "isolate", "checkpoint": {"dir": "c"}}, "spread: isolate puts the copies"),
        (
            {"spread": "isolate", "checkpoint": {"dir": "c", "replicas": 2}, "segment": {"gpus": 4}},
            "checkpoint.replicas: 3 copies in different racks are more than the job has segments (2)",
        ),
        ({"exclusive": "yes"}, "exclusive: must be true or false"),
        ({"apart": ["B"]}, "apart[0]: must be a DNS label"),
        ({"apart": ["b", "a"]}, "apart[1]: is this job itself"),
        ({"apart": "b"}, "apart: must be a list"),
        ({"nodes": {"pin": [1]}}, "nodes.pin[0]: must be text"),
        ({"nodes": {"pin": ["t1", "t2"], "exclude": ["t2"]}}, "nodes.pin[1]: t2 is excluded as well"),
        ({"nodes": {"pin": [f"t{at}" for at in range(9)]}}, "nodes.pin: 9 nodes are more than the job has GPUs (8)"),
        ({"nodes": {"exclude": [""]}}, "nodes.exclude[0]"),
        ({"nodes": {"exclude_rack": []}}, "did you mean exclude_racks?"),
        ({"gpu_memory": 0}, "gpu_memory: must be greater than 0"),
        ({"gpu_memory": float("nan")}, "gpu_memory"),
        ({"nic_gbps": 400.5}, "nic_gbps: must be a whole number"),
        ({"domain_gpus": 0}, "domain_gpus"),
        ({"parallel": {"dp_weight": -1}}, "parallel.dp_weight"),
        ({"parallel": {"pp_weight": 1001}}, "parallel.pp_weight"),
        ({"estimate": "0s"}, "estimate: must be longer than nothing"),
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
