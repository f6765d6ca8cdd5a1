"""The one reason that holds a job on Kubernetes, from what its objects say."""

from dataclasses import replace
from typing import Any

import pytest

from rackyard.jobs.kubejob import KubeJob, KubeNode, KubePlan, KubePod, Said, Workload, attempts, phase_of
from rackyard.jobs.kubewhy import PLACED, SCHEDULED, why

GATED = KubePod("j-worker-0", gated=True)
FREE = KubePod("j-worker-0", attempt=1)
BOUND = KubePod("j-worker-0", node="r01-t01", attempt=1)
RUNS = KubePod("j-worker-0", node="r01-t01", phase="Running", attempt=1)
FAILED = KubePod("j-worker-0", node="r01-t01", phase="Failed", ended=Said("7", "Error", "", 5.0))
ENDED = KubePlan(
    1, ((0, "r01-t01"), (0, "r01-t02")), "Ended", "Fault", "tray r01-t01 is lost", created=10.0, ended=20.0
)
SPARE = KubePlan(
    2, ((0, "r01-t03"), (0, "r01-t02")), "Ended", "Fault", "rack r01 is down", "tray r01-t01 is lost", 21.0
)
MOVED = KubePlan(3, ((0, "r02-t01"), (0, "r02-t02")), "Bound", why="rack r01 is down", created=31.0, released=32.0)
FIRST = KubePlan(1, ((0, "r01-t01"),), "Bound", released=5.0)


def job(*pods: KubePod, state: str = "Pending", **more: Any) -> KubeJob:
    spec = {"gpus": 4, "recover": {"attempts": 2}}
    return replace(KubeJob("j", "default", spec, 0.0, state=state, group="Inqueue", pods=pods), **more)


def placed(reason: str, message: str) -> KubePod:
    return replace(GATED, conditions={PLACED: Said("False", reason, message)})


UNSCHEDULABLE = Said("True", "NotEnoughResources", "queue resource quota insufficient")
CASES: list[tuple[KubeJob, str, str, str]] = [
    (job(queue_there=False, queue="prd"), "pending", "its queue 'prd' does not exist", "kubectl get queues"),
    (job(group=""), "pending", "waits in queue default, which has not let it in", "Volcano's controller"),
    (
        job(GATED, group="Pending", group_conditions={"Unschedulable": UNSCHEDULABLE}),
        "pending",
        "waits in queue default: queue resource quota insufficient",
        "kubectl describe queue default",
    ),
    (
        job(GATED, workload=Workload("w", "q", conditions={"QuotaReserved": Said("False", "Pending", "no quota")})),
        "pending",
        "Kueue has not admitted it in queue q: no quota",
        "quota",
    ),
    (job(GATED), "pending", "controller has not looked at it yet", "rackyard kube run"),
    (job(placed("NoSeat", "4 busy; fix: wait for b")), "pending", "waits for a seat: 4 busy", "wait for b"),
    (
        job(placed("NoSeat", "all busy; fix: wait"), plans=(ENDED,), retries=1),
        "recovering",
        "waits for seats to go on: all busy",
        "wait",
    ),
    (job(GATED, plans=(replace(FIRST, phase="Planned"),)), "pending", "attempt 1 has its seats", "rackyard kube run"),
    (
        job(GATED, plans=(replace(FIRST, phase="Preempting", message="2 pods have to go"),)),
        "pending",
        "attempt 1 waits for its seats: 2 pods have to go",
        "nothing",
    ),
    (
        job(replace(FREE, conditions={SCHEDULED: Said("False", "Unschedulable", "0/8 nodes")}), plans=(FIRST,)),
        "starting",
        "waits for the scheduler: 1 of 1 pods have no node yet: 0/8 nodes",
        "plans it anew",
    ),
    (
        job(replace(BOUND, waiting=Said("", "ImagePullBackOff", "no such image")), plans=(FIRST,)),
        "starting",
        "pod j-worker-0 on r01-t01 can't start: ImagePullBackOff: no such image",
        "check the image's name",
    ),
    (job(BOUND, plans=(FIRST,)), "starting", "attempt 1 is starting: 0 of 1 pods run", "nothing to do"),
    (job(RUNS, state="Running", plans=(FIRST,)), "starting", "attempt 1 is starting: its pods run", "nothing to do"),
    (job(RUNS, state="Running", plans=(FIRST,), step=9), "running", "attempt 1 runs: step 9", "nothing to do"),
    (
        job(replace(RUNS, ending=True), state="Restarting", plans=(ENDED,), retries=1),
        "recovering",
        "attempt 1 is over and its pods are made anew: tray r01-t01 is lost",
        "nothing",
    ),
    (job(state="Completed", step=40), "succeeded", "all ranks ended well at step 40", "nothing to do"),
    (job(state="Aborted"), "cancelled", "it was cancelled", ""),
    (
        job(FAILED, state="Failed", retries=2),
        "failed",
        "all 2 attempts are used up; pod j-worker-0 on r01-t01 ended with exit code 7",
        "rackyard logs j --first-error",
    ),
    (job(state="Failed", state_message="told so"), "failed", "told so", "rackyard logs"),
]


@pytest.mark.parametrize(("given", "phase", "reason", "next_step"), CASES, ids=[case[2][:40] for case in CASES])
def test_the_reason_and_what_to_do(given: KubeJob, phase: str, reason: str, next_step: str) -> None:
    answer = why(given)
    assert (answer.job, answer.phase) == ("j", phase) and phase_of(given).value == phase
    assert reason in answer.reason and next_step in answer.next_step


def test_the_first_gate_in_the_way_is_the_reason_not_what_follows_from_it() -> None:
    """A gated pod is unschedulable to every scheduler; that is an echo."""
    pod = replace(placed("NoSeat", "no room"), conditions={
        PLACED: Said("False", "NoSeat", "no room"), SCHEDULED: Said("False", "SchedulingGated", "gated"),
    })  # fmt: skip
    answer = why(job(pod, group_conditions={"Unschedulable": UNSCHEDULABLE}))
    assert answer.reason == "waits for a seat: no room"


def test_attempts_say_what_was_done() -> None:
    nodes = {name: KubeNode(name[:3]) for name in ("r01-t01", "r01-t02", "r01-t03", "r02-t01", "r02-t02")}
    rows = attempts(job(RUNS, state="Running", plans=(ENDED, SPARE, MOVED), step=30, resumed=24, nodes=nodes))
    assert [(row.fault, row.action, row.seats) for row in rows] == [
        ("tray r01-t01 is lost", "replace-nodes", "r01[r01-t01,r01-t02]"),
        ("rack r01 is down", "move-segment", "r01[r01-t03,r01-t02]"),
        ("", "", "r02[r02-t01,r02-t02]"),
    ]
    assert [(row.launched, row.resumed, row.step) for row in rows] == [(None, None, None)] * 2 + [(32.0, 24, 30)]


def test_a_fault_of_a_node_goes_before_what_came_of_it() -> None:
    echo = replace(ENDED, reason="Ended", message="its pods have ended")
    fault = Said("", "tray", "tray r01-t02 is lost", 22.0)
    found = attempts(job(plans=(echo, SPARE), nodes={"r01-t02": KubeNode("r01", (fault,))}))
    assert found[0].fault == "tray r01-t02 is lost"
    for at in (3.0, 90.0):
        other = {"r01-t02": KubeNode("r01", (replace(fault, at=at),))}
        assert attempts(job(plans=(echo, SPARE), nodes=other))[0].fault == "its pods have ended"


def test_the_same_nodes_again_are_a_restart() -> None:
    rows = attempts(job(plans=(ENDED, replace(ENDED, attempt=2))))
    assert rows[0].action == "restart-processes" and rows[0].seats == "segment 0 [r01-t01,r01-t02]"
