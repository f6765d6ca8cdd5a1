"""The lines that NCCL prints about a system under NCCL_DEBUG_SUBSYS=GRAPH: the tree below each CPU, and all paths.

Source: NCCL 2.30.7 and 2.29.7, ``ncclTopoPrint`` in ``src/graph/topo.cc`` and ``ncclTopoPrintPaths`` in ``paths.cc``;
checked against the log of a GB300 run (2.29.7).
"""

from collections.abc import Iterator

from rackyard.nccl.linktypes import (
    GIN,
    GPU,
    LINK_LOC,
    LINK_PCI,
    LINK_TYPES,
    NET,
    PATH_TYPES,
    RMA,
    UNDEF,
)
from rackyard.nccl.topology import CpuNode, DevNode, GpuNode, NetNode, PciNode, System, TopoNode
from rackyard.nccl.xmlrefused import TopologyRefused

LINE_BYTES = 1024
"""Size of the buffer that NCCL prints lines from. Path lines are cut at it; tree lines are written past its end."""
_SURVIVED_BYTES = 16
"""How far a write past the end of that buffer was seen to do no harm; 26 bytes killed the process (2.30.7, x86-64)."""


def printed(system: System) -> Iterator[str]:
    """All lines for a system with paths and limits."""
    yield f"=== System : maxBw {system.max_bw:2.1f} totalBw {system.total_bw:2.1f} ==="
    yield from printed_tree(system)
    yield "=========================================="
    for kind in (GPU, NET, GIN, RMA):
        for number in system.of_type[kind]:
            yield _path_line(system, number)


def printed_tree(system: System) -> Iterator[str]:
    """The lines of the tree: every node that is reached over PCI links, below it its other links."""
    for cpu in system.cpus():
        yield _described(cpu)
        waiting = _below(system, cpu.index, UNDEF, "")
        stack = [waiting]
        while stack:
            entry = next(stack[-1], None)
            if entry is None:
                stack.pop()
                continue
            line, node, above, indent = entry
            yield line
            if node != UNDEF:
                stack.append(_below(system, node, above, indent))


def check_printable(system: System) -> None:
    """Raise TopologyRefused (stage ``print``) where NCCL's tree lines overrun their buffer, which kills the process.

    That takes some 70 PCI bridges in a row. NCCL writes the lines whether or not they are shown.
    """
    longest = max(map(len, printed_tree(system)), default=0) + 1
    if longest > LINE_BYTES + _SURVIVED_BYTES:
        fix = (
            f"take PCI bridges out: they are nested so deep that a line of {longest} bytes overruns NCCL's {LINE_BYTES}"
        )
        raise TopologyRefused("", stage="print", crashes=True, fix=fix)


def _below(system: System, node: int, above: int, indent: str) -> Iterator[tuple[str, int, int, str]]:
    """A line for each link of a node; where it leads down the PCI tree, also that node, this one, and its indent."""
    for link in system.links[node]:
        to = system.nodes[system.link_to[link]]
        kind = system.link_type[link]
        lead = f"{indent}+ {LINK_TYPES[kind]}[{system.link_bw[link]:2.1f}] - "
        if kind == LINK_PCI:
            if to.index != above:
                yield lead + _described(to), to.index, node, " " * len(lead)
        elif kind == LINK_LOC or not isinstance(to, NetNode) or to.type != NET:
            yield lead + to.name, UNDEF, UNDEF, ""
        else:
            yield lead + f"{to.name} ({to.coll}/{to.asic:x}/{to.port}/{to.bw:f})", UNDEF, UNDEF, ""


def _described(node: TopoNode) -> str:
    match node:
        case GpuNode():
            part = "" if node.mlopart == UNDEF else f" [MLOPart {node.mlopart}]"
            return f"{node.name} ({node.rank}){part}"
        case CpuNode():
            return f"{node.name} ({node.arch}/{node.vendor}/{node.model})"
        case PciNode() | DevNode():
            return f"{node.name} ({node.device:x})"
    return node.name


def _path_line(system: System, number: int) -> str:
    line = f"{system.nodes[number].name} :"
    for rows, targets in zip(system.rows, system.of_type, strict=True):
        row = rows[number] if rows else None
        if row is not None:
            for place, target in enumerate(targets):
                hops, bw, kind = len(row.links[place]), row.bw[place], PATH_TYPES[row.type[place]]
                line += f"{system.nodes[target].name} ({hops}/{bw:.1f}/{kind}) "
    return line[: LINE_BYTES - 1]
