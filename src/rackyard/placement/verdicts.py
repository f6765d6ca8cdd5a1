"""What each rack had to offer, in one line: which constraint binds there."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rackyard.placement.census import BIT, PROBLEMS, Census
from rackyard.placement.columns import Ints
from rackyard.placement.model import RackVerdict, Request

PHRASE = {
    "excluded": "excluded",
    "busy": "busy",
    "shared": "in a domain that others use",
    "cordoned": "cordoned",
    "health": "not healthy",
    "rail": "without the rails",
    "kind": "of another kind",
    "nvlink": "without NVLink",
}


class Pools:
    """The pools of a census as verdicts see them, counted once."""

    def __init__(self, looked: Census) -> None:
        columns, count = looked.columns, len(looked.starts)
        pools = slice(looked.first_pool, looked.first_pool + count)
        self.looked = looked
        self.names = columns.rack_names[pools]
        self.total: Ints = columns.total[pools]
        self.loose = columns.loose[pools]
        self.weak = columns.weak[pools]
        self.usable: Ints = looked.counts()
        self._out = _out(looked)

    def out(self, pool: int) -> dict[str, int]:
        """Nodes out of use by what stands in their way; a node with several problems counts for the hardest."""
        return {problem: int(self._out[number, pool]) for number, problem in enumerate(PROBLEMS)}

    def totals(self) -> dict[str, int]:
        """The same over all pools."""
        return {problem: int(self._out[number].sum()) for number, problem in enumerate(PROBLEMS)}

    def offer(self, pool: int) -> str:
        """`6 of 18 nodes free; 10 busy, 2 cordoned`."""
        out = ", ".join(f"{count} {PHRASE[problem]}" for problem, count in self.out(pool).items() if count)
        return f"{self.usable[pool]} of {self.total[pool]} nodes free" + (f"; {out}" if out else "")

    def needed(self, pool: int) -> int:
        """Nodes a pool must have for a segment, or for as much of an unsegmented gang as it can ever hold."""
        shape = self.looked.shape
        return shape.segment or min(shape.nodes, max(1, int(self.total[pool])))


def verdicts(looked: Census, request: Request, taken: Mapping[int, int] | None = None) -> tuple[RackVerdict, ...]:
    """A verdict on every pool, in site order, then on the racks that hold only other kinds of node.

    `taken` is nodes by pool for a placement; without it, the gang was rejected.
    """
    placed = taken is not None
    pools = Pools(looked)
    found = [
        _chosen(pools, number, taken[number])
        if taken and number in taken
        else _passed_over(pools, number, request, placed)
        for number in range(len(looked.starts))
    ]
    site = looked.columns.site
    known = {node.rack for node in looked.group.nodes}
    others = {node.rack: node for node in reversed(site.nodes)}
    for rack in site.racks:
        if rack.name not in known:
            other = others.get(rack.name)
            detail = "holds no nodes" if other is None else f"its {other.gpus[0].kind if other.gpus else 'CPU'} nodes"
            detail += "" if other is None else f" are not {looked.group}"
            found.append(RackVerdict(rack.name, False, "node-kind", detail, 0, 0))
    return tuple(found)


def nodes(count: int) -> str:
    """`1 node`, `2 nodes`."""
    return "1 node" if count == 1 else f"{count} nodes"


def _out(looked: Census) -> NDArray[np.int32]:
    """Nodes by their hardest problem and by pool."""
    left = looked.problems.copy()
    found = np.zeros((len(PROBLEMS), len(looked.starts)), np.int32)
    for number in reversed(range(len(PROBLEMS))):
        mine = (left & np.uint16(BIT[PROBLEMS[number]])) != 0
        found[number] = np.add.reduceat(mine, looked.starts, dtype=np.int32)
        left[mine] = 0
    return found


def _chosen(pools: Pools, number: int, count: int) -> RackVerdict:
    free = int(pools.usable[number])
    detail = f"takes {count} of {free} free nodes" + ("; its NVLink is not healthy" if pools.weak[number] else "")
    return RackVerdict(pools.names[number], True, "chosen", detail, free, count)


def _passed_over(pools: Pools, number: int, request: Request, placed: bool) -> RackVerdict:
    binding, why = _binds(pools, number, request, placed)
    detail = f"{pools.offer(number)}; {why}"
    return RackVerdict(pools.names[number], False, binding, detail, int(pools.usable[number]), pools.needed(number))


def _binds(pools: Pools, number: int, request: Request, placed: bool) -> tuple[str, str]:
    """Which constraint binds at a rack that gives nothing, and how."""
    shape = pools.looked.shape
    free, needed, total = int(pools.usable[number]), pools.needed(number), int(pools.total[number])
    spanning = pools.loose[number] and needed > 1 and shape.segment is not None
    if total < needed or spanning:
        size = "one node" if pools.loose[number] else nodes(total)
        return "domain-size", f"an NVLink domain here has {size}, {needed} needed"
    if free >= needed + request.spares:
        if placed:
            return ("nvlink", "its NVLink is not healthy") if pools.weak[number] else ("not-needed", "kept free")
        if shape.segment is None and free < shape.nodes:
            return "rack-size", f"all of them make {free} of the {nodes(shape.nodes)} needed"
        return "fits", "enough here, but not for the whole gang"
    if free >= needed:
        return "spares", f"{request.spares} of them to be kept spare"
    out = pools.out(number)
    worst = max(PROBLEMS, key=lambda problem: (out[problem], -PROBLEMS.index(problem)))
    return worst, f"{needed} needed"
