"""Reads a topology file byte by byte as NCCL does: what NCCL takes, drops without a word, or refuses.

NCCL's reader knows no XML: no prolog, no entities, no text, no tabs, and only blanks between attributes. Elements it
has no use for are skipped with all that is in them. Read in src/graph/xml.cc and xml.h, NCCL 2.18 to 2.30.
"""

from dataclasses import dataclass

from rackyard.errors import UsageError, Where
from rackyard.nccl.element import Element
from rackyard.nccl.numbers import c_int
from rackyard.nccl.version import Version
from rackyard.nccl.xmlrefused import TopologyRefused, printable
from rackyard.nccl.xmltoken import Note, Tag, TagReader

LARGEST = 16 << 20
"""Bytes that a topology file may have here; NCCL itself sets no limit."""

KNOWN: dict[str, frozenset[str]] = {
    "": frozenset({"system"}),
    "system": frozenset({"cpu"}),
    "cpu": frozenset({"pci", "nic"}),
    "pci": frozenset({"pci", "gpu", "nic", "pcilink"}),
    "gpu": frozenset({"nvlink", "c2c"}),
    "nic": frozenset({"net"}),
}
"""The elements that NCCL keeps, by their parent; everything else is skipped with its content."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What is left of a file. `roots` are the system elements; NCCL uses the first. `nodes` counts all elements."""

    roots: tuple[Element, ...]
    nodes: int
    notes: tuple[Note, ...]
    unnoted: int = 0
    """How many more notes there would be."""

    @property
    def root(self) -> Element | None:
        """The system element that NCCL uses; None if the file has none."""
        return self.roots[0] if self.roots else None


def parse(data: bytes, file: str, version: Version, max_nodes: int | None = None) -> Parsed:
    """The tree that NCCL of that version keeps of the file's bytes. Raises TopologyRefused where init would fail.

    UsageError for a file that is too large to be one. `max_nodes` is the number of elements there is room for, one of
    which stays unused; by default that of a file.
    """
    check_size(data, file)
    return read_tree(TagReader(data, file, version), max_nodes or version.file_nodes)


def check_size(data: bytes, file: str) -> None:
    """Raises UsageError for more bytes than a topology file can need."""
    if len(data) > LARGEST:
        raise UsageError(f"{file} is too large to be a topology file", why=f"{len(data)} bytes, {LARGEST} at most")


def read_tree(reader: TagReader, max_nodes: int) -> Parsed:
    """As `parse`, from a reader."""
    return _Loader(reader, max_nodes).load()


class _Loader:
    """Builds the tree. `open` holds the open elements; in a skipped element `skipped` counts how deep we are."""

    def __init__(self, reader: TagReader, max_nodes: int) -> None:
        self.reader = reader
        self.version = reader.version
        self.max_nodes = max_nodes
        self.roots: list[Element] = []
        self.open: list[Element] = []
        self.skipped = 0
        self.nodes = 0

    def load(self) -> Parsed:
        while True:
            if self.nodes == self.max_nodes:
                fix = f"at most {self.max_nodes - 1} elements fit; drop branches without GPU and NIC"
                raise self.refused(f"Error : XML parser is limited to {self.max_nodes} nodes", fix=fix)
            tag = self.reader.next_tag()
            if tag is None:
                break
            if self.skipped:
                self.skip(tag)
            elif tag.closes and self.open:
                self.close(tag)
            else:
                self.enter(tag)
        if self.skipped or self.open:
            # Of a skipped element NCCL has no name left, only that of a comment read last.
            name = self.reader.comment if self.skipped else self.open[-1].name
            raise self.refused(f"XML Parse : unterminated {name}", fix="close every element before the file ends")
        notes = sorted(self.reader.notes, key=lambda note: (note.line, note.column))
        return Parsed(tuple(self.roots), self.nodes, tuple(notes), self.reader.unnoted)

    def skip(self, tag: Tag) -> None:
        # NCCL keeps no name of an element it skips, so any closing tag ends it.
        if tag.closes:
            self.skipped -= 1
        elif not tag.single:
            self.skipped += 1

    def close(self, tag: Tag) -> None:
        name = self.open[-1].name
        if tag.name != name:
            line = self.open[-1].line
            raise self.refused(f"XML Mismatch : {name} / {tag.name}", tag, fix=f"close the <{name}> of line {line}")
        self.open.pop()

    def enter(self, tag: Tag) -> None:
        parent = self.open[-1] if self.open else None
        known = tag.name in KNOWN.get(parent.name if parent else "", ())
        if not (known and self.version.knows_element(tag.name)):
            inside = f"in <{parent.name}>" if parent else "as the root"
            text = f"<{printable(tag.name)}> {inside} is not known to NCCL: skipped with all it contains"
            self.reader.note("unknown-element", tag.line, tag.column, text)
            self.skipped = 0 if tag.single else 1
            return
        element = Element(tag.name, tag.attrs, [], tag.line, tag.single, tuple(tag.repeats))
        if parent is None:
            self.roots.append(element)
        else:
            self.adopt(parent, element, tag)
        self.nodes += 1
        if parent is None:
            self.check_system(element, tag)
        if not tag.single:
            self.open.append(element)

    def adopt(self, parent: Element, element: Element, tag: Tag) -> None:
        limit = self.version.max_children
        if len(parent.children) == limit:
            crashes = not self.version.checks_children
            message = "" if crashes else f"Error : XML parser is limited to {limit} subnodes"
            fix = f"at most {limit} children under one element"
            raise self.refused(message, tag, fix=fix, crashes=crashes)
        parent.children.append(element)

    def check_system(self, system: Element, tag: Tag) -> None:
        text = system.get("version")
        if text is None:
            message = "Attribute version of node system not found"
            raise self.refused(message, tag, fix='write <system version="1">')
        if c_int(text) != 1:
            message = f"XML Topology has wrong version {c_int(text)}, 1 needed"
            raise self.refused(message, tag, fix='write <system version="1">', nccl_result="ncclInvalidUsage")

    def refused(
        self, message: str, tag: Tag | None = None, *, fix: str, crashes: bool = False, nccl_result: str = ""
    ) -> TopologyRefused:
        line, column = (tag.line, tag.column) if tag else self.reader.place()
        where = Where(self.reader.file, line, column)
        result = nccl_result or "ncclInternalError"
        return TopologyRefused(message, nccl_result=result, where=where, fix=fix, crashes=crashes)
