"""How deep PCI bridges may be nested before NCCL's print of the system writes past its buffer of 1024 bytes.

NCCL formats that print for every communicator, whether it is shown or not. Each bridge takes 14 bytes of a line
("+ PCI[24.0] - "); observed with NCCL 2.30.7: 70 bridges fit, 71 write past the end, from 72 on the process dies.
"""

from rackyard.nccl.element import Element

FITTING = 70
"""Bridges in a chain that fit."""


def overdeep(root: Element) -> Element | None:
    """The first bridge that has more than FITTING bridges in its chain, itself counted; None if all fit."""
    waiting = [(root, 0)]
    while waiting:
        element, depth = waiting.pop()
        if element.name == "pci" and element.child("pci") is not None:
            depth += 1
            if depth > FITTING:
                return element
        waiting.extend((child, depth) for child in reversed(element.children))
    return None
