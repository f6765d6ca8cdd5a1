"""NCCL's trim: branches without a GPU or a NIC that is in use are cut. Read in src/graph/xml.cc (ncclTopoTrimXml)."""

from rackyard.nccl.element import Element

_CUT = frozenset({"pci", "cpu", "nic", "net"})


def trim(root: Element) -> None:
    """Cuts the tree in place. `keep="1"` holds an element with all that is below it, and is taken off."""
    order: list[tuple[Element, Element | None]] = []
    waiting: list[tuple[Element, Element | None]] = [(root, None)]
    held: set[int] = set()
    while waiting:
        element, parent = waiting.pop()
        order.append((element, parent))
        if element.get("keep") == "1":
            del element.attrs["keep"]
            held.add(id(element))
        else:
            waiting.extend((child, element) for child in element.children)
    alive = set(held)
    cut: set[int] = set()
    for element, parent in reversed(order):
        if id(element) not in held:
            element.children = [child for child in element.children if id(child) not in cut]
        if id(element) in alive:
            alive.add(id(parent))
        elif element.name in _CUT and parent is not None:
            cut.add(id(element))
