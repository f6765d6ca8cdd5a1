"""What to do next for a pod, and what to say of it: a pure function of the pod, what its processes did, and the time.

Times are seconds since 1970. The states are core/v1's (PodPhase, ContainerState) as the real kubelet uses them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from testbed.kubelet.environ import ADDRESS
from testbed.kubelet.podspec import Container, Pod

TERMINAL = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: `code` as a shell would give it (128 + signal), and `reason` where it isn't plain."""

    code: int
    at: float
    signal: int = 0
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One process of a container: when it was started, and how it ended unless it still runs."""

    started: float
    exit: Exit | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """All processes that a container has had, oldest first; `asked`: the last one was sent SIGTERM."""

    runs: tuple[Run, ...] = ()
    asked: bool = False

    @property
    def running(self) -> bool:
        return bool(self.runs) and self.runs[-1].exit is None

    @property
    def exit(self) -> Exit | None:
        return self.runs[-1].exit if self.runs else None


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the pod here. `refused` is (reason, message) of a pod that can never run here, `waits` of one
    that can't be started yet; `since` is when the pod was first seen.
    """

    since: float
    containers: Mapping[str, Ran]
    refused: tuple[str, str] | None = None
    waits: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits before restarts, in seconds: none before the first, then `base`, doubled each time up to `most`; a run of
    `reset` seconds begins anew (the kubelet's own: 10 s, 5 min, 10 min).
    """

    base: float = 10.0
    most: float = 300.0
    reset: float = 600.0

    def after(self, runs: tuple[Run, ...]) -> float:
        streak = 0
        for run in reversed(runs):
            if run.exit is None or run.exit.at - run.started >= self.reset:
                break
            streak += 1
        return 0.0 if streak < 2 else min(self.most, self.base * 2.0 ** min(streak - 2, 32))


@dataclass(frozen=True, slots=True)
class Act:
    """One thing to do now. `remove` is the last DELETE, without grace; it has no container."""

    what: Literal["start", "terminate", "kill", "remove"]
    container: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What to do, what to say (the body of `status`), and when to look again though nothing has happened."""

    acts: tuple[Act, ...]
    status: dict[str, Any]
    again: float | None = None


def decide(pod: Pod, seen: Seen, now: float, backoff: Backoff | None = None) -> Step:
    """The next step. Calling it again after the acts, with what then is seen, says what came of them."""
    ran = {container.name: seen.containers.get(container.name, Ran()) for container in pod.spec.containers}
    running = [name for name, one in ran.items() if one.running]
    deadline = pod.metadata.deadline()
    if pod.status.phase in TERMINAL or seen.refused:
        # Someone else (or we) ended it for good: nothing may run any more.
        acts = tuple(Act("kill", name) for name in running)
        if not running and deadline is not None:
            acts = (Act("remove"),)
        return Step(acts, _refused(pod, seen) if seen.refused and pod.status.phase not in TERMINAL else {})
    if deadline is not None:
        return _ending(pod, seen, ran, now, deadline)
    acts, again, waiting = _going(pod, seen, ran, now, backoff or Backoff())
    return Step(acts, _status(pod, seen, ran, waiting), again)


def _ending(pod: Pod, seen: Seen, ran: Mapping[str, Ran], now: float, deadline: float) -> Step:
    running = [name for name, one in ran.items() if one.running]
    status = _status(pod, seen, ran, {name: ("ContainerCreating", "") for name, one in ran.items() if not one.runs})
    if not running:
        never = any(not one.runs for one in ran.values())
        return Step((Act("remove"),), status | ({"phase": "Failed"} if never else {}))
    if now >= deadline:
        return Step(tuple(Act("kill", name) for name in running), status)
    return Step(tuple(Act("terminate", name) for name in running if not ran[name].asked), status, deadline)


def _going(
    pod: Pod, seen: Seen, ran: Mapping[str, Ran], now: float, backoff: Backoff
) -> tuple[tuple[Act, ...], float | None, dict[str, tuple[str, str]]]:
    """Acts, when to look again, and the containers that wait with their reasons."""
    acts: list[Act] = []
    times: list[float] = []
    waiting: dict[str, tuple[str, str]] = {}
    for name, one in ran.items():
        if one.running or (one.exit and not _restarts(pod, one.exit)):
            continue
        if one.exit:
            wait = backoff.after(one.runs)
            at = one.exit.at + wait
            if now < at:
                times.append(at)
                waiting[name] = ("CrashLoopBackOff", f"back-off {wait:.0f}s restarting failed container={name}")
                continue
        if seen.waits:
            waiting[name] = seen.waits
        else:
            waiting[name] = ("ContainerCreating", "")
            acts.append(Act("start", name))
    return tuple(acts), min(times, default=None), waiting


def _restarts(pod: Pod, end: Exit) -> bool:
    policy = pod.spec.restart_policy
    return policy == "Always" or (policy == "OnFailure" and end.code != 0)


def _refused(pod: Pod, seen: Seen) -> dict[str, Any]:
    assert seen.refused is not None
    reason, message = seen.refused
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": stamp(seen.since)}


def _status(pod: Pod, seen: Seen, ran: Mapping[str, Ran], waiting: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    runs = [run for one in ran.values() for run in one.runs]
    over = all(one.exit and name not in waiting for name, one in ran.items())
    if over:
        phase = "Succeeded" if all(one.exit and one.exit.code == 0 for one in ran.values()) else "Failed"
    else:
        phase = "Running" if runs else "Pending"
    ready = all(one.running for one in ran.values())
    starts = [run.started for run in runs]
    ends = [run.exit.at for run in runs if run.exit]
    since = max(starts if ready else ends, default=seen.since)
    why = {} if ready else {"reason": "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"}
    is_ready = {"status": "True" if ready else "False", "lastTransitionTime": stamp(since), **why}
    return {
        "phase": phase,
        "hostIP": ADDRESS,
        "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}],
        "startTime": stamp(seen.since),
        "conditions": [
            {"type": "Initialized", "status": "True", "lastTransitionTime": stamp(seen.since)},
            {"type": "Ready", **is_ready},
            {"type": "ContainersReady", **is_ready},
        ],
        "containerStatuses": [
            _container(pod, container, ran[container.name], waiting.get(container.name))
            for container in pod.spec.containers
        ],
    }


def _container(pod: Pod, container: Container, ran: Ran, waiting: tuple[str, str] | None) -> dict[str, Any]:
    named = [f"process://{pod.metadata.uid}/{container.name}/{number}" for number in range(len(ran.runs))]
    ended = [_terminated(run, name) for run, name in zip(ran.runs, named, strict=True) if run.exit]
    if waiting is not None:
        state: dict[str, Any] = {"waiting": {"reason": waiting[0]} | ({"message": waiting[1]} if waiting[1] else {})}
    elif ran.running:
        state = {"running": {"startedAt": stamp(ran.runs[-1].started)}}
    else:
        state = ended.pop()
    found = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ran.running,
        "started": ran.running,
        "restartCount": max(0, len(ran.runs) - 1),
        "state": state,
        "lastState": ended[-1] if ended else {},
    }
    return found | ({"containerID": named[-1]} if named else {})


def _terminated(run: Run, named: str) -> dict[str, Any]:
    end = run.exit
    assert end is not None
    found: dict[str, Any] = {
        "exitCode": end.code,
        "reason": end.reason or ("Completed" if end.code == 0 else "Error"),
        "startedAt": stamp(run.started),
        "finishedAt": stamp(end.at),
        "containerID": named,
    }
    found |= {"signal": end.signal} if end.signal else {}
    return {"terminated": found | ({"message": end.message} if end.message else {})}


def stamp(at: float) -> str:
    """RFC 3339, to the second, as meta/v1 Time."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
