"""Why a gang has no seat: the one constraint that decides, found by lifting constraints one at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from rackyard.placement import remedy
from rackyard.placement.census import BIT, EVERYTHING, PROBLEMS, Census
from rackyard.placement.change import Advice, Change, tried
from rackyard.placement.hardware import less, shortage, unmet
from rackyard.placement.model import Occupancy, RackVerdict, Rejection, Request
from rackyard.placement.pinning import dropped, fewer, pinned_wrong
from rackyard.placement.release import advice_on, nodes_to_lift, problems_to_lift
from rackyard.placement.shape import Misfit
from rackyard.placement.solve import solve
from rackyard.placement.undivided import undivided
from rackyard.placement.verdicts import PHRASE, Pools, nodes, verdicts
from rackyard.placement.yard import Yard

CONSTRAINT = {problem: problem for problem in PROBLEMS} | {
    "shared": "exclusive",
    "health": "unhealthy",
    "kind": "node-kind",
}
"""The name a rejection gives to what stands in nodes' way."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rejection, and the changes that its fix proposes."""

    rejection: Rejection
    changes: tuple[Change, ...]


def reject(
    request: Request, yard: Yard, occupancy: Occupancy, looks: Sequence[Census], misfits: Sequence[Misfit]
) -> Rejection:
    """The rejection of a gang that none of the censuses in `looks` could seat."""
    return refusal(request, yard, occupancy, looks, misfits).rejection


def refusal(
    request: Request, yard: Yard, occupancy: Occupancy, looks: Sequence[Census], misfits: Sequence[Misfit]
) -> Refusal:
    """The same with what its fix proposes, as requests."""
    if request.pin:
        wrong = pinned_wrong(request, yard, occupancy, looks)
        if wrong is not None:
            summary, advice = wrong
            decides = "pin", "enough here, but not for a gang that is pinned so"
            if looks:
                racks = verdicts(looks[0], request, decides=decides)
            else:
                racks = undivided(request, yard, misfits)[0].racks
            return Refusal(Rejection("pin", summary, racks, advice.text), advice.changes)
    if not looks:
        rejection, changes = undivided(request, yard, misfits)
        return Refusal(rejection, changes)
    if unmet(request, yard.columns):
        told = f"{gang(looks[0])}; {shortage(request, yard)}"
        return _refusal("node-kind", told, verdicts(looks[0], request), less(request, yard))
    able = [looked for looked in looks if solve(looked, request, EVERYTHING, 0) is not None]
    if not able:
        return _never(request, yard, _roomiest(looks, request))
    # hardware can't be waited for: where another class has enough of it, that one is explained
    met = (looked for looked in able if solve(looked, request, EVERYTHING & ~BIT["kind"], 0) is not None)
    return _now(request, yard, occupancy, next(met, able[0]))


def gang(looked: Census) -> str:
    """`the gang needs 2 segments of 4 nodes, each in one NVLink domain`."""
    shape = looked.shape
    if shape.per_node < looked.group.size and shape.nodes == 1:
        return f"the gang needs {shape.per_node} GPUs on one node"
    if shape.segment is None:
        return f"the gang needs {nodes(shape.nodes)} of {looked.group.size} GPUs"
    if shape.units == 1:
        return f"the gang needs {nodes(shape.nodes)} in one NVLink domain"
    return f"the gang needs {shape.units} segments of {nodes(shape.unit)}, each in one NVLink domain"


def _now(request: Request, yard: Yard, occupancy: Occupancy, looked: Census) -> Refusal:
    """It fits on an idle, healthy site, but not on this one."""
    pools, racks = Pools(looked), verdicts(looked, request)
    lifted = problems_to_lift(looked, request)
    if request.spares and (not lifted or solve(looked, request, spares=0) is not None):
        kept = f"{nodes(request.spares)} kept spare in every domain used"
        return _refusal(
            "spares", f"{gang(looked)}; they are there, but not with {kept}", racks, remedy.fewer_spares(request, yard)
        )
    out = pools.totals()
    worst = max(PROBLEMS, key=lambda problem: (out[problem], -PROBLEMS.index(problem)))
    constraint = CONSTRAINT[lifted[0] if len(lifted) == 1 else worst]
    causes = ", ".join(f"{out[name]} {PHRASE[name]}" for name in PROBLEMS if out[name])
    summary = f"{gang(looked)}: {int(pools.usable.sum())} of {int(pools.total.sum())} nodes are free ({causes})"
    summary += f"; {shortage(request, yard)}" if "kind" in lifted else ""
    summary += f", {request.spares} to be kept spare in every domain used" if request.spares else ""
    summary += f", and {nodes(len(request.pin))} pinned" if request.pin else ""
    return _refusal(constraint, summary, racks, _release(looked, request, yard, occupancy, lifted))


def _release(looked: Census, request: Request, yard: Yard, occupancy: Occupancy, lifted: tuple[str, ...]) -> Advice:
    """Which nodes must lose their problems, and what fits meanwhile."""
    of_nodes = tuple(problem for problem in lifted if problem != "kind")
    parts, changes = [], list(remedy.meanwhile(request, yard))
    if "kind" in lifted:
        asked = less(request, yard)
        parts, changes = [asked.text], [*asked.changes, *changes]
    if of_nodes and "kind" not in lifted:
        chosen = nodes_to_lift(looked, request, of_nodes)
        parts += [advice_on(looked, chosen, problem, yard, occupancy) for problem in of_nodes]
    others = [tried(request, replace(request, exclusive=False), yard), dropped(request, yard) if request.pin else None]
    changes += [change for change in others if change is not None]
    told = [change.sentence() for change in changes if change.sentence() not in parts]
    return Advice("; ".join(["; and ".join(parts), *told]), tuple(changes))


def _roomiest(looks: Sequence[Census], request: Request) -> Census:
    """The class to explain: the first, or the first whose domains hold a segment."""
    if not request.segment_required:
        return looks[0]
    return next((looked for looked in looks if looked.shape.unit <= _largest(looked)), looks[0])


def _largest(looked: Census) -> int:
    pools = Pools(looked)
    return max(1 if loose else size for loose, size in zip(pools.loose.tolist(), pools.total.tolist(), strict=True))


def _never(request: Request, yard: Yard, looked: Census) -> Refusal:
    """It would not fit even if every node were healthy and idle."""
    shape, pools = looked.shape, Pools(looked)
    sizes = [1 if loose else size for loose, size in zip(pools.loose.tolist(), pools.total.tolist(), strict=True)]
    largest, total = max(sizes), int(pools.total.sum())
    racks = verdicts(looked, request)
    if request.segment_required and shape.segment is not None and shape.segment > largest:
        rack = pools.names[sizes.index(largest)]
        summary = (
            f"a segment of {shape.segment * shape.per_node} GPUs needs {nodes(shape.segment)} in one NVLink domain; "
            f"the largest ({rack}) has {largest}"
        )
        return _refusal("domain-size", summary, racks, remedy.smaller_segment(request, yard, looked))
    if total < shape.nodes:
        summary = f"{gang(looked)}; the whole site has {nodes(total)} of that kind"
        return _refusal("site-size", summary, racks, remedy.smaller_gang(request, yard))
    for asked, without in _lifted(request):
        if solve(looked, without, EVERYTHING, 0) is not None:
            what = " and ".join(_asked(request, constraint, looked) for constraint in asked)
            decides = asked[0], f"enough here, but {_barred(request, asked[0])}"
            fix = _less(request, without, asked, yard, looked)
            return _refusal(asked[0], f"{gang(looked)}; {what}", verdicts(looked, request, decides=decides), fix)
    rooms = zip(pools.total.tolist(), pools.loose.tolist(), strict=True)
    room = sum(0 if loose and shape.unit > 1 else size // shape.unit for size, loose in rooms)
    summary = f"{gang(looked)}; its NVLink domains hold only {room} such segments"
    return _refusal("segments", summary, racks, remedy.smaller_segment(request, yard, looked))


def _refusal(constraint: str, summary: str, racks: tuple[RackVerdict, ...], advice: Advice) -> Refusal:
    return Refusal(Rejection(constraint, summary, racks, advice.text), advice.changes)


def _lifted(request: Request) -> Iterator[tuple[tuple[str, ...], Request]]:
    """The request without one, two and so on of the things that it asks for beside segments, and their names."""
    lifts: dict[str, Request] = {}
    if request.spread != "pack":
        lifts["spread"] = replace(request, spread="pack")
    if request.copies > 1:
        lifts["isolate"] = replace(request, copies=1)
    if any(group.required for group in request.groups):
        lifts["groups"] = replace(request, groups=tuple(replace(group, required=False) for group in request.groups))
    if request.pin:
        lifts["pin"] = replace(request, pin=frozenset())
    keys = {"spread": "spread", "isolate": "copies", "groups": "groups", "pin": "pin"}
    for count in range(1, len(lifts) + 1):
        for asked in combinations(lifts, count):
            yield asked, replace(request, **{keys[name]: getattr(lifts[name], keys[name]) for name in asked})


def _less(request: Request, without: Request, asked: tuple[str, ...], yard: Yard, looked: Census) -> Advice:
    if asked == ("spread",):
        return remedy.other_spread(request, yard)
    if asked == ("isolate",):
        return remedy.fewer_copies(request, yard, looked.shape.units)
    if asked == ("groups",):
        return remedy.smaller_groups(request, yard)
    if asked == ("pin",):
        return fewer(request, yard) or remedy.without(request, without, yard)
    return remedy.without(request, without, yard)


def _asked(request: Request, constraint: str, looked: Census) -> str:
    racks = len(dict.fromkeys(Pools(looked).names))
    if constraint == "spread":
        goal = f"over {request.spread} racks" if isinstance(request.spread, int) else "evenly"
        return f"these can't be spread {goal} here ({racks} racks)"
    if constraint == "isolate":
        return _apart(request, looked, racks)
    if constraint == "groups":
        asked = ", ".join(f"{group.gpus} GPUs within a {group.within}" for group in request.groups if group.required)
        return f"the network here has no such groups ({asked})"
    pins = sorted(request.pin)
    where = set(looked.columns.pool[looked.columns.positions(pins)].tolist())
    if looked.shape.units == 1 and looked.shape.nodes > 1 and request.segment_required and len(where) > 1:
        return f"the pinned nodes are in {len(where)} NVLink domains"
    return "the pinned nodes can't all be part of such a gang"


def _apart(request: Request, looked: Census, racks: int) -> str:
    """Why the copies of a checkpoint can't be kept apart."""
    shape, copies = looked.shape, request.copies
    each = shape.nodes // copies // shape.unit * shape.unit
    if not each:
        pieces = nodes(shape.nodes) if shape.unit == 1 else f"{shape.units} segment{'s' * (shape.units > 1)}"
        return f"{copies} copies of its checkpoint in different racks are more than {pieces}"
    least = -(-shape.nodes // each)
    what = f"no rack may hold more than 1/{copies} of it"
    return (
        f"{what}, which takes {least} racks, and {racks} are here" if least > racks else f"{what}, and these hold less"
    )


def _barred(request: Request, constraint: str) -> str:
    """What is said of a rack with room."""
    if constraint == "spread":
        goal = f"over {request.spread} racks" if isinstance(request.spread, int) else "evenly"
        return f"the gang can't be spread {goal}"
    if constraint == "isolate":
        return f"a rack may hold only 1/{request.copies} of the gang"
    return "not for the groups asked for" if constraint == "groups" else "not with the pinned nodes"
