"""The one reason that holds a job on Kubernetes, from what its objects say."""

from dataclasses import replace
from typing import Any

import pytest

from rackyard.jobs.kubejob import KubeJob, KubeNode, KubePlan, KubePod, Maker, Said, Workload, attempts, phase_of
from rackyard.jobs.kubeplaced import PLACED
from rackyard.jobs.kubewhy import SCHEDULED, why

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
NO_CLAIM = '0/8 nodes are unavailable: persistentvolumeclaim "A_B" not found.'
MAKER = Maker("JobSet", "j", "jobset j")
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
        "rackyard logs j --first-error --target kubernetes",
    ),
    (job(state="Failed", state_message="told so"), "failed", "told so", "rackyard logs"),
    (
        job(replace(FREE, conditions={SCHEDULED: Said("False", "Unschedulable", NO_CLAIM)}), plans=(FIRST,)),
        "starting",
        f"1 of 1 pods have no node yet: {NO_CLAIM}",
        "make the claim A_B, or cancel it and submit it again with another --mount",
    ),
    (
        job(placed("Resting", f"3 plans came to nothing, the last one because {NO_CLAIM}"), plans=(ENDED,)),
        "pending",
        "waits for seats to go on: 3 plans came to nothing",
        "make the claim A_B",
    ),
    (
        job(replace(FREE, conditions={PLACED: Said("False", "Unanswered", "volcano said nothing; fix: see it")})),
        "starting",
        "1 of 1 pods have no node yet: volcano said nothing",
        "see it",
    ),
    (
        job(placed("Trouble", "the API server refuses it"), plans=(replace(FIRST, phase="Planned"),)),
        "pending",
        "attempt 1 has its seats and is about to start",
        "rackyard kube run",
    ),
    (
        job(
            replace(GATED, conditions={PLACED: Said("False", "Trouble", "the API server refuses it", 9.0)}),
            plans=(replace(FIRST, phase="Planned"),),
        ),
        "pending",
        "attempt 1 has its seats and can't start: the API server refuses it",
        "it is tried again",
    ),
    (
        job(placed("VictimsStay", "2 pods that have to go first are still there"), plans=(ENDED,)),
        "pending",
        "attempt 1 is over: 2 pods that have to go first are still there",
        "places it again",
    ),
]
WORDS = ("UnknownSize", "MembersMissing", "TooMany", "NoRanks", "BadName", "BadComputeDomain", "Broken", "Pinned")
HELD = ("OtherGates", "NotInqueue", "Leaving", "Unanswered", "Trouble", "Incomplete", "VictimsStay", "New")


@pytest.mark.parametrize("word", [*WORDS, *HELD])
def test_only_what_waits_for_a_seat_is_told_as_waiting_for_one(word: str) -> None:
    for made in (job(placed(word, "so it is")), replace(job(placed(word, "so it is")), maker=MAKER)):
        answer = why(made)
        assert "seat" not in answer.reason and "so it is" in answer.reason
        assert answer.next_step and answer.next_step != "wait for room"


def refused(name: str, at: float, words: str = 'exceeded quota: none, requested: pods=1"') -> Said:
    """As Volcano's controller prints it."""
    dump = f'Status:"Failure", Message:"pods \\"{name}\\" is forbidden: {words}, Reason:"Forbidden", Code:403'
    message = f"Error creating pods: [failed to create pod {name}, err: &errors.StatusError{{ErrStatus:{{{dump}}}}}]"
    return Said("Warning", "FailedCreate", message, at)


NO_CLASS = 'no PriorityClass with name nope was found"'


def test_pods_that_are_refused_are_the_reason_told_once() -> None:
    events = (refused("j-worker-0", 1.0), refused("j-worker-1", 2.0), replace(refused("j-worker-0", 3.0), times=4))
    for group in ("", "Pending", "Inqueue"):
        answer = why(job(group=group, events=events))
        told = 'pods "j-worker-0" is forbidden: exceeded quota: none, requested: pods=1'
        assert answer.reason == f"its pods can't be created: {told}"
        assert answer.evidence == (f"FailedCreate: {told} (6 times)",)
        assert answer.next_step.endswith("kubectl describe resourcequota none")


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (NO_CLASS, "make PriorityClass nope, or cancel it and submit it again with another --priority-class"),
        ('violates PodSecurity \\"restricted:latest\\": host namespaces"', "have the namespace allow it"),
        ('User \\"x\\" may not"', "have it allowed"),
    ],
)
def test_what_to_do_about_a_refusal(words: str, step: str) -> None:
    answer = why(job(events=(refused("j-worker-0", 1.0, words),)))
    assert step in answer.next_step and "errors.StatusError" not in str(answer)


def test_a_refusal_of_another_form_is_told_as_it_is() -> None:
    answer = why(job(events=(Said("Warning", "FailedCreate", "odd\n" + "x" * 900),)))
    assert answer.reason.startswith("its pods can't be created: odd xxx") and len(answer.reason) < 450
    assert answer.next_step == "mend what is said here: kubectl describe job.batch.volcano.sh j"


def test_pods_with_names_by_chance_are_refused_once() -> None:
    """As Kubernetes' own Job controller says it."""
    told = [
        Said("Warning", "FailedCreate", f'{before}Error creating: pods "j-0-{name}" is forbidden: no', at)
        for at, (before, name) in enumerate([("", "x7k2p"), ("", "bbbbb"), ("(combined from similar events): ", "c")])
    ]
    answer = why(job(events=tuple(told), maker=MAKER))
    assert answer.evidence == ('FailedCreate: Error creating: pods "j-0-c" is forbidden: no (3 times)',)
    assert answer.next_step == "have it allowed, or make JobSet j anew without what is named here"


def test_a_refusal_counts_while_pods_are_missing() -> None:
    short = job(placed("MembersMissing", "1 of 2 pods are there"), events=(refused("j-worker-1", 1.0),))
    assert why(short).reason.startswith("only 1 of its pods could be created: ")
    assert "runs" in why(job(RUNS, step=3, plans=(FIRST,), events=(refused("j-worker-1", 1.0),))).reason
    old = job(plans=(ENDED,), events=(refused("j-worker-1", 1.0),))
    assert "created" not in why(old).reason, "that was before its first attempt"
    gone = why(job(state="Terminated", events=(refused("j-worker-1", 1.0),)))
    assert gone.reason.startswith("Volcano gave it up: its pods could not be created: ")


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
