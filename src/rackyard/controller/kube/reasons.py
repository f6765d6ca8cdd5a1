"""Why a gang waits, and what to change, in the words of its pods: their number, and their annotation. Pure."""

import json
import re
from dataclasses import replace

from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.objects import REQUEST
from rackyard.controller.kube.yards import Yards
from rackyard.placement import Occupancy, Rejection, Request, Yard, place_on
from rackyard.placement.change import Change
from rackyard.placement.decide import looks, misfits
from rackyard.placement.engine import keep_apart
from rackyard.placement.queue import QueuePlan
from rackyard.placement.record import request_data
from rackyard.placement.reject import refusal
from rackyard.placement.unknown import mismatch

_OF_PODS = ("gpus", "gpus_per_node")
"""What follows from the pods."""
_GPUS = re.compile(r"`?\bgpus: (\d+)`?")


def unknown(asked: Request, yard: Yard) -> str:
    """Nodes and racks that it names and the site does not have; empty for none."""
    found = mismatch(asked, yard) if asked.pin or asked.exclude or asked.exclude_racks else None
    return "" if found is None else f"{found.summary}; fix: {found.fix}".replace("`nodes.", "`")


def why_held(gang: Gang, made: QueuePlan, yards: Yards | None, now: float) -> tuple[str, str]:
    """Without times: they change from round to round, and what is said is written whenever it changes."""
    reason = made.reasons[gang.key]
    match reason.kind:
        case "reserved":
            return "Behind", f"it would run past its deadline into seats that are reserved for {reason.holder}"
        case "behind":
            return "Behind", f"it has no deadline, and what is free is reserved for {reason.holder}"
        case "untried":
            return "Behind", "too many gangs before it were looked at in this round"
    if yards is not None:
        answer = place_on(gang.wish, yards.yard(), yards.occupancy)
        if isinstance(answer, Rejection):
            return "NoSeat", _no_seat(gang, answer, yards)
        return "Behind", f"what is free is kept for {reason.holder or 'others that come first'}"
    return "NoSeat", replace(reason, until=None).text(now)


def _no_seat(gang: Gang, answer: Rejection, yards: Yards) -> str:
    """What is to blame: the nodes that it is kept off, where it has a seat without that."""
    anywhere = place_on(gang.request, yards.yard(), yards.occupancy) if gang.off else answer
    if isinstance(anywhere, Rejection):
        fix = _fix_of(anywhere, gang.request if gang.off else gang.wish, yards.yard(), yards.occupancy)
        told = f"{anywhere.summary}; fix: {fix}"
    else:
        some = ", ".join(sorted(gang.off)[:3]) + (", ..." if len(gang.off) > 3 else "")
        told = f"it would have a seat, but {len(gang.off)} nodes ({some}) are not for its pods, by their nodeSelector, "
        told += "node affinity or tolerations, or because the scheduler refused them of late; fix: change those in the "
        told += "pod template, or the labels and taints of the nodes"
    return f"{told}; {gang.setback}" if gang.setback else told


def _fix_of(rejection: Rejection, request: Request, yard: Yard, occupancy: Occupancy) -> str:
    """The fix of a rejection, which is said in the words of a job file. Each pod takes `request.gpus_per_node` GPUs."""
    said = rejection.fix
    if "`" not in said and not _GPUS.search(said):
        return said
    request = keep_apart(request, yard.columns.site, occupancy)
    changes: tuple[Change, ...] = ()
    if mismatch(request, yard) is None:
        changes = refusal(request, yard, occupancy, list(looks(request, yard)), misfits(request, yard)).changes
    each = request.gpus_per_node or 1
    for change in changes:
        said = said.replace(change.text, _text(request, change.request))
    if any(int(count) % each for count in _GPUS.findall(said)):
        return f"another number of pods, or another annotation {REQUEST}"
    return _GPUS.sub(lambda found: f"{int(found[1]) // each} pods", said).replace("`nodes.", "`")


def _text(before: Request, after: Request) -> str:
    """`"segment_gpus": 16` in annotation rackyard.io/request with `gpus: 16`."""
    old, new = request_data(before), request_data(after)
    changed = {key: value for key, value in new.items() if key not in _OF_PODS and value != old[key]}
    parts = []
    if changed:
        told = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in changed.items())
        parts.append(f"`{told}` in annotation {REQUEST}")
    if after.gpus != before.gpus:
        parts.append(f"`gpus: {after.gpus}`")
    return " with ".join(parts)
