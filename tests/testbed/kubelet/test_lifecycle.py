"""What is done and said for a pod, from what its processes did: no process and no clock in it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.kubelet.lifecycle import Act, Backoff, Exit, Ran, Run, Seen, Step, decide, stamp
from testbed.kubelet.podspec import Pod

NOW = 1_800_000_000.0
GOOD, BAD = Exit(0, NOW - 5), Exit(3, NOW - 5)


def pod(
    policy: str = "Never", names: tuple[str, ...] = ("main",), phase: str = "", deleted: float | None = None
) -> Pod:
    meta: dict[str, Any] = {"name": "p", "namespace": "n", "uid": "u"}
    if deleted is not None:
        meta["deletionTimestamp"] = stamp(deleted)
    spec = {"nodeName": "r01-t01", "restartPolicy": policy, "containers": [{"name": name} for name in names]}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": phase}}, Pod)


def seen(*runs: Run, asked: bool = False, **more: Any) -> Seen:
    return Seen(NOW - 60, {"main": Ran(runs, asked)}, **more)


def run(end: Exit | None = None, started: float = NOW - 10) -> Run:
    return Run(started, end)


def state(step: Step, number: int = 0) -> dict[str, Any]:
    found = step.status["containerStatuses"][number]["state"]
    assert isinstance(found, dict)
    return found


def conditions(step: Step) -> dict[str, str]:
    return {one["type"]: one["status"] for one in step.status["conditions"]}


def test_a_new_pod_is_started() -> None:
    step = decide(pod(), seen(), NOW)
    assert step.acts == (Act("start", "main"),) and step.status["phase"] == "Pending"
    assert state(step) == {"waiting": {"reason": "ContainerCreating"}}


def test_what_can_not_start_yet_waits_and_says_why() -> None:
    step = decide(pod(), seen(waits=("CreateContainerConfigError", "no key k")), NOW)
    assert step.acts == () and step.status["phase"] == "Pending"
    assert state(step) == {"waiting": {"reason": "CreateContainerConfigError", "message": "no key k"}}


def test_a_running_pod_is_ready() -> None:
    step = decide(pod("Always"), seen(run()), NOW)
    assert step.acts == () and step.status["phase"] == "Running"
    assert state(step) == {"running": {"startedAt": stamp(NOW - 10)}}
    assert conditions(step) == {"Initialized": "True", "Ready": "True", "ContainersReady": "True"}


@pytest.mark.parametrize(
    ("policy", "end", "phase"),
    [("Never", GOOD, "Succeeded"), ("Never", BAD, "Failed"), ("OnFailure", GOOD, "Succeeded")],
)
def test_an_end_for_good(policy: str, end: Exit, phase: str) -> None:
    step = decide(pod(policy), seen(run(end)), NOW)
    assert step.acts == () and step.status["phase"] == phase and step.again is None
    assert state(step)["terminated"]["exitCode"] == end.code
    assert state(step)["terminated"]["finishedAt"] == stamp(NOW - 5)
    assert conditions(step)["Ready"] == "False"


def test_signals_are_told() -> None:
    step = decide(pod(), seen(run(Exit(137, NOW, 9, "NodeLost", "[simulated] power"))), NOW)
    found = state(step)["terminated"]
    assert (found["exitCode"], found["signal"], found["reason"]) == (137, 9, "NodeLost")
    assert found["message"] == "[simulated] power"


@pytest.mark.parametrize(("policy", "end"), [("OnFailure", BAD), ("Always", BAD), ("Always", GOOD)])
def test_the_first_restart_comes_at_once(policy: str, end: Exit) -> None:
    step = decide(pod(policy), seen(run(end)), NOW)
    assert step.acts == (Act("start", "main"),) and step.status["phase"] == "Running"


def test_later_restarts_wait_twice_as_long_each_time_up_to_a_limit() -> None:
    waits = [Backoff().after(tuple(run(BAD) for _ in range(count))) for count in range(1, 10)]
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300, 300]
    step = decide(pod("Always"), seen(run(BAD), run(BAD)), NOW)
    assert step.acts == () and step.again == BAD.at + 10 and step.status["phase"] == "Running"
    assert state(step)["waiting"]["reason"] == "CrashLoopBackOff"
    container = step.status["containerStatuses"][0]
    assert container["restartCount"] == 1 and container["lastState"]["terminated"]["exitCode"] == 3
    assert decide(pod("Always"), seen(run(BAD), run(BAD)), BAD.at + 10).acts == (Act("start", "main"),)


def test_a_long_run_forgives_what_was_before() -> None:
    long = Run(NOW - 1000, Exit(1, NOW - 5))
    assert Backoff().after((run(BAD), run(BAD), long)) == 0
    assert Backoff().after((run(BAD), long, run(BAD), run(BAD))) == 10


def test_a_pod_of_several_is_over_when_all_are() -> None:
    ran = {"a": Ran((run(GOOD),)), "b": Ran((run(),))}
    step = decide(pod(names=("a", "b")), Seen(NOW - 60, ran), NOW)
    assert step.status["phase"] == "Running" and conditions(step)["Ready"] == "False"
    step = decide(pod(names=("a", "b")), Seen(NOW - 60, ran | {"b": Ran((run(BAD),))}), NOW)
    assert step.status["phase"] == "Failed"


def test_deletion_asks_then_kills_then_removes() -> None:
    deadline = NOW + 30
    going = pod("Always", deleted=deadline)
    assert decide(going, seen(run()), NOW).acts == (Act("terminate", "main"),)
    waits = decide(going, seen(run(), asked=True), NOW)
    assert waits.acts == () and waits.again == deadline + 1  # the API server cuts times to the second
    assert decide(going, seen(run(), asked=True), deadline + 1).acts == (Act("kill", "main"),)
    over = decide(going, seen(run(Exit(143, NOW, 15)), asked=True), NOW)
    assert over.acts == (Act("remove"),) and over.status["phase"] == "Failed"


def test_a_pod_deleted_before_it_ran_is_removed_and_not_started() -> None:
    step = decide(pod(deleted=NOW + 30), seen(), NOW)
    assert step.acts == (Act("remove"),) and step.status["phase"] == "Failed"


def test_what_is_refused_fails_and_stays_so() -> None:
    step = decide(pod(), seen(refused=("OutOfnvidia.com/gpu", "too few")), NOW)
    assert step.acts == () and step.status["phase"] == "Failed" and step.status["reason"] == "OutOfnvidia.com/gpu"
    assert decide(pod(phase="Failed"), seen(refused=("x", "y")), NOW).status == {}


def test_a_phase_that_someone_ended_for_good_is_not_argued_with() -> None:
    """As when the garbage collector marks the pods of a lost node Failed."""
    step = decide(pod("Always", phase="Failed"), seen(run()), NOW)
    assert step.acts == (Act("kill", "main"),) and step.status == {}
    assert decide(pod("Always", phase="Failed"), seen(run(BAD)), NOW).acts == ()
    assert decide(pod("Always", phase="Failed", deleted=NOW), seen(run(BAD)), NOW).acts == (Act("remove"),)


_runs = st.lists(st.sampled_from([GOOD, BAD, Exit(137, NOW - 1, 9)]), max_size=4)


@given(
    policy=st.sampled_from(["Never", "OnFailure", "Always"]),
    ended=st.tuples(_runs, _runs),
    running=st.tuples(st.booleans(), st.booleans()),
    deleted=st.sampled_from([None, NOW - 60, NOW + 60]),
    phase=st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed"]),
)
def test_laws(
    policy: str, ended: tuple[list[Exit], list[Exit]], running: tuple[bool, bool], deleted: float | None, phase: str
) -> None:
    ran = {
        name: Ran(tuple(map(run, ends)) + ((run(),) if on else ()))
        for name, ends, on in zip(("a", "b"), ended, running, strict=True)
    }
    step = decide(pod(policy, ("a", "b"), phase, deleted), Seen(NOW - 60, ran), NOW)
    whats = {act.what for act in step.acts}
    starts = {act.container for act in step.acts if act.what == "start"}
    assert not any(ran[name].running for name in starts), "a container runs once at a time"
    if deleted is not None or phase in ("Succeeded", "Failed"):
        assert not starts, "what ends starts nothing"
    if "remove" in whats:
        assert deleted is not None and not any(running), "gone only when nothing runs"
    if step.status.get("phase") in ("Succeeded", "Failed") and "remove" not in whats:
        assert not any(running) and not starts, "over only when all is over"
    if policy == "Never":
        assert all(not ran[name].runs for name in starts), "never restarted"
