"""The Volcano Job of a job file: compared with a recorded one, which the real API server takes (tests/testbed)."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from rackyard.controller.kube import objects
from rackyard.controller.kuberequest import annotation
from rackyard.errors import UsageError
from rackyard.jobs.spec import JobSpec
from rackyard.launch import volcano
from rackyard.launch.volcano import Settings, manifest

RECORD = Path(__file__).with_name("volcano.yaml")
JOB: dict[str, Any] = {
    "name": "shape-dit",
    "run": "python -m rackyard.shape3d.train --config tiny",
    "gpus": 16,
    "segment": {"gpus": 8},
    "checkpoint": {"dir": "/ckpt", "every": "20 steps"},
    "recover": {"attempts": 4, "spares": 1},
    "env": {"PRICE": "5$ $(HOME)"},
    "apart": ["noisy"],
    "queue": "prod",
}
SETTINGS = Settings("registry.example/train:1", "team", mounts=(("scratch", "/ckpt"), ("/data", "/data")))


def made(settings: Settings = SETTINGS, **more: Any) -> dict[str, Any]:
    spec = JobSpec.from_dict({**JOB, **more}).to_dict()
    return manifest(spec, annotation(spec, settings.namespace), settings)


def text(job: dict[str, Any]) -> str:
    writer, out = YAML(typ="safe", pure=True), io.StringIO()
    writer.default_flow_style, writer.width = False, 4096
    writer.dump(job, out)
    return out.getvalue()


def pod(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["tasks"][0]["template"]["spec"]
    return found


def test_the_manifest_is_the_recorded_one() -> None:
    assert text(made()) == RECORD.read_text()


def test_the_names_are_those_that_the_controller_reads() -> None:
    ours = (volcano.GATE, volcano.GANG, volcano.SIZE, volcano.REQUEST)
    assert ours == (objects.GATE, objects.GANG, objects.SIZE, objects.REQUEST)
    told = {f"rackyard.io/{name}" for name in volcano._TOLD}
    ranks = {objects.RANK, objects.SEGMENT, objects.SEATS, objects.ATTEMPT, objects.MASTER}
    assert told == {*ranks, objects.RACK, objects.RAILS}


def test_the_request_leaves_out_what_goes_without_saying() -> None:
    asked = json.loads(made()["spec"]["tasks"][0]["template"]["metadata"]["annotations"][volcano.REQUEST])
    assert asked == {"apart": ["team/noisy"], "segment_gpus": 8, "spares": 1}


@pytest.mark.parametrize(("gpus", "each", "pods", "on_each"), [(1, 4, 1, 1), (4, 4, 1, 4), (8, 4, 2, 4), (16, 8, 2, 8)])
def test_pods_and_their_gpus(gpus: int, each: int, pods: int, on_each: int) -> None:
    job = made(Settings("i", gpus_per_node=each), gpus=gpus, segment=None)
    assert (job["spec"]["minAvailable"], job["spec"]["tasks"][0]["replicas"]) == (pods, pods)
    assert pod(job)["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": str(on_each)}}


def test_networks_and_priorities() -> None:
    plain, host = made(), made(Settings("i", host_network=True, priority_class="high"), priority=5)
    assert "hostNetwork" not in pod(plain) and "svc" in plain["spec"]["plugins"]
    assert pod(host)["hostNetwork"] and pod(host)["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "plugins" not in host["spec"] and pod(host)["priorityClassName"] == "high"


@pytest.mark.parametrize(
    ("settings", "more", "what"),
    [
        (Settings(""), {}, "no container image"),
        (SETTINGS, {"gpus": 6, "segment": None}, "no whole number of nodes with 4 GPUs"),
        (SETTINGS, {"checkpoint": {"dir": "ckpt"}}, "checkpoint.dir: must be absolute"),
        (SETTINGS, {"checkpoint": {"dir": "."}}, "checkpoint.dir: must be absolute"),
        (SETTINGS, {"workdir": "src"}, "workdir: must be absolute"),
        (SETTINGS, {"recover": {"mode": "observe"}}, "recover.mode: observe"),
        (SETTINGS, {"priority": 5}, "priority: 5 is not for Kubernetes"),
        (SETTINGS, {"name": "n" * 60}, "too long for Kubernetes"),
    ],
)
def test_what_can_not_be_carried_is_refused(settings: Settings, more: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what) as raised:
        made(settings, **more)
    assert raised.value.fix


def test_a_name_as_long_as_its_pods_allow() -> None:
    assert made(name="n" * (63 - len("-worker-3")))["metadata"]["name"]
