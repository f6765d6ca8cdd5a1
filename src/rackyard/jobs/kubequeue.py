"""Why Kueue holds a job back, by its Workload: of all conditions the one that decides. Pure.

Conditions and reasons as in Kueue's API (`apis/kueue/v1beta2/workload_types.go`, 0.17): quota is reserved, then
admission checks pass, then it is admitted; eviction takes that back.
"""

from rackyard.jobs.kubejob import Said, Workload

NONE = Said()
_BACK = {
    "Preempted": "nothing: it comes back when there is quota again",
    "PodsReadyTimeout": "see what its pods waited for; time in which Rackyard finds no seat counts for Kueue, too",
    "ClusterQueueStopped": "wait until its ClusterQueue is started again (spec.stopPolicy)",
    "LocalQueueStopped": "wait until its LocalQueue is started again (spec.stopPolicy)",
}


def held(workload: Workload) -> tuple[str, str] | None:
    """The reason and the next step; None where Kueue has let it in, or is done with it."""
    said = workload.conditions
    admitted, quota, evicted = (said.get(kind, NONE) for kind in ("Admitted", "QuotaReserved", "Evicted"))
    if said.get("Finished", NONE).status == "True":
        return None
    if not workload.active:
        told = f"Kueue has deactivated it{_because(evicted)}"
        patch = f'kubectl patch workload {workload.name} --type merge -p \'{{"spec":{{"active":true}}}}\''
        return told, f"mend what is said here, then: {patch}"
    if evicted.status == "True" and admitted.status != "True":
        return _taken_off(workload, evicted, quota)
    if admitted.status == "True":
        return None
    if quota.status == "True":
        return _unchecked(workload)
    return _no_quota(workload, quota)


def _taken_off(workload: Workload, evicted: Said, quota: Said) -> tuple[str, str]:
    """Preempted says by whom; Evicted only that it was."""
    preempted = workload.conditions.get("Preempted", NONE)
    why = preempted if evicted.reason == "Preempted" and preempted.status == "True" else evicted
    again = f"; not admitted again: {quota.message}" if quota.status == "False" and quota.message else ""
    step = _BACK.get(evicted.reason, "nothing: Kueue queues it again")
    return f"Kueue took it off ({evicted.reason}): {why.message or why.reason}{again}", step


def _unchecked(workload: Workload) -> tuple[str, str]:
    left = {name: said for name, said in workload.checks.items() if said.status != "Ready"}
    if not left:
        return "Kueue has reserved quota for it and is about to admit it", "nothing: it starts within moments"
    name, said = next(iter(left.items()))
    told = f": {said.message}" if said.message else ""
    reason = f"Kueue has quota for it, and waits for admission check {name} ({said.status}){told}"
    return reason, f"kubectl describe admissioncheck {name}"


def _no_quota(workload: Workload, quota: Said) -> tuple[str, str]:
    queue = f" in queue {workload.queue}" if workload.queue else ""
    if not quota.status:
        return f"Kueue has not looked at it yet{queue}", "if nothing happens: does Kueue run?"
    reason = f"Kueue has not admitted it{queue}: {quota.message or quota.reason}"
    if quota.reason == "Inadmissible":
        return reason, f"mend the queue, or name another one: kubectl describe localqueue {workload.queue}"
    return reason, f"wait for quota, or ask its owner for more: kubectl describe localqueue {workload.queue}"


def _because(said: Said) -> str:
    return f" ({said.reason}): {said.message}" if said.message else ""
