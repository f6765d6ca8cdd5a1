"""Which gang a pod belongs to, by what whoever made it writes on it. Pure: for the controller and for the commands.

Keys as seen on pods of the real controllers (JobSet 0.11.1, LeaderWorkerSet 0.8.0, Trainer 2.2.0, Volcano 1.14.1,
Kubernetes 1.36.3); those of the Kubeflow training operator are from its source (v1.9.3, `common_types.go`, `pod.go`).
"""

from collections.abc import Mapping

OURS = "rackyard.io/"
GANG, SIZE = "rackyard.io/gang", "rackyard.io/gang-size"
GATE = "rackyard.io/placement"
GROUP = "scheduling.k8s.io/group-name"
"""Annotation: the Volcano PodGroup that a pod belongs to."""
JOB = "batch.kubernetes.io/job-name"
JOBSET, JOBSET_UID = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid"
LWS, LWS_GROUP = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"
LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"
KUBEFLOW = "training.kubeflow.org/job-name"


def gang_name(labels: Mapping[str, str], annotations: Mapping[str, str], pod: str, *, gated: bool) -> str:
    """The gang that the pod of that name belongs to; empty for none. `gated`: whether our gate holds it.

    Our label says it of any pod. The other names are read on pods that bear our gate or an annotation of ours only, so
    that helpers of the same job stay out, and jobs that have nothing to do with us.
    """
    if GANG in labels:
        return labels[GANG]
    if not (gated or any(key.startswith(OURS) for key in annotations)):
        return ""
    if annotations.get(GROUP):
        return annotations[GROUP]
    if LWS in labels and LWS_GROUP in labels:
        return f"{labels[LWS]}-{labels[LWS_GROUP]}"
    # alone, so that it is said what it lacks
    return next((labels[key] for key in (JOBSET, KUBEFLOW, JOB) if labels.get(key)), pod)
