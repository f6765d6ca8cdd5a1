"""Simulated faults, and what is observed of them."""

import signal
import sys
import time

import pytest
from localsite import LocalSite

from rackyard.backends.local import FaultTarget, inject
from rackyard.errors import UsageError
from rackyard.faults.observations import FabricDown, NodeLost, RankExited, StepDone

LOOP = """
    import itertools, time, rackyard
    for step in itertools.count(1):
        rackyard.report_step(step)
        time.sleep(0.05)
"""


@pytest.fixture
def busy(site: LocalSite) -> LocalSite:
    """Two ranks on each of two nodes, and a job of a single rank beside them."""
    site.script(LOOP)
    run = f"{sys.executable} train.py"
    site.backend.launch(site.plan(run, nodes=("n0", "n0", "n1", "n1"), warm=("json",)))
    site.backend.launch(site.plan(run, nodes=("n1",), job="small"))
    for job, rank in [("job", 0), ("job", 1), ("job", 2), ("job", 3), ("small", 0)]:
        site.wait(StepDone, job=job, rank=rank)
    return site


def test_a_process_dies(busy: LocalSite) -> None:
    assert "simulated" in inject(busy.backend, "process", FaultTarget(job="job", rank=2))
    (exited,) = busy.wait(RankExited)
    assert (exited.rank, exited.signal) == (2, signal.SIGKILL)
    with pytest.raises(UsageError, match="isn't running"):
        inject(busy.backend, "process", FaultTarget(job="job", rank=2))


def test_a_rank_hangs(busy: LocalSite) -> None:
    inject(busy.backend, "hang", FaultTarget(job="job", rank=1))
    busy.observe()
    time.sleep(0.3)
    busy.observe()
    stuck, going = (busy.all(StepDone, job="job", rank=rank)[-1].mono for rank in (1, 0))
    assert going - stuck > 0.2
    assert not busy.all(RankExited)


def test_a_tray_loses_power(busy: LocalSite) -> None:
    inject(busy.backend, "tray", FaultTarget(nodes=("n0",)))
    (lost,) = busy.wait(NodeLost)
    assert lost.node == "n0"
    # Nobody was left there to see the ranks die.
    assert not busy.all(RankExited, node="n0")
    with pytest.raises(UsageError):
        inject(busy.backend, "tray", FaultTarget(nodes=("n0",)))


@pytest.mark.parametrize(("kind", "part"), [("rack-nvlink", "nvlink"), ("switch-tray", "sw-3")])
def test_a_racks_fabric_goes_down_once_and_takes_what_spans_gpus(busy: LocalSite, kind: str, part: str) -> None:
    inject(busy.backend, kind, FaultTarget(nodes=("n0", "n1"), rack="r0", part="sw-3"))
    exits = busy.wait(RankExited, 4)
    (down,) = busy.wait(FabricDown)
    assert (down.rack, down.part, down.simulated) == ("r0", part, True)
    assert down.text.startswith("[simulated] NVRM: Xid")
    assert {exited.signal for exited in exits} == {signal.SIGKILL}
    assert busy.seen.index(down) < min(busy.seen.index(exited) for exited in exits)
    steps = len(busy.all(StepDone, job="small"))
    busy.wait(StepDone, steps + 3, job="small")
    assert not busy.all(RankExited, job="small")


def test_targets_are_checked(site: LocalSite) -> None:
    for kind in ("process", "hang", "tray", "rack-nvlink"):
        with pytest.raises(UsageError):
            inject(site.backend, kind, FaultTarget())
    with pytest.raises(UsageError, match="name of a node"):
        inject(site.backend, "tray", FaultTarget(nodes=("../x",)))
