"""Graph files: what NCCL reads from NCCL_GRAPH_FILE and writes to NCCL_GRAPH_DUMP_FILE.

A graph file is read by the same byte-wise rules as a topology file. A gpu or net is named by ``dev``, hexadecimal, with
the index of its host in the bits from 56 on; from 2.30 on the rank stands beside it. Path type C2C has no name in these
files: NCCL takes a name that it does not know for LOC, and ends with an error when it is to write one.

Source: NCCL 2.30.7 and 2.29.7, `src/graph/xml.cc` and `src/graph/search.cc`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rackyard.errors import UsageError, Where
from rackyard.nccl.element import Element
from rackyard.nccl.graphs import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    NVLS,
    PATTERN_COLLNET_DIRECT,
    PATTERN_NVLS,
    PATTERN_TREE,
    RING,
    TREE,
    Channel,
    Graph,
)
from rackyard.nccl.linktypes import PATH_LOC, PATH_TYPES
from rackyard.nccl.numbers import c_float, c_int, c_long
from rackyard.nccl.topology import System
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import check_size
from rackyard.nccl.xmlrefused import TopologyRefused, printable
from rackyard.nccl.xmltoken import Tag, TagReader
from rackyard.nccl.xmlwrite import write

MOST_ELEMENTS = 65536
NAMED_TYPES = ("LOC", "NVL", "NVB", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
"""Path types that have a name in graph files."""

_KNOWN = {
    "": frozenset({"graphs"}),
    "graphs": frozenset({"graph"}),
    "graph": frozenset({"channel"}),
    "channel": frozenset({"net", "gpu"}),
}
_ORDER = (RING, TREE, COLLNET_DIRECT, COLLNET_CHAIN, NVLS)
_UNSEARCHED = {COLLNET_DIRECT: PATTERN_COLLNET_DIRECT, COLLNET_CHAIN: PATTERN_TREE, NVLS: PATTERN_NVLS}
_HOST_SHIFT = 56
_ID_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class FileGpu:
    """A GPU in a channel: its device number with the host in the bits from 56 on, and its rank where that is given."""

    dev: int
    rank: int | None


@dataclass(frozen=True, slots=True)
class FileChannel:
    """A channel: GPUs in order (nvls: the head only), and nets by their 64-bit ids. ``line`` counts from 1."""

    gpus: tuple[FileGpu, ...]
    nets: tuple[int, ...]
    line: int


@dataclass(frozen=True, slots=True)
class FileGraph:
    """A graph of a file. ``n_channels`` is what the file says, GB/s and path types as NCCL reads them."""

    id: int
    pattern: int
    cross_nic: int
    n_channels: int
    bw_intra: float
    bw_inter: float
    latency_inter: float
    type_intra: int
    type_inter: int
    same_channels: int
    channels: tuple[FileChannel, ...]
    line: int


def read_graphs(data: bytes, file: str, version: Version) -> tuple[FileGraph, ...]:
    """The graphs of a file, in order. Raises TopologyRefused where NCCL would end; UsageError for one too large."""
    check_size(data, file)
    root = _Loader(data, file, version).load()
    text = _need(root, "version", file)
    if c_int(text) != 1:
        message = f"XML Graph has wrong version {c_int(text)}, 1 needed"
        raise TopologyRefused(
            message, nccl_result="ncclInvalidUsage", where=_where(root, file), fix='write <graphs version="1">'
        )
    return tuple(_graph(element, file) for element in root.children)


class _Loader:
    """Builds the tree; elements that NCCL does not know are skipped with all that is in them."""

    def __init__(self, data: bytes, file: str, version: Version) -> None:
        self._reader = TagReader(data, file, version)
        self._file = file
        self._version = version
        self._open: list[Element] = []
        self._roots: list[Element] = []
        self._skipped = 0
        self._nodes = 0

    def load(self) -> Element:
        """The graphs element."""
        while (tag := self._reader.next_tag()) is not None:
            if self._skipped:
                self._skipped += -1 if tag.closes else 0 if tag.single else 1
            elif tag.closes and self._open:
                self._close(tag)
            else:
                self._enter(tag)
        if self._skipped or self._open:
            raise self._refused("XML Parse : unterminated element", None, "close every element before the file ends")
        if not self._roots:
            raise UsageError(f"{self._file} holds no graphs element", fix='write <graphs version="1">')
        return self._roots[0]

    def _close(self, tag: Tag) -> None:
        opened = self._open.pop()
        if tag.name != opened.name:
            fix = f"close the <{opened.name}> of line {opened.line}"
            raise self._refused(f"XML Mismatch : {opened.name} / {tag.name}", tag, fix)

    def _enter(self, tag: Tag) -> None:
        parent = self._open[-1] if self._open else None
        if tag.name not in _KNOWN.get(parent.name if parent else "", ()):
            self._skipped = 0 if tag.single else 1
            return
        element = Element(tag.name, tag.attrs, [], tag.line, tag.single)
        self._nodes += 1
        if self._nodes == MOST_ELEMENTS:
            message = f"Error : XML parser is limited to {MOST_ELEMENTS} nodes"
            raise self._refused(message, tag, f"at most {MOST_ELEMENTS - 1} elements fit")
        children = parent.children if parent else self._roots
        if parent and len(children) == self._version.max_children:
            message = f"Error : XML parser is limited to {self._version.max_children} subnodes"
            raise self._refused(message, tag, "leave out channels")
        children.append(element)
        if not tag.single:
            self._open.append(element)

    def _refused(self, message: str, tag: Tag | None, fix: str) -> TopologyRefused:
        line, column = (tag.line, tag.column) if tag else self._reader.place()
        return TopologyRefused(message, where=Where(self._file, line, column), fix=fix)


def _where(element: Element, file: str) -> Where:
    return Where(file, element.line or None)


def _need(element: Element, key: str, file: str) -> str:
    text = element.get(key)
    if text is None:
        message = f"Attribute {key} of node {element.name} not found"
        raise TopologyRefused(message, where=_where(element, file), fix=f"give the {element.name} its {key}")
    return text


def _graph(element: Element, file: str) -> FileGraph:
    def number(key: str) -> int:
        return c_int(_need(element, key, file))

    def speed(key: str) -> float:
        return c_float(_need(element, key, file))

    return FileGraph(
        id=number("id"),
        pattern=number("pattern"),
        cross_nic=number("crossnic"),
        n_channels=number("nchannels"),
        bw_intra=speed("speedintra"),
        bw_inter=speed("speedinter"),
        latency_inter=c_float(element.get("latencyinter") or "0"),
        type_intra=_type(_need(element, "typeintra", file)),
        type_inter=_type(_need(element, "typeinter", file)),
        same_channels=number("samechannels"),
        channels=tuple(_channel(child, file) for child in element.children),
        line=element.line,
    )


def _type(text: str) -> int:
    """The path type that a name begins with; LOC for others, C2C among them."""
    return next((PATH_TYPES.index(name) for name in NAMED_TYPES if text.startswith(name)), PATH_LOC)


def _channel(element: Element, file: str) -> FileChannel:
    gpus: list[FileGpu] = []
    nets: list[int] = []
    for child in element.children:
        dev = c_long(_need(child, "dev", file), 16)
        rank = child.get("rank")
        if child.name == "net":
            nets.append(dev)
        else:
            gpus.append(FileGpu(dev, None if rank is None else c_int(rank)))
    return FileChannel(tuple(gpus), tuple(nets), element.line)


def resolve(graph: FileGraph, system: System, file: str) -> Graph:
    """The graph with ranks in place of devices.

    Raises UsageError where NCCL would read past what the file gives: fewer channels than ``nchannels``, or channels
    that do not go through every GPU; and TopologyRefused for a device that is not in the system.
    """
    ranks = {(gpu.host << _HOST_SHIFT) + gpu.dev: gpu.rank for gpu in system.gpus()}
    if graph.n_channels > len(graph.channels):
        why = f"{len(graph.channels)} channels follow"
        raise UsageError(f"graph {graph.id} says {graph.n_channels} channels", where=Where(file, graph.line), why=why)
    wanted = 1 if graph.id == NVLS else len(ranks)
    channels = []
    for channel in graph.channels[: graph.n_channels]:
        where = Where(file, channel.line)
        if len(channel.gpus) != wanted or (system.inter and len(channel.nets) != 2):
            why = f"{len(channel.gpus)} of {wanted} GPUs, {len(channel.nets)} of {2 if system.inter else 0} nets"
            raise UsageError("a channel does not fit the system", where=where, why=why)
        order = tuple(_rank(gpu, ranks, where) for gpu in channel.gpus)
        channels.append(Channel(order, (channel.nets[0], channel.nets[1]) if system.inter else None))
    return Graph(
        graph.id, graph.pattern, int(graph.id in (COLLNET_CHAIN, COLLNET_DIRECT)), 0, 0, graph.cross_nic,
        graph.same_channels, graph.bw_intra, graph.bw_inter, graph.latency_inter, graph.type_intra, graph.type_inter, 0,
        tuple(channels),
    )  # fmt: skip


def _rank(gpu: FileGpu, ranks: dict[int, int], where: Where) -> int:
    rank = gpu.rank if gpu.rank is not None else ranks.get(gpu.dev)
    if rank is None or rank not in ranks.values():
        message = f"XML Import Channel : dev {gpu.dev} not found."
        raise TopologyRefused(message, nccl_result="ncclSystemError", where=where)
    return rank


def write_graphs(graphs: Iterable[Graph], system: System) -> str:
    """The file that NCCL would dump for these graphs; those not searched for are written without channels.

    Raises TopologyRefused for a path type that has no name: NCCL's own dump ends there, and communicator init with it.
    """
    by_id = {graph.id: graph for graph in graphs}
    root = Element("graphs", {"version": "1"})
    for graph_id in _ORDER:
        graph = by_id.get(graph_id) or Graph(
            graph_id, _UNSEARCHED.get(graph_id, 0), 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, PATH_LOC, PATH_LOC, 0, ()
        )
        root.children.append(_element(graph, system))
    return write(root)


def _element(graph: Graph, system: System) -> Element:
    devs = {gpu.rank: (gpu.host << _HOST_SHIFT) + gpu.dev for gpu in reversed(system.gpus())}
    attrs = {
        "id": str(graph.id),
        "pattern": str(graph.pattern),
        "crossnic": str(graph.cross_nic),
        "nchannels": str(graph.n_channels),
        "speedintra": f"{graph.bw_intra:g}",
        "speedinter": f"{graph.bw_inter:g}",
        "latencyinter": f"{graph.latency_inter:g}",
        "typeintra": _type_name(graph.type_intra),
        "typeinter": _type_name(graph.type_inter),
        "samechannels": str(graph.same_channels),
    }
    element = Element("graph", attrs)
    for channel in graph.channels:
        nets = [Element("net", {"dev": _hex(net)}) for net in channel.nets or ()]
        gpus = [
            Element("gpu", {"dev": _hex(devs[rank])} | ({"rank": str(rank)} if system.has_dev else {}))
            for rank in channel.ranks
        ]
        element.children.append(Element("channel", {}, [*nets[:1], *gpus, *nets[1:]]))
    return element


def _hex(number: int) -> str:
    return f"{number & _ID_MASK:#x}" if number else "0"


def _type_name(path_type: int) -> str:
    name = PATH_TYPES[path_type]
    if name not in NAMED_TYPES:
        message = f"KV Convert to str : could not find value {path_type} in dictionary"
        raise TopologyRefused(
            message, stage="graph_dump", fix=f"path type {printable(name)} can't be dumped: unset NCCL_GRAPH_DUMP_FILE"
        )
    return name
