"""What each rack had to offer, in one line: which constraint binds there."""

from collections.abc import Mapping

from rackyard.fabric import Site
from rackyard.placement.census import PROBLEMS, Census, Pool
from rackyard.placement.model import RackVerdict, Request

PHRASE = {
    "excluded": "excluded",
    "busy": "busy",
    "cordoned": "cordoned",
    "health": "not healthy",
    "rail": "without the rails",
    "nvlink": "without NVLink",
}


def verdicts(
    looked: Census, request: Request, site: Site, taken: Mapping[int, int] | None = None
) -> tuple[RackVerdict, ...]:
    """A verdict on every pool, in site order, then on the racks that hold only other kinds of node.

    `taken` is nodes by pool for a placement; without it, the gang was rejected.
    """
    placed = taken is not None
    found = [
        _chosen(pool, taken[number]) if taken and number in taken else _passed_over(pool, looked, request, placed)
        for number, pool in enumerate(looked.pools)
    ]
    known = {node.rack for node in looked.group.nodes}
    for rack in site.racks:
        if rack.name not in known:
            other = next((node for node in site.nodes if node.rack == rack.name), None)
            detail = "holds no nodes" if other is None else f"its {other.gpus[0].kind if other.gpus else 'CPU'} nodes"
            detail += "" if other is None else f" are not {looked.group}"
            found.append(RackVerdict(rack.name, False, "node-kind", detail, 0, 0))
    return tuple(found)


def needed_nodes(pool: Pool, looked: Census) -> int:
    """Nodes a pool must have for a segment, or for as much of an unsegmented gang as it can ever hold."""
    return looked.shape.segment or min(looked.shape.nodes, max(1, len(pool.views)))


def nodes(count: int) -> str:
    """`1 node`, `2 nodes`."""
    return "1 node" if count == 1 else f"{count} nodes"


def counts(pool: Pool) -> dict[str, int]:
    """Nodes out of use by what stands in their way; a node with several problems counts for the hardest."""
    found = dict.fromkeys(PROBLEMS, 0)
    for view in pool.views:
        worst = [problem for problem in PROBLEMS if problem in view.problems]
        if worst:
            found[worst[-1]] += 1
    return found


def offer(pool: Pool) -> str:
    """`6 of 18 nodes free; 10 busy, 2 cordoned`."""
    out = ", ".join(f"{count} {PHRASE[problem]}" for problem, count in counts(pool).items() if count)
    return f"{len(pool.usable())} of {len(pool.views)} nodes free" + (f"; {out}" if out else "")


def _chosen(pool: Pool, count: int) -> RackVerdict:
    free = len(pool.usable())
    detail = f"takes {count} of {free} free nodes" + ("" if pool.healthy else "; its NVLink is not healthy")
    return RackVerdict(pool.rack, True, "chosen", detail, free, count)


def _passed_over(pool: Pool, looked: Census, request: Request, placed: bool) -> RackVerdict:
    free, needed = len(pool.usable()), needed_nodes(pool, looked)
    binding, why = _binds(pool, looked, request, placed)
    return RackVerdict(pool.rack, False, binding, f"{offer(pool)}; {why}", free, needed)


def _binds(pool: Pool, looked: Census, request: Request, placed: bool) -> tuple[str, str]:
    """Which constraint binds at a rack that gives nothing, and how."""
    free, needed = len(pool.usable()), needed_nodes(pool, looked)
    spanning = pool.loose and needed > 1 and looked.shape.segment is not None
    if len(pool.views) < needed or spanning:
        size = "one node" if pool.loose else nodes(len(pool.views))
        return "domain-size", f"an NVLink domain here has {size}, {needed} needed"
    if free >= needed + request.spares:
        if placed:
            return ("not-needed", "kept free") if pool.healthy else ("nvlink", "its NVLink is not healthy")
        if looked.shape.segment is None and free < looked.shape.nodes:
            return "rack-size", f"all of them make {free} of the {nodes(looked.shape.nodes)} needed"
        return "fits", "enough here, but not for the whole gang"
    if free >= needed:
        return "spares", f"{request.spares} of them to be kept spare"
    out = counts(pool)
    worst = max(PROBLEMS, key=lambda problem: (out[problem], -PROBLEMS.index(problem)))
    return worst, f"{needed} needed"
