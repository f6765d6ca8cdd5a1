"""Grows a `System`: creates nodes, adds links in NCCL's order within NCCL's limits, and refuses as NCCL does.

Source: NCCL 2.30.7, ``src/graph/topo.cc``.
"""

from typing import NoReturn, TypeVar

from rackyard.errors import Where
from rackyard.nccl.element import Element
from rackyard.nccl.linktypes import CPU, LINK_PCI, MAX_LINKS, MAX_NODES_OF_A_TYPE, PCI
from rackyard.nccl.numbers import as_float, c_int, c_long, c_unsigned_long
from rackyard.nccl.topology import ID_LOCAL_MASK, System, TopoNode
from rackyard.nccl.version import Version
from rackyard.nccl.xmlrefused import TopologyRefused

STAGE = "system_from_xml"
_HEX = "0123456789abcdefABCDEF"

Node = TypeVar("Node", bound=TopoNode)


def bus_id(text: str) -> int:
    """A PCI address as a number: hexadecimal digits without separators, up to the first other character, at most 16."""
    digits = ""
    for char in text:
        if char in ":.":
            continue
        if char not in _HEX or len(digits) == 16:
            break
        digits += char
    return c_long(digits, 16)


class Growing:
    """A system under construction. ``at`` is the element being read, for the line of a refusal."""

    def __init__(self, version: Version, file: str) -> None:
        self.version = version
        self.file = file
        self.system = System(has_dev=version.has_dev_nodes, file=file)
        self.at: Element | None = None
        self._first: dict[tuple[int, int, int], TopoNode] = {}

    def refuse(self, message: str, result: str = "ncclInternalError", *, crashes: bool = False) -> NoReturn:
        """Raise what NCCL reports at this element."""
        line = self.at.line if self.at is not None and self.at.line else None
        where = Where(self.file, line) if self.file or line else None
        raise TopologyRefused(message, nccl_result=result, stage=STAGE, where=where, crashes=crashes)

    def need(self, element: Element, key: str) -> str:
        """An attribute that NCCL cannot do without."""
        value = element.get(key)
        if value is None:
            self.at = element
            self.refuse(f"Attribute {key} of node {element.name} not found")
        return value

    def need_int(self, element: Element, key: str) -> int:
        """An attribute that NCCL cannot do without, as a C int."""
        return c_int(self.need(element, key))

    def host(self, cpu: Element) -> int:
        """Index of the host of a cpu element; a new hash makes a new host. Without host_hash the hash is 0."""
        number = c_unsigned_long(cpu.get("host_hash") or "", 16)
        hashes = self.system.host_hashes
        if number not in hashes:
            hashes.append(number)
        return hashes.index(number)

    def find(self, node_type: int, host: int, local: int) -> TopoNode | None:
        """The first node of a type with this id."""
        return self._first.get((node_type, host, local & ID_LOCAL_MASK))

    def create(self, kind: type[Node], node_type: int, host: int, local: int) -> Node:
        """A new node without links; ids may repeat."""
        system = self.system
        if len(system.of_type[node_type]) == MAX_NODES_OF_A_TYPE:
            self.refuse(f"Error : tried to create too many nodes of type {node_type}")
        line = self.at.line if self.at is not None else 0
        node = kind(len(system.nodes), node_type, host, local & ID_LOCAL_MASK, line)
        system.nodes.append(node)
        system.links.append([])
        system.of_type[node_type].append(node.index)
        self._first.setdefault((node_type, host, node.local), node)
        return node

    def connect(self, source: TopoNode, target: TopoNode, link_type: int, bw: float) -> None:
        """Add bandwidth from ``source`` to ``target``; faster links come first, equal ones in order of arrival."""
        system = self.system
        numbers, speeds = system.links[source.index], system.link_bw
        for place, number in enumerate(numbers):  # noqa: B007 - the place is where the move below starts
            if system.link_to[number] == target.index and system.link_type[number] == link_type:
                speeds[number] = as_float(speeds[number] + bw)
                break
        else:
            if len(numbers) == MAX_LINKS:
                self.refuse(f"Error : too many Topo links (max {MAX_LINKS})")
            place, number = len(numbers), len(speeds)
            system.link_from.append(source.index)
            system.link_to.append(target.index)
            system.link_type.append(link_type)
            speeds.append(as_float(bw))
            numbers.append(number)
        while place and speeds[numbers[place - 1]] < speeds[number]:
            numbers[place] = numbers[place - 1]
            place -= 1
        numbers[place] = number

    def connect_both(self, one: TopoNode, other: TopoNode, link_type: int, bw: float) -> None:
        """`connect` in both directions."""
        self.connect(one, other, link_type, bw)
        self.connect(other, one, link_type, bw)

    def local_cpu(self, start: TopoNode) -> TopoNode | None:
        """The first CPU that is found over PCI links, switches before uplinks, from a GPU or DEV node."""
        system = self.system
        waiting: list[tuple[int, int]] = [(start.index, -1)]
        while waiting:
            node, came_from = waiting.pop()
            if system.nodes[node].type == CPU:
                return system.nodes[node]
            ways = [system.link_to[n] for n in system.links[node] if system.link_type[n] == LINK_PCI]
            waiting += [(to, node) for to in reversed(ways) if to != came_from and system.nodes[to].type in (PCI, CPU)]
        return None
