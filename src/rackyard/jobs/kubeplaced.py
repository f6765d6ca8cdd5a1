"""Why a gang's pods are still held: what Rackyard's controller says of it, on its pods and its plan. Pure.

The reasons are those of `rackyard.controller.kube`, in the table of docs/kubernetes.md.
"""

from rackyard.jobs.kubecures import cure
from rackyard.jobs.kubeevidence import events, history
from rackyard.jobs.kubejob import KubeJob, KubePlan, Said

PLACED = "rackyard.io/Placed"
RUN = "if nothing happens: is `rackyard kube run` at work on this cluster?"
_SEATS = frozenset({"NoSeat", "Behind", "Resting", "WouldPlace"})
"""It could be placed, if there were room. Everything else is something else."""
_BROKEN = frozenset(
    {"BadRequest", "BadName", "BadComputeDomain", "NoRanks", "TooMany", "UnknownSize", "NoPlan", "Pinned", "Broken"}
)
"""Reasons that no waiting cures."""
_OVER = frozenset({"Fault", "NodeLost", "Refused", "Restarted", "Astray", "Preempted", "Incomplete", "VictimsStay"})
"""Why a plan ended."""
_MEND = "correct what the pods say, and have them made anew"
_NEXT = {
    "MembersMissing": "nothing: Volcano makes the missing pods; if it does not, see kubectl get events",
    "UnknownSize": "the gang's annotations were changed: submit it again with `rackyard submit`",
    "NotInqueue": "wait for the queue, or ask for another one: queue in the job file",
    "OtherGates": "wait for whoever set that gate",
    "Leaving": "nothing: it goes on when they are gone",
    "Trouble": "nothing: it is tried again; if that does not help, mend what is said here",
    "Unanswered": "see whether the pods' scheduler (spec.schedulerName) runs",
}
_NEXT_OF_OTHERS = {
    "MembersMissing": "if the missing pods do not come: kubectl describe {maker}",
    "UnknownSize": "annotate the pod template of {maker} with rackyard.io/gang-size, and make it anew",
    "NotInqueue": "wait for the queue: kubectl get podgroups",
}
"""Where somebody else made the gang."""


def verdict(job: KubeJob) -> Said | None:
    """What the controller says against the gang going on; None where it says nothing, or nothing against it."""
    said = next((pod.conditions[PLACED] for pod in job.live if PLACED in pod.conditions), None)
    return None if said is None or said.status == "True" else said


def lacks_pods(job: KubeJob) -> bool:
    """Whether pods of it are not there that should be."""
    return not job.live or ((said := verdict(job)) is not None and said.reason == "MembersMissing")


def not_placed(job: KubeJob) -> tuple[str, tuple[str, ...], str] | None:
    """Reason, evidence and next step; None where no pod is held any more."""
    gated = [pod for pod in job.live if pod.gated]
    if not gated:
        return None
    said = verdict(job)
    plan = job.plans[-1] if job.plans and job.plans[-1].phase != "Ended" else None
    if plan is not None:
        return _planned(job, plan, said, len(gated))
    if said is None:
        return "Rackyard's controller has not looked at it yet", events(job), RUN
    summary, fix = parted(said)
    evidence = (f"{PLACED}: {said.reason}: {summary}", *history(job))
    # a plan that came to nothing for want of a thing does so again, wherever it is
    wants = said.reason in _OVER or said.reason == "Resting" or '" not found' in summary
    next_step = (cure(summary, job) if wants else None) or fix or _next(job, said.reason)
    return _told(job, said.reason, summary), evidence, next_step


def parted(said: Said) -> tuple[str, str]:
    """What is said, and what to do about it; empty where that is not said."""
    summary, _, fix = said.message.partition("; fix: ")
    return summary or said.reason, fix


def seatless(said: Said) -> bool:
    """Whether it is for want of room."""
    return said.reason in _SEATS


def _told(job: KubeJob, reason: str, summary: str) -> str:
    if reason in _SEATS:
        return f"{'waits for a seat' if job.attempt == 0 else 'waits for seats to go on'}: {summary}"
    if reason in _BROKEN:
        return f"{reason}: {summary}"
    if reason == "Trouble":
        return f"Rackyard can't go on with it: {summary}"
    return f"attempt {job.attempt} is over: {summary}" if reason in _OVER and job.attempt else summary


def _planned(job: KubeJob, plan: KubePlan, said: Said | None, gated: int) -> tuple[str, tuple[str, ...], str]:
    """It has seats, which is told on its pods as well: what is said against it since then is newer than that."""
    since = said if said is not None and said.at > plan.created and said.reason not in _SEATS else None
    told, fix = parted(since) if since is not None else ("", "")
    next_step = fix or _next(job, since.reason) if since is not None else ""
    if plan.phase == "Preempting":
        waits = told or plan.message or "others are moved out of the way"
        reason = f"attempt {plan.attempt} waits for its seats: {waits}"
        return reason, history(job), next_step or "nothing: it starts when they are gone"
    reason = f"attempt {plan.attempt} has its seats and " + (f"can't start: {told}" if told else "is about to start")
    return reason, (f"{gated} of {len(job.live)} pods are still held", *history(job)), next_step or RUN


def _next(job: KubeJob, reason: str) -> str:
    if job.maker is not None and reason in _NEXT_OF_OTHERS:
        return _NEXT_OF_OTHERS[reason].format(maker=job.maker.resource)
    if reason in _OVER:
        return "nothing: Rackyard places it again"
    return _NEXT.get(reason, _MEND if reason in _BROKEN else "wait for room" if reason in _SEATS else RUN)
