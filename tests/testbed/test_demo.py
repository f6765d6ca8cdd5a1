"""The demo's job through Volcano on process nodes: a tray is lost, then the rack's NVLink, and the loss is the same."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.testbed.rig import SITE, Rig, controlled, rig

from rackyard.checkpoint import list_checkpoints
from rackyard.checkpoint.manifest import read
from rackyard.cli.demo import JOB, Course
from rackyard.controller.kube.health import Options

pytest.importorskip("torch")
from rackyard.shape3d.meshes import write_samples

pytestmark = [pytest.mark.kube, pytest.mark.slow, pytest.mark.timeout(1800)]

COURSE = Course(steps=40, every=4, tray_at=12, rack_at=26)
HEALTH = Options(mode="act", lost_after=1.0, settle=0.5)


@pytest.fixture(scope="module")
def yard(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    needs_testbed(("volcano",))
    with rig(tmp_path_factory.mktemp("demo")) as made, controlled(made, health=HEALTH):
        yield made


def submit(yard: Rig, folder: Path, name: str, meshes: Path, spares: int) -> None:
    told = {"name": name, "meshes": meshes, "steps": COURSE.steps, "every": COURSE.every, "spares": spares}
    file = folder / f"{name}.yaml"
    file.write_text(JOB.format(**told, ckpt=folder / f"{name}-ckpt"))
    answer = yard.submit(file)
    assert answer.code == 0, answer


def row(yard: Rig, name: str) -> dict[str, Any]:
    rows = json.loads(yard.call("ps", "-a", "-o", "json").out)
    found: dict[str, Any] = next(each for each in rows if each["job"] == name)
    return found


def at_step(yard: Rig, name: str, step: int, attempt: int) -> None:
    def there() -> bool:
        now = row(yard, name)
        assert now["phase"] != "failed", (yard.why(name), yard.told)
        return bool(now["attempt"] >= attempt and now["phase"] == "running" and now["step"] >= step)

    yard.until(f"{name} is at step {step}", there, name)


def loss(yard: Rig, name: str) -> str:
    found = re.search(r"^\[0\] final loss=\S+ hex=(\S+)$", yard.call("logs", name, "--rank", 0).out, re.M)
    assert found is not None
    return found[1]


def test_the_demo_through_a_lost_tray_and_a_lost_rack(yard: Rig, tmp_path: Path) -> None:
    meshes = tmp_path / "meshes"
    write_samples(meshes)
    submit(yard, tmp_path, "shape-dit", meshes, spares=1)
    at_step(yard, "shape-dit", COURSE.tray_at, 1)
    first = yard.nodes("shape-dit")
    (rack,) = {name.partition("-")[0] for name in first}
    yard.kubelet.lose(first[0])
    at_step(yard, "shape-dit", COURSE.rack_at, 2)
    second = yard.nodes("shape-dit")
    assert first[0] not in second and {name.partition("-")[0] for name in second} == {rack}, "a spare stands in"
    for node in SITE.nodes:
        if node.rack == rack and node.name != first[0]:
            yard.kubelet.condition(node.name, "rackyard.io/NVLinkDown", reason="Xid154")
    yard.until("it is over", lambda: yard.state("shape-dit") in ("Completed", "Failed"), "shape-dit")
    assert row(yard, "shape-dit")["phase"] == "succeeded", (yard.why("shape-dit"), yard.told)
    third = yard.nodes("shape-dit")
    assert not {name for name in third if name.startswith(rack)}, "the segment has moved"
    resumed = re.search(r"^\[0\] resumed at step=(\d+)$", yard.call("logs", "shape-dit").out, re.M)
    assert resumed is not None and int(resumed[1]) >= COURSE.tray_at // COURSE.every * COURSE.every

    submit(yard, tmp_path, "control", meshes, spares=0)
    yard.until("the control run is over", lambda: yard.state("control") in ("Completed", "Failed"), "control")
    assert row(yard, "control")["phase"] == "succeeded" and len(yard.plans("control")) == 1
    assert loss(yard, "shape-dit") == loss(yard, "control")
    told = yard.call("attempts", "shape-dit").out
    ours, theirs = (
        read(list_checkpoints(tmp_path / f"{name}-ckpt")[0].path).files for name in ("shape-dit", "control")
    )
    assert ours == theirs and len(ours) > 8, "the same bytes by SHA-256, one by one"
    tried = json.loads(yard.call("attempts", "shape-dit", "-o", "json").out)["attempts"]
    assert f"tray {first[0]}" in tried[0]["fault"] and f"rack {rack}: NVLink" in tried[-2]["fault"], told
    assert tried[-2]["action"] == "move-segment" and tried[-1]["fault"] == "succeeded"
