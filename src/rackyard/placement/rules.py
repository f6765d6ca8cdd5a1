"""The rules between the keys of a job, on a request: nothing is proposed that a job file could not say."""

from itertools import pairwise

from rackyard.placement.model import SCOPES, Request

MOST_GPUS = 1_000_000


def valid(request: Request) -> bool:
    """Whether a job file with these keys would be accepted (docs/job-spec.md, "Rules between keys")."""
    gpus, segment = request.gpus, request.segment_gpus or 1
    pieces = gpus // segment
    runs = [group.gpus for group in sorted(request.groups, key=lambda group: SCOPES.index(group.within))]
    return (
        gpus <= MOST_GPUS
        and gpus % segment == 0
        and all(gpus % run == 0 and run % segment == 0 for run in runs)
        and all(less < more for less, more in pairwise(runs))
        and _cut(request)
        and (not isinstance(request.spread, int) or request.spread <= pieces)
        and request.copies <= pieces
        and len(request.pin) <= gpus
    )


def _cut(request: Request) -> bool:
    plan = request.parallel
    if plan is None:
        return True
    return request.gpus % (plan.tp * plan.pp * plan.cp) == 0 and request.gpus // plan.pp % plan.ep == 0
