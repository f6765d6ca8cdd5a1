"""Fuses the trees of ranks into one. Elements are one if name, form and every attribute are equal."""

from collections.abc import Sequence

from rackyard.errors import UsageError
from rackyard.nccl.element import Element
from rackyard.nccl.xmlrefused import TopologyRefused

_MAX_CHILDREN = 640


def fuse(trees: Sequence[Element], max_nodes: int) -> Element:
    """One tree of all. `max_nodes` is the number of elements there is room for. Raises TopologyRefused beyond."""
    if not trees:
        raise UsageError("there is no rank whose topology could be fused", fix="give at least one GPU")
    root = trees[0].copy()
    for tree in trees[1:]:
        waiting = [(root, tree)]
        while waiting:
            into, source = waiting.pop()
            for child in source.children:
                twin = next((other for other in into.children if _same(other, child)), None)
                if twin is not None:
                    waiting.append((twin, child))
                else:
                    into.children.append(child.copy())
    _check_room(root, max_nodes)
    return root


def _same(one: Element, other: Element) -> bool:
    if (one.name, one.line > 0, one.single) != (other.name, other.line > 0, other.single):
        return False
    # A repeated attribute is compared with the first of its name, so unequal repeats keep elements apart.
    agree = all(one.attrs.get(key) == value for key, value in other.repeats)
    return agree and one.attrs == other.attrs and len(one.repeats) == len(other.repeats)


def _check_room(root: Element, max_nodes: int) -> None:
    count = 0
    for element in root.walk():
        count += 1
        if len(element.children) > _MAX_CHILDREN:
            message = f"Error : too many XML subnodes (max {_MAX_CHILDREN})"
            raise TopologyRefused(message, stage="get_system_fused", fix="spread the devices over more bridges")
    if count > max_nodes:
        message = f"Error : too many XML nodes (max {max_nodes})"
        fix = "drop what no GPU and NIC needs, or give every rank the same complete file so that the trees merge"
        raise TopologyRefused(message, stage="get_system_fused", fix=fix)
