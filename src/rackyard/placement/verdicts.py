"""What each rack had to offer, in one line: which constraint binds there."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackyard.fabric import Node
from rackyard.placement.census import BIT, PROBLEMS, Census
from rackyard.placement.columns import Ints
from rackyard.placement.hardware import demand
from rackyard.placement.model import RackVerdict, Request

PHRASE = {
    "excluded": "excluded",
    "busy": "busy",
    "shared": "in a domain that others use",
    "cordoned": "cordoned",
    "health": "not healthy",
    "rail": "without the rails",
    "kind": "short of the hardware asked for",
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
        out = _out(looked)
        self._totals = out.sum(axis=1).tolist()
        self._out: list[list[int]] = out.T.tolist()
        kinds = np.column_stack((self.usable, self.total, self.loose, self.weak, out.T))
        self.alike: list[int] = np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1).tolist()
        """The same number for pools that differ in nothing but their place."""

    def out(self, pool: int) -> dict[str, int]:
        """Nodes out of use by what stands in their way; a node with several problems counts for the hardest."""
        return dict(zip(PROBLEMS, self._out[pool], strict=True))

    def totals(self) -> dict[str, int]:
        """The same over all pools."""
        return dict(zip(PROBLEMS, self._totals, strict=True))

    def offer(self, pool: int) -> str:
        """`6 of 18 nodes free; 10 busy, 2 cordoned`."""
        out = ", ".join(f"{count} {PHRASE[problem]}" for problem, count in self.out(pool).items() if count)
        return f"{self.usable[pool]} of {self.total[pool]} nodes free" + (f"; {out}" if out else "")

    def needed(self, pool: int) -> int:
        """Nodes a pool must have for a segment, or for as much of an unsegmented gang as it can ever hold."""
        shape = self.looked.shape
        return shape.segment or min(shape.nodes, max(1, int(self.total[pool])))


def verdicts(
    looked: Census,
    request: Request,
    taken: Mapping[int, int] | None = None,
    decides: tuple[str, str] | None = None,
) -> tuple[RackVerdict, ...]:
    """A verdict on every pool, in site order, then on the racks that hold only other kinds of node.

    `taken` is nodes by pool for a placement; without it, the gang was rejected. `decides` is why, where nothing that a
    rack lacks is the reason: the constraint, and what is said of racks with room.
    """
    why = _Why(request, taken is not None, decides)
    pools = Pools(looked)
    of_kind: dict[int, RackVerdict] = {}  # thousands of racks, a few dozen kinds of them
    found = []
    for number, kind in enumerate(pools.alike):
        if taken and number in taken:
            found.append(_chosen(pools, number, taken[number]))
            continue
        if kind not in of_kind:
            of_kind[kind] = _passed_over(pools, number, why)
        told = of_kind[kind]
        found.append(RackVerdict(pools.names[number], False, told.binding, told.detail, told.free_nodes, told.needed))
    return (*found, *_of_other_kinds(looked))


def _of_other_kinds(looked: Census) -> tuple[RackVerdict, ...]:
    """The racks that hold none of the class. Kept with the columns, for it means a look at every node."""
    columns = looked.columns
    key = ("racks of other kinds", looked.first_node)
    told: tuple[RackVerdict, ...] | None = columns.memo.get(key)
    if told is None:
        known = {node.rack for node in looked.group.nodes}
        others = {node.rack: node for node in reversed(columns.site.nodes)}
        racks = [rack.name for rack in columns.site.racks if rack.name not in known]
        told = tuple(RackVerdict(rack, False, "node-kind", _kind(others.get(rack), looked), 0, 0) for rack in racks)
        columns.memo[key] = told
    return told


def _kind(node: Node | None, looked: Census) -> str:
    if node is None:
        return "holds no nodes"
    return f"its {node.gpus[0].kind if node.gpus else 'CPU'} nodes are not {looked.group}"


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


@dataclass(frozen=True, slots=True)
class _Why:
    """What verdicts on racks that give nothing are made from."""

    request: Request
    placed: bool
    decides: tuple[str, str] | None


def _passed_over(pools: Pools, number: int, why: _Why) -> RackVerdict:
    binding, told = _binds(pools, number, why)
    detail = f"{pools.offer(number)}; {told}"
    return RackVerdict(pools.names[number], False, binding, detail, int(pools.usable[number]), pools.needed(number))


def _binds(pools: Pools, number: int, why: _Why) -> tuple[str, str]:
    """Which constraint binds at a rack that gives nothing, and how."""
    shape, spares = pools.looked.shape, why.request.spares
    free, needed, total = int(pools.usable[number]), pools.needed(number), int(pools.total[number])
    spanning = pools.loose[number] and needed > 1 and shape.segment is not None
    if total < needed or spanning:
        size = "one node" if pools.loose[number] else nodes(total)
        return "domain-size", f"an NVLink domain here has {size}, {needed} needed"
    if why.decides is not None and free >= shape.unit:
        return why.decides
    if free >= needed + spares:
        if why.placed:
            return ("nvlink", "its NVLink is not healthy") if pools.weak[number] else ("not-needed", "kept free")
        if shape.segment is None and free < shape.nodes:
            return "rack-size", f"all of them make {free} of the {nodes(shape.nodes)} needed"
        return "fits", "enough here, but not for the whole gang"
    if free >= needed:
        return "spares", f"{spares} of them to be kept spare"
    out = pools.out(number)
    worst = max(PROBLEMS, key=lambda problem: (out[problem], -PROBLEMS.index(problem)))
    if worst == "kind":
        return worst, f"{demand(why.request)} asked for"
    return worst, f"{needed} needed"
