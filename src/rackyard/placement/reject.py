"""Why a gang has no seat: the one constraint that decides, found by lifting constraints one at a time."""

from collections.abc import Sequence

from rackyard.fabric import Site
from rackyard.placement import remedy
from rackyard.placement.census import PROBLEMS, Census
from rackyard.placement.model import Occupancy, RackVerdict, Rejection, Request
from rackyard.placement.shape import Misfit, NodeClass
from rackyard.placement.solve import solve
from rackyard.placement.verdicts import PHRASE, counts, nodes, verdicts

CONSTRAINT = {
    "excluded": "excluded",
    "busy": "busy",
    "cordoned": "cordoned",
    "health": "unhealthy",
    "rail": "rail",
    "nvlink": "nvlink",
}
"""The name a rejection gives to what stands in nodes' way."""

EVERYTHING = frozenset(PROBLEMS)


def mismatch(request: Request, site: Site, classes: Sequence[NodeClass]) -> Rejection | None:
    """A request that names what the site does not have: a GPU kind or a rail."""
    if not classes:
        kinds = sorted({gpu.kind for node in site.nodes for gpu in node.gpus})
        wanted = f"{request.gpu_kind} GPUs" if request.gpu_kind else "GPUs"
        fix = f"gpu: one of {', '.join(kinds)}" if kinds else "give the site some nodes"
        return _flat(site, "gpu-kind", f"site {site.name} has no {wanted}", fix)
    rails = sorted({rail for group in classes for rail in group.rails})
    if request.rail is not None and request.rail not in rails:
        known = ", ".join(str(rail) for rail in rails) or "none"
        return _flat(
            site, "rail", f"there is no rail {request.rail}: the rails here are {known}", f"rails: one of {known}"
        )
    return None


def reject(
    request: Request, site: Site, occupancy: Occupancy, tried: Sequence[Census], misfits: Sequence[Misfit]
) -> Rejection:
    """The rejection of a gang that none of the censuses in `tried` could seat."""
    if not tried:
        return _flat(site, misfits[0].constraint, misfits[0].summary, misfits[0].fix)
    able = [looked for looked in tried if solve(looked, request, EVERYTHING, 0) is not None]
    if not able:
        return _never(request, site, occupancy, tried[0])
    looked = able[0]
    constraint, problem = _binding(looked, request)
    total = sum(len(pool.views) for pool in looked.pools)
    free = sum(len(pool.usable()) for pool in looked.pools)
    if problem is None:
        summary = (
            f"{gang(looked)}; they are there, but not with {nodes(request.spares)} kept spare in every domain used"
        )
        return Rejection(
            constraint, summary, verdicts(looked, request, site), remedy.fewer_spares(request, site, occupancy)
        )
    out = _totals(looked)
    causes = ", ".join(f"{out[name]} {PHRASE[name]}" for name in PROBLEMS if out[name])
    summary = f"{gang(looked)}: {free} of {total} nodes are free ({causes})"
    if request.spares:
        summary += f", {request.spares} to be kept spare in every domain used"
    fix = remedy.release(looked, request, site, occupancy, problem)
    return Rejection(constraint, summary, verdicts(looked, request, site), fix)


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


def _binding(looked: Census, request: Request) -> tuple[str, str | None]:
    """The constraint, and the problem of nodes behind it if any."""
    if request.spares and solve(looked, request, spares=0) is not None:
        return "spares", None
    for problem in PROBLEMS:
        if solve(looked, request, frozenset({problem})) is not None:
            return CONSTRAINT[problem], problem
    if request.spares and solve(looked, request, EVERYTHING) is None:
        return "spares", None
    out = _totals(looked)
    worst = max(PROBLEMS, key=lambda problem: (out[problem], -PROBLEMS.index(problem)))
    return CONSTRAINT[worst], worst


def _totals(looked: Census) -> dict[str, int]:
    found = dict.fromkeys(PROBLEMS, 0)
    for pool in looked.pools:
        for problem, count in counts(pool).items():
            found[problem] += count
    return found


def _never(request: Request, site: Site, occupancy: Occupancy, looked: Census) -> Rejection:
    """It would not fit even if every node were healthy and idle."""
    shape = looked.shape
    sizes = {pool.rack: 1 if pool.loose else len(pool.views) for pool in looked.pools}
    rack, largest = max(sizes.items(), key=lambda item: item[1])
    total = sum(len(pool.views) for pool in looked.pools)
    racks = verdicts(looked, request, site)
    smaller = remedy.smaller_gang(request, site, occupancy)
    if request.segment_required and shape.segment is not None and shape.segment > largest:
        summary = (
            f"a segment of {shape.segment * shape.per_node} GPUs needs {nodes(shape.segment)} in one NVLink domain; "
            f"the largest ({rack}) has {largest}"
        )
        return Rejection(
            "domain-size", summary, racks, remedy.smaller_segment(request, site, occupancy, looked, largest)
        )
    if total < shape.nodes:
        summary = f"{gang(looked)}; the whole site has {nodes(total)} of that kind"
        return Rejection("site-size", summary, racks, smaller)
    if request.spread != "pack":
        goal = f"over {request.spread} racks" if isinstance(request.spread, int) else "evenly"
        summary = f"{gang(looked)}; {shape.units} of these can't be spread {goal} here ({len(sizes)} racks)"
        return Rejection("spread", summary, racks, remedy.other_spread(request, site, occupancy))
    room = sum((size // shape.unit) for size in sizes.values())
    summary = f"{gang(looked)}; its NVLink domains hold only {room} such segments"
    return Rejection("segments", summary, racks, remedy.smaller_segment(request, site, occupancy, looked, largest))


def _flat(site: Site, constraint: str, summary: str, fix: str) -> Rejection:
    """The same verdict for every rack: none of them matters."""
    racks = tuple(RackVerdict(rack.name, False, constraint, summary, 0, 0) for rack in site.racks)
    return Rejection(constraint, summary, racks, fix)
