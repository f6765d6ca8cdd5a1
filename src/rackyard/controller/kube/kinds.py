"""Whose pods they are: what the controllers that make pods write on them. Pure.

Keys and where they were seen: `jobs.kubegang`.
"""

import re
from collections.abc import Mapping

from rackyard.controller.kube.objects import RANK, Owner, Pod
from rackyard.jobs import kubegang
from rackyard.jobs.kubegang import GROUP as GROUP
from rackyard.jobs.kubegang import JOBSET, JOBSET_UID, LWS_SIZE
from rackyard.jobs.kubegang import LWS as LWS
from rackyard.jobs.kubegang import LWS_GROUP as LWS_GROUP

JOB_INDEX = "batch.kubernetes.io/job-completion-index"
VOLCANO_TASK, VOLCANO_INDEX = "volcano.sh/task-spec", "volcano.sh/task-index"
SET_INDEX = "apps.kubernetes.io/pod-index"
JOBSET_INDEX = "jobset.sigs.k8s.io/job-global-index"
"""Which of all Jobs of the JobSet, over all of its replicated jobs. A TrainJob is a JobSet of the same name."""
LWS_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
KUBEFLOW_TYPE, KUBEFLOW_INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"

_FIRST = frozenset({"master", "chief", "launcher", "leader"})
"""Roles whose pods come before all others: a PyTorchJob's Master is its rank 0, and its workers follow."""
_NUMBER = re.compile(r"(?:^|-)(\d+)$")


def gang_name(pod: Pod) -> str:
    """The gang that a pod belongs to; empty for none."""
    meta = pod.metadata
    return kubegang.gang_name(meta.labels, meta.annotations, meta.name, gated=pod.gated)


def place_in_gang(pod: Pod) -> tuple[int, ...] | None:
    """A key by which a gang's pods are put in order: their ranks are the order of the keys. None for no place.

    Our annotation is the rank itself. Other keys are distinct within whatever made the pods, and not dense.
    """
    said = {**pod.metadata.labels, **pod.metadata.annotations}
    if RANK in said:
        return _key(said, RANK)
    if LWS_INDEX in said:
        return _key(said, LWS_GROUP, LWS_INDEX)
    if JOBSET_INDEX in said:
        return _key({JOB_INDEX: "0", **said}, JOBSET_INDEX, JOB_INDEX)
    for role, index in ((KUBEFLOW_TYPE, KUBEFLOW_INDEX), (VOLCANO_TASK, VOLCANO_INDEX)):
        if index in said:
            return _in_role(said.get(role, ""), _key(said, index))
    for index in (JOB_INDEX, SET_INDEX):
        if index in said:
            return _key(said, index)
    found = _NUMBER.search(pod.metadata.name)
    return _key({"": found.group(1)}, "") if found else None


def size_of(pod: Pod) -> int | None:
    """How many pods its gang has, where whoever made it says so: a LeaderWorkerSet, of a group."""
    if gang_name(pod) != f"{pod.metadata.labels.get(LWS, '')}-{pod.metadata.labels.get(LWS_GROUP, '')}":
        return None
    found = _key(pod.metadata.annotations, LWS_SIZE)
    return found[0] if found else None


def owner_of(pod: Pod) -> Owner:
    """Whom an object that goes with the gang belongs to: the pod's controller, else the pod. Of a JobSet's pod it is
    the JobSet, which outlives its Jobs: it makes them anew when one fails.
    """
    labels = pod.metadata.labels
    if labels.get(JOBSET) and labels.get(JOBSET_UID):
        return Owner("jobset.x-k8s.io/v1alpha2", "JobSet", labels[JOBSET], labels[JOBSET_UID], True)
    made_by = next((each for each in pod.metadata.owner_references if each.controller), None)
    return made_by or Owner("v1", "Pod", pod.metadata.name, pod.metadata.uid, True)


def _key(said: Mapping[str, str], *keys: str) -> tuple[int, ...] | None:
    """The numbers under those keys; None where one of them is missing or none."""
    told = [said.get(key, "") for key in keys]
    return tuple(map(int, told)) if all(each.isascii() and each.isdigit() and len(each) <= 6 for each in told) else None


def _in_role(role: str, index: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """By role, leaders first and then by name, and within it by index."""
    if index is None:
        return None
    name = int.from_bytes(role.lower().encode()[:63].ljust(63, b"\0"), "big")  # orders as the names do
    return (0 if role.lower() in _FIRST else 1, name, *index)
