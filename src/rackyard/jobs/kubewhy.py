"""`why` for a job on Kubernetes: of all that its objects say, the one reason that holds it now. Pure.

In the order in which a gang comes to run: the queue (Kueue's Workload, Volcano's PodGroup) lets it in, Rackyard places
it (pod condition `rackyard.io/Placed`), the scheduler binds (PodScheduled), the kubelet starts. The first that has not
happened is the reason; what comes after it is only its echo.
"""

from collections.abc import Callable

from rackyard.jobs.kubecures import cure
from rackyard.jobs.kubeevidence import MOST, conditions, events, history, inner, uncreated
from rackyard.jobs.kubejob import KubeJob, KubePod, Said, cause, failure, phase_of
from rackyard.jobs.kubeplaced import lacks_pods, not_placed, parted, verdict
from rackyard.jobs.kubequeue import held
from rackyard.jobs.state import Phase
from rackyard.jobs.why import Why

SCHEDULED = "PodScheduled"
_NEXT = {
    "ImagePullBackOff": "check the image's name and the cluster's credentials for it; then cancel and submit again",
    "ErrImagePull": "check the image's name and the cluster's credentials for it; then cancel and submit again",
    "InvalidImageName": "check the image's name; then cancel and submit again",
    "CreateContainerConfigError": "what the container refers to is not there: kubectl describe pod {pod}",
}


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
    return Why(job.name, phase.value, _nothing(job), (*history(job), *events(job)), f"if nothing happens: {after}")


Found = tuple[str, tuple[str, ...], str]


def _over(job: KubeJob, phase: Phase) -> Why:
    if phase is Phase.SUCCEEDED:
        step = f" at step {job.step}" if job.step else ""
        return Why(job.name, phase.value, f"all ranks ended well{step}", history(job), "nothing to do")
    if job.state.startswith("Terminat") and (told := uncreated(job)):
        reason = f"Volcano gave it up: its pods could not be created: {told}"
        return Why(job.name, phase.value, reason, (*events(job), *history(job)), cure(told, job) or "")
    if phase is Phase.CANCELLED:
        return Why(job.name, phase.value, "it was cancelled", history(job), "")
    allowed = int(job.spec.get("recover", {}).get("attempts", 0))
    used = f"all {allowed} attempts are used up; " if allowed and job.retries >= allowed else ""
    reason = f"{used}{failure(job)}"
    ends = tuple(_end(pod) for pod in job.pods if pod.phase == "Failed")[:MOST]
    log = f"read its log: rackyard logs {job.name} --first-error --target kubernetes"
    return Why(job.name, phase.value, reason, (*ends, *history(job)), log)


def _end(pod: KubePod) -> str:
    said = pod.ended or Said()
    return f"pod {pod.name} on {pod.node}: exit code {said.status or 'unknown'} {said.reason} {said.message}".rstrip()


def _restarting(job: KubeJob) -> Found | None:
    if job.state != "Restarting":
        return None
    ending = [f"pod {pod.name} on {pod.node or 'no node'} is being ended" for pod in job.pods if pod.ending]
    told = cause(job.plans[-1], None, job.nodes) if job.plans else ""
    reason = f"attempt {job.attempt} is over and its pods are made anew" + (f": {told}" if told else "")
    return reason, (*ending[:MOST], *events(job)), "nothing: it goes on when they are gone"


def _no_queue(job: KubeJob) -> Found | None:
    if job.queue_there:
        return None
    fix = "make it, or name another one (queue in the job file): kubectl get queues"
    return f"its queue {job.queue!r} does not exist, so Volcano does nothing with it", (), fix


def _held_by_kueue(job: KubeJob) -> Found | None:
    if job.workload is None or (found := held(job.workload)) is None:
        return None
    reason, next_step = found
    checks = conditions("admission check", job.workload.checks)
    return reason, (*conditions("Kueue Workload", job.workload.conditions), *checks, *history(job)), next_step


def _suspended(job: KubeJob) -> Found | None:
    if not job.suspended or job.maker is None:
        return None
    reason = f"its {job.maker.kind} is suspended, so that it has no pods"
    return reason, events(job), "whoever suspended it lets it go on (spec.suspend: false); with Kueue: does Kueue run?"


def _not_made(job: KubeJob) -> Found | None:
    """Some or all of its pods are refused by the API server: for a quota, PodSecurity, a missing PriorityClass, ..."""
    if not lacks_pods(job) or not (told := uncreated(job)):
        return None
    maker = f"job.batch.volcano.sh {job.name}" if job.maker is None else job.maker.resource
    there = f"only {len(job.live)} of its pods could" if job.live else "its pods can't"
    reason = f"{there} be created: {told}"
    return reason, (*events(job), *history(job)), cure(told, job) or f"mend what is said here: kubectl describe {maker}"


def _held_by_queue(job: KubeJob) -> Found | None:
    if job.maker is not None and not job.group:
        return None
    if job.group not in ("", "Pending") or any(not pod.gated for pod in job.live):
        return None
    said = job.group_conditions.get("Unschedulable")
    note = next((inner(one.message) for one in reversed(job.events) if one.status == "Warning"), "")
    told = (said.message if said is not None else "") or note
    reason = f"waits in queue {job.queue}" + (f": {told}" if told else ", which has not let it in yet")
    evidence = (*conditions("Volcano PodGroup", job.group_conditions), *events(job))
    if not job.group:
        return reason, evidence, "if nothing happens: do Volcano's controller and scheduler run?"
    return reason, evidence, f"wait, or look at the queue: kubectl describe queue {job.queue}"


def _not_bound(job: KubeJob) -> Found | None:
    free = [pod for pod in job.live if not pod.node and not pod.gated]
    if not free:
        return None
    told = [(pod, pod.conditions[SCHEDULED]) for pod in free if pod.conditions.get(SCHEDULED, Said()).message]
    reason = f"attempt {job.attempt} waits for the scheduler: {len(free)} of {len(job.live)} pods have no node yet"
    next_step = "is the pods' scheduler (spec.schedulerName) at work?"
    if told:
        reason += f": {told[0][1].message}"
    elif (said := verdict(job)) is not None and said.reason in ("Unanswered", "Trouble"):
        summary, fix = parted(said)
        reason, next_step = f"{reason}: {summary}", fix or next_step
    if any(said.reason == "Unschedulable" for _, said in told):
        next_step = "nothing: Rackyard plans it anew"
    next_step = next((step for _, said in told if (step := cure(said.message, job))), next_step)
    evidence = tuple(f"pod {pod.name}: {said.reason}: {said.message}" for pod, said in told[:MOST])
    return reason, (*evidence, *conditions("Volcano PodGroup", job.group_conditions)), next_step


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
    fix = cure(said.message, job) or fix if "not found" in said.message else fix
    return f"pod {stuck.name} on {stuck.node} can't start: {said.reason}: {said.message}", evidence[:MOST], fix


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
    _not_made,
    _held_by_queue,
    not_placed,
    _not_bound,
    _not_started,
    _going,
)


def _nothing(job: KubeJob) -> str:
    if job.maker is None or not job.plans:
        return "nothing is known of it yet" if job.maker is None else "it has no pods yet"
    last = job.plans[-1]
    return f"it has no pods; attempt {last.attempt}: {last.message or last.reason or last.phase}"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")
