"""What to do about what the API server, the scheduler and controllers refuse, by their words. Pure."""

import re

from rackyard.jobs.kubejob import KubeJob

_KINDS = "persistentvolumeclaim|configmap|secret|serviceaccount|runtimeclass|resourceclaim|resourceclaimtemplate"
_CURES: tuple[tuple[str, str], ...] = (
    (
        r"no PriorityClass with name (?P<name>\S+)",
        "make PriorityClass {name}, or {again} with another --priority-class: kubectl get priorityclasses",
    ),
    (
        r"exceeded quota: (?P<name>[\w.-]+)",
        "wait until others have ended, or ask for a larger quota: kubectl describe resourcequota {name}",
    ),
    (
        r"violates PodSecurity",
        "{again} without what is named here, or have the namespace allow it (pod-security.kubernetes.io/enforce)",
    ),
    (
        r'persistentvolumeclaims? "(?P<name>[^"]*)" not found',
        "make the claim {name}, or {again} with another --mount: kubectl get pvc",
    ),
    (r"unbound immediate PersistentVolumeClaims", "see why its claim has no volume: kubectl get pvc"),
    (rf'(?P<kind>{_KINDS})s?(?:\.\S+)? "(?P<name>[^"]*)" not found', "make {kind} {name}, or {again} without it"),
    (
        r"is forbidden|admission webhook .* denied|not allowed",
        "have it allowed, or {again} without what is named here",
    ),
)
"""Words and remedies; the first that fits."""


def cure(message: str, job: KubeJob) -> str | None:
    """The next step where something is missing or not allowed; None where the words tell of nothing like it."""
    again = "cancel it and submit it again" if job.maker is None else f"make {job.maker.kind} {job.maker.name} anew"
    for words, step in _CURES:
        if (found := re.search(words, message, re.IGNORECASE)) is not None:
            return step.format(again=again, **found.groupdict())
    return None
