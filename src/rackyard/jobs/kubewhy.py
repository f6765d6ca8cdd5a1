"""`why` for a job on Kubernetes: of all that its objects say, the one reason that holds it now. Pure.

In the order in which a gang comes to run: the queue (Kueue's Workload, Volcano's PodGroup) lets it in, Rackyard places
it (pod condition `rackyard.io/Placed`), the scheduler binds (PodScheduled), the kubelet starts. The first that has not
happened is the reason; what comes after it is only its echo.
"""

from collections.abc import Callable, Mapping

from rackyard.jobs.kubejob import KubeJob, KubePod, Said, cause, failure, phase_of
from rackyard.jobs.kubequeue import held
from rackyard.jobs.state import Phase
from rackyard.jobs.why import Why

PLACED, SCHEDULED = "rackyard.io/Placed", "PodScheduled"
_MOST = 8
_NEXT = {
    "ImagePullBackOff": "check the image's name and the cluster's credentials for it; then cancel and submit again",
    "ErrImagePull": "check the image's name and the cluster's credentials for it; then cancel and submit again",
    "CreateContainerConfigError": "what the container refers to is not there: kubectl describe pod {pod}",
    "MembersMissing": "nothing: Volcano makes the missing pods; if it does not, see kubectl get events",
    "UnknownSize": "the gang's annotations were changed: submit it again with `rackyard submit`",
    "NotInqueue": "wait for the queue, or ask for another one: queue in the job file",
    "OtherGates": "wait for whoever set that gate",
}
_BROKEN = frozenset({"BadRequest", "BadName", "BadComputeDomain", "NoRanks", "TooMany", "NoPlan", "Pinned", "Broken"})
"""Reasons that no waiting cures."""
_MEND = "correct what the pods say, and have them made anew"
_NEXT_OF_OTHERS = {
    "MembersMissing": "if the missing pods do not come: kubectl describe {maker}",
    "UnknownSize": "annotate the pod template of {maker} with rackyard.io/gang-size, and make it anew",
    "NotInqueue": "wait for the queue: kubectl get podgroups",
}
"""Where somebody else made the gang."""


def why(job: KubeJob) -> Why:
    """The answer to `rackyard why JOB --target kubernetes`."""
    phase = phase_of(job)
    if phase.over:
        return _over(job, phase)
    for look in _LOOKS:
        if (found := look(job)) is not None:
            reason, evidence, next_step = found
            return Why(job.name, phase.value, reason, evidence, next_step)
    after = "is Volcano there?" if job.maker is None else f"kubectl describe {job.maker.resource}"
    return Why(job.name, phase.value, _nothing(job), (*history(job), *_events(job)), f"if nothing happens: {after}")


Found = tuple[str, tuple[str, ...], str]


def _over(job: KubeJob, phase: Phase) -> Why:
    if phase is Phase.SUCCEEDED:
        step = f" at step {job.step}" if job.step else ""
        return Why(job.name, phase.value, f"all ranks ended well{step}", history(job), "nothing to do")
    if phase is Phase.CANCELLED:
        return Why(job.name, phase.value, "it was cancelled", history(job), "")
    allowed = int(job.spec.get("recover", {}).get("attempts", 0))
    used = f"all {allowed} attempts are used up; " if allowed and job.retries >= allowed else ""
    reason = f"{used}{failure(job)}"
    ends = tuple(_end(pod) for pod in job.pods if pod.phase == "Failed")[:_MOST]
    return Why(
        job.name, phase.value, reason, (*ends, *history(job)), f"read its log: rackyard logs {job.name} --first-error"
    )


def _end(pod: KubePod) -> str:
    said = pod.ended or Said()
    return f"pod {pod.name} on {pod.node}: exit code {said.status or 'unknown'} {said.reason} {said.message}".rstrip()


def _restarting(job: KubeJob) -> Found | None:
    if job.state != "Restarting":
        return None
    ending = [f"pod {pod.name} on {pod.node or 'no node'} is being ended" for pod in job.pods if pod.ending]
    told = cause(job.plans[-1], None, job.nodes) if job.plans else ""
    reason = f"attempt {job.attempt} is over and its pods are made anew" + (f": {told}" if told else "")
    return reason, (*ending[:_MOST], *_events(job)), "nothing: it goes on when they are gone"


def _no_queue(job: KubeJob) -> Found | None:
    if job.queue_there:
        return None
    fix = "make it, or name another one (queue in the job file): kubectl get queues"
    return f"its queue {job.queue!r} does not exist, so Volcano does nothing with it", (), fix


def _held_by_kueue(job: KubeJob) -> Found | None:
    if job.workload is None or (found := held(job.workload)) is None:
        return None
    reason, next_step = found
    checks = _conditions("admission check", job.workload.checks)
    return reason, (*_conditions("Kueue Workload", job.workload.conditions), *checks, *history(job)), next_step


def _suspended(job: KubeJob) -> Found | None:
    if not job.suspended or job.maker is None:
        return None
    reason = f"its {job.maker.kind} is suspended, so that it has no pods"
    return reason, _events(job), "whoever suspended it lets it go on (spec.suspend: false); with Kueue: does Kueue run?"


def _held_by_queue(job: KubeJob) -> Found | None:
    if job.maker is not None and not job.group:
        return None
    if job.group not in ("", "Pending") or any(not pod.gated for pod in job.live):
        return None
    said = job.group_conditions.get("Unschedulable")
    note = next((one.message for one in reversed(job.events) if one.status == "Warning"), "")
    told = (said.message if said is not None else "") or note
    reason = f"waits in queue {job.queue}" + (f": {told}" if told else ", which has not let it in yet")
    evidence = (*_conditions("Volcano PodGroup", job.group_conditions), *_events(job))
    if not job.group:
        return reason, evidence, "if nothing happens: do Volcano's controller and scheduler run?"
    return reason, evidence, f"wait, or look at the queue: kubectl describe queue {job.queue}"


def _not_placed(job: KubeJob) -> Found | None:
    gated = [pod for pod in job.live if pod.gated]
    if not gated:
        return None
    plan = job.plans[-1] if job.plans and job.plans[-1].phase != "Ended" else None
    if plan is not None and plan.phase != "Preempting":
        left = f"{len(gated)} of {len(job.live)} pods are still held"
        return f"attempt {plan.attempt} has its seats and is about to start", (left, *history(job)), _RUN
    if plan is not None:
        told = plan.message or "others are moved out of the way"
        return (
            f"attempt {plan.attempt} waits for its seats: {told}",
            history(job),
            "nothing: it starts when they are gone",
        )
    said = next((pod.conditions[PLACED] for pod in gated if PLACED in pod.conditions), None)
    if said is None or said.status == "True":
        return "Rackyard's controller has not looked at it yet", _events(job), _RUN
    waiting = "waits for a seat" if job.attempt == 0 else "waits for seats to go on"
    summary, _, fix = said.message.partition("; fix: ")
    evidence = (f"{PLACED}: {said.reason}: {summary}", *history(job))
    if said.reason in _BROKEN:
        return f"{said.reason}: {summary}", evidence, fix or _next(job, said.reason)
    if said.reason == "OtherGates":
        return summary, evidence, fix or _next(job, said.reason)
    return f"{waiting}: {summary or said.reason}", evidence, fix or _next(job, said.reason)


def _next(job: KubeJob, reason: str) -> str:
    if job.maker is not None and reason in _NEXT_OF_OTHERS:
        return _NEXT_OF_OTHERS[reason].format(maker=job.maker.resource)
    return _NEXT.get(reason, _MEND if reason in _BROKEN else "wait for room")


_RUN = "if nothing happens: is `rackyard kube run` at work on this cluster?"


def _not_bound(job: KubeJob) -> Found | None:
    free = [pod for pod in job.live if not pod.node and not pod.gated]
    if not free:
        return None
    told = [(pod, pod.conditions[SCHEDULED]) for pod in free if pod.conditions.get(SCHEDULED, Said()).message]
    reason = f"attempt {job.attempt} waits for the scheduler: {len(free)} of {len(job.live)} pods have no node yet"
    if told:
        reason += f": {told[0][1].message}"
    evidence = tuple(f"pod {pod.name}: {said.reason}: {said.message}" for pod, said in told[:_MOST])
    refused = any(said.reason == "Unschedulable" for _, said in told)
    return (
        reason,
        (*evidence, *_conditions("Volcano PodGroup", job.group_conditions)),
        "nothing: Rackyard plans it anew" if refused else "is the pods' scheduler (spec.schedulerName) at work?",
    )


def _not_started(job: KubeJob) -> Found | None:
    waiting = [pod for pod in job.live if pod.phase == "Pending"]
    if not waiting:
        return None
    stuck = next((pod for pod in waiting if pod.waiting and pod.waiting.reason not in ("", "ContainerCreating")), None)
    up = f"{len(job.live) - len(waiting)} of {len(job.live)} pods run"
    if stuck is None or stuck.waiting is None:
        return f"attempt {job.attempt} is starting: {up}", history(job), "nothing to do"
    said = stuck.waiting
    evidence = tuple(
        f"pod {pod.name} on {pod.node}: {pod.waiting.reason}: {pod.waiting.message}" for pod in waiting if pod.waiting
    )
    fix = _NEXT.get(said.reason, "kubectl describe pod {pod}").format(pod=stuck.name)
    return f"pod {stuck.name} on {stuck.node} can't start: {said.reason}: {said.message}", evidence[:_MOST], fix


def _going(job: KubeJob) -> Found | None:
    if not job.live:
        return None
    if not job.step and job.maker is not None:
        where = len({pod.node for pod in job.live})
        attempt = f"attempt {job.attempt}" if job.attempt else "it"
        told = f"{attempt} runs: {_counted(len(job.live), 'pod')} on {_counted(where, 'node')}"
        return told, history(job), "nothing to do"
    if not job.step:
        back = f", to resume from step {job.resumed}" if job.resumed else ""
        return f"attempt {job.attempt} is starting: its pods run{back}", history(job), "nothing to do"
    return f"attempt {job.attempt} runs: step {job.step}", history(job), "nothing to do"


_LOOKS: tuple[Callable[[KubeJob], Found | None], ...] = (
    _no_queue,
    _restarting,
    _held_by_kueue,
    _suspended,
    _held_by_queue,
    _not_placed,
    _not_bound,
    _not_started,
    _going,
)


def _nothing(job: KubeJob) -> str:
    if job.maker is None or not job.plans:
        return "nothing is known of it yet" if job.maker is None else "it has no pods yet"
    last = job.plans[-1]
    return f"it has no pods; attempt {last.attempt}: {last.message or last.reason or last.phase}"


def history(job: KubeJob) -> tuple[str, ...]:
    """What ended each attempt, and how far the job is."""
    lines = [
        f"attempt {before.attempt}: {cause(before, after, job.nodes) or 'it was given up'}"
        for before, after in zip(job.plans, job.plans[1:], strict=False)
    ]
    return (*lines, f"newest step {job.step}") if job.step else tuple(lines)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _conditions(of: str, found: Mapping[str, Said]) -> tuple[str, ...]:
    return tuple(f"{of}: {kind}={said.status}: {said.reason}: {said.message}" for kind, said in sorted(found.items()))


def _events(job: KubeJob) -> tuple[str, ...]:
    return tuple(f"{one.reason}: {one.message}" for one in job.events[-_MOST:])
