"""Why a gang has no seat: the one constraint that decides, found by lifting constraints one at a time."""

from collections.abc import Sequence
from dataclasses import replace

from rackyard.fabric import Site
from rackyard.placement import remedy
from rackyard.placement.census import BIT, EVERYTHING, PROBLEMS, Census
from rackyard.placement.model import Occupancy, RackVerdict, Rejection, Request
from rackyard.placement.shape import Misfit
from rackyard.placement.solve import solve
from rackyard.placement.verdicts import PHRASE, Pools, nodes, verdicts
from rackyard.placement.yard import Yard

CONSTRAINT = {problem: problem for problem in PROBLEMS} | {
    "shared": "exclusive",
    "health": "unhealthy",
    "kind": "node-kind",
}
"""The name a rejection gives to what stands in nodes' way."""


def mismatch(request: Request, yard: Yard) -> Rejection | None:
    """A request that names what the site does not have: a GPU kind, a rail, a node."""
    site = yard.columns.site
    classes = [group for group in yard.columns.classes if request.gpu_kind in (None, group.gpu)]
    if not classes:
        kinds = sorted({group.gpu for group in yard.columns.classes})
        wanted = f"{request.gpu_kind} GPUs" if request.gpu_kind else "GPUs"
        fix = f"gpu: one of {', '.join(kinds)}" if kinds else "give the site some nodes"
        return _flat(site, "gpu-kind", f"site {site.name} has no {wanted}", fix)
    rails = sorted({rail for group in classes for rail in group.rails})
    if request.rail is not None and request.rail not in rails:
        known = ", ".join(str(rail) for rail in rails) or "none"
        return _flat(
            site, "rail", f"there is no rail {request.rail}: the rails here are {known}", f"rails: one of {known}"
        )
    strangers = sorted(name for name in request.pin if name not in yard.columns.index)
    if strangers:
        summary = f"the gang is pinned to {', '.join(strangers[:4])}, which site {site.name} does not have with GPUs"
        return _flat(site, "pin", summary, "pin nodes that `rackyard nodes ls` shows")
    return None


def reject(
    request: Request, yard: Yard, occupancy: Occupancy, tried: Sequence[Census], misfits: Sequence[Misfit]
) -> Rejection:
    """The rejection of a gang that none of the censuses in `tried` could seat."""
    if not tried:
        return _flat(yard.columns.site, misfits[0].constraint, misfits[0].summary, misfits[0].fix)
    able = [looked for looked in tried if solve(looked, request, EVERYTHING, 0) is not None]
    if not able:
        return _never(request, yard, tried[0])
    looked = able[0]
    pools = Pools(looked)
    constraint, problem = _binding(pools, request)
    if problem is None:
        summary = (
            f"{gang(looked)}; they are there, but not with {nodes(request.spares)} kept spare in every domain used"
        )
        return Rejection(constraint, summary, verdicts(looked, request), remedy.fewer_spares(request, yard))
    out = pools.totals()
    causes = ", ".join(f"{out[name]} {PHRASE[name]}" for name in PROBLEMS if out[name])
    summary = f"{gang(looked)}: {int(pools.usable.sum())} of {int(pools.total.sum())} nodes are free ({causes})"
    if request.spares:
        summary += f", {request.spares} to be kept spare in every domain used"
    fix = remedy.release(looked, request, yard, occupancy, problem)
    return Rejection(constraint, summary, verdicts(looked, request), fix)


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


def _binding(pools: Pools, request: Request) -> tuple[str, str | None]:
    """The constraint, and the problem of nodes behind it if any."""
    looked = pools.looked
    if request.spares and solve(looked, request, spares=0) is not None:
        return "spares", None
    for problem in PROBLEMS:
        if solve(looked, request, BIT[problem]) is not None:
            return CONSTRAINT[problem], problem
    if request.spares and solve(looked, request, EVERYTHING) is None:
        return "spares", None
    out = pools.totals()
    worst = max(PROBLEMS, key=lambda problem: (out[problem], -PROBLEMS.index(problem)))
    return CONSTRAINT[worst], worst


def _never(request: Request, yard: Yard, looked: Census) -> Rejection:
    """It would not fit even if every node were healthy and idle."""
    shape, pools = looked.shape, Pools(looked)
    sizes: dict[str, int] = {}
    for rack, loose, size in zip(pools.names, pools.loose.tolist(), pools.total.tolist(), strict=True):
        sizes[rack] = max(sizes.get(rack, 0), 1 if loose else size)
    rack, largest = max(sizes.items(), key=lambda item: item[1])
    total = int(pools.total.sum())
    racks = verdicts(looked, request)
    if request.segment_required and shape.segment is not None and shape.segment > largest:
        summary = (
            f"a segment of {shape.segment * shape.per_node} GPUs needs {nodes(shape.segment)} in one NVLink domain; "
            f"the largest ({rack}) has {largest}"
        )
        return Rejection("domain-size", summary, racks, remedy.smaller_segment(request, yard, looked, largest))
    if total < shape.nodes:
        summary = f"{gang(looked)}; the whole site has {nodes(total)} of that kind"
        return Rejection("site-size", summary, racks, remedy.smaller_gang(request, yard))
    for constraint, without, what in _lifted(request):
        if solve(looked, without, EVERYTHING, 0) is not None:
            fix = remedy.other_spread(request, yard) if constraint == "spread" else remedy.without(without, what, yard)
            return Rejection(constraint, f"{gang(looked)}; {_asked(request, constraint, len(sizes))}", racks, fix)
    room = sum((size // shape.unit) for size in sizes.values())
    summary = f"{gang(looked)}; its NVLink domains hold only {room} such segments"
    return Rejection("segments", summary, racks, remedy.smaller_segment(request, yard, looked, largest))


def _lifted(request: Request) -> list[tuple[str, Request, str]]:
    """What else the gang asks for: constraint, the request without it, and what to write instead."""
    found = []
    if request.spread != "pack":
        found.append(("spread", replace(request, spread="pack"), "`spread: pack`"))
    if request.copies > 1:
        found.append(("isolate", replace(request, copies=1), "`spread: pack`"))
    if any(group.required for group in request.groups):
        wished = tuple(replace(group, required=False) for group in request.groups)
        found.append(("groups", replace(request, groups=wished), "`required: false` in `groups`"))
    if request.pin:
        found.append(("pin", replace(request, pin=frozenset()), "fewer pinned nodes"))
    return found


def _asked(request: Request, constraint: str, racks: int) -> str:
    if constraint == "spread":
        goal = f"over {request.spread} racks" if isinstance(request.spread, int) else "evenly"
        return f"these can't be spread {goal} here ({racks} racks)"
    if constraint == "isolate":
        return f"no rack may hold more than 1/{request.copies} of it, and the {racks} racks here are too few"
    if constraint == "groups":
        asked = ", ".join(f"{group.gpus} GPUs within a {group.within}" for group in request.groups if group.required)
        return f"the network here has no such groups ({asked})"
    return "the pinned nodes can't all be part of such a gang"


def _flat(site: Site, constraint: str, summary: str, fix: str) -> Rejection:
    """The same verdict for every rack: none of them matters."""
    racks = tuple(RackVerdict(rack.name, False, constraint, summary, 0, 0) for rack in site.racks)
    return Rejection(constraint, summary, racks, fix)
