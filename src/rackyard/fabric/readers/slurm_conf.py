"""Slurm's topology.conf: a tree of switches, blocks, or rings.

    SwitchName=core Switches=leaf[1-2]
    SwitchName=leaf1 Nodes=peta[10000-10019,10030]

Lines are read as slurmctld reads them (src/common/parse_config.c): `Key=value` pairs with keys in any case, comments
from `#` on, a backslash at the end continues the line. Topograph writes the true names of switches and blocks into a
comment right above, `# switch.1.1=leaf-1-1`; that name is used.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rackyard.fabric.facts import Facts
from rackyard.fabric.readers.hostlist import MAX_HOSTS, HostlistError, expand
from rackyard.fabric.readers.reader import Capture, Reader, text_of
from rackyard.fabric.readers.slurm_topology import Place, Unit, block_facts, ring_facts, tree_facts
from rackyard.fabric.yamlread import did_you_mean

NAME = "slurm-conf"

_PAIR = re.compile(r"\s*([\w.]+)\s*([-*+/]?)=\s*(?:\"([^\"]*)\"|(\S+))(?=\s|$)", re.ASCII)
_COMMENT = re.compile(r"(?<!\\)(?:\\\\)*#")
_ALIAS = re.compile(r"\s*#\s*(\S+?)=(.*\S)\s*")
_FIRST = re.compile(r"^\s*(SwitchName|BlockName|BlockSizes|RingName)\s*=", re.IGNORECASE | re.MULTILINE)

_KEYS = {
    "switchname": ("SwitchName", "Switches", "Nodes", "LinkSpeed"),
    "blockname": ("BlockName", "Nodes"),
    "ringname": ("RingName", "Nodes"),
    "blocksizes": ("BlockSizes",),
    "allowgaps": ("AllowGaps",),  # of Slurm 25.05's release candidates; since then always on
}


@dataclass(slots=True)
class _Line:
    """A logical line: its pieces joined, with the offset at which each physical line begins."""

    file: str
    text: str
    pieces: list[tuple[int, int, str]]
    alias: tuple[str, str] | None = None
    values: dict[str, tuple[str, int]] = field(default_factory=dict)

    def place(self, at: int) -> Place:
        start, line, text = max(piece for piece in self.pieces if piece[0] <= at)
        return Place(self.file, line, at - start + 1, text)


@dataclass(slots=True)
class _Found:
    switches: list[Unit] = field(default_factory=list)
    blocks: list[Unit] = field(default_factory=list)
    rings: list[Unit] = field(default_factory=list)
    sizes: tuple[int, ...] = ()
    sizes_at: Place | None = None


def parse(capture: Capture, limit: int = MAX_HOSTS) -> Facts:
    """The hosts of a topology.conf with the switches above them, or with their block. `limit` bounds how many names all
    its hostlists together may stand for. SpecError with line and column.
    """
    found = _Found()
    room = limit
    for line in _lines(text_of(capture), capture.file):
        _pairs(line)
        kind = next(iter(line.values))
        value, at = line.values[kind]
        if kind in ("blocksizes", "allowgaps"):
            if kind == "blocksizes":
                found.sizes, found.sizes_at = _sizes(value, line.place(at)), line.place(at)
            continue
        nodes = _names(line, "nodes", room)
        room -= len(nodes)
        children = _names(line, "switches", room)
        room -= len(children)
        alias = line.alias[1] if line.alias and line.alias[0] == value else value
        unit = Unit(value, alias, nodes, children, line.place(at))
        {"switchname": found.switches, "blockname": found.blocks, "ringname": found.rings}[kind].append(unit)
    facts = tree_facts(NAME, found.switches)
    facts.add(block_facts(NAME, found.blocks, found.sizes, found.sizes_at))
    facts.add(ring_facts(NAME, found.rings))
    if not (found.switches or found.blocks or found.rings):
        Place(capture.file, 1, 1).fail("no SwitchName, BlockName or RingName in the file")
    return facts


def _lines(text: str, file: str) -> Iterator[_Line]:
    joined, pieces = "", list[tuple[int, int, str]]()
    alias = None
    for number, raw in enumerate(text.split("\n"), 1):
        comment = _COMMENT.search(raw)
        line = raw[: comment.end() - 1] if comment else raw
        pieces.append((len(joined), number, raw))
        stripped = line.rstrip()
        if (len(stripped) - len(stripped.rstrip("\\"))) % 2:
            joined += stripped[:-1]
            continue
        joined += line
        if joined.strip():
            yield _Line(file, joined.replace("\\", ""), pieces, alias)
            alias = None
        else:
            match = _ALIAS.fullmatch(raw)
            alias = (match[1], match[2]) if match else None
        joined, pieces = "", []
    if joined.strip():
        yield _Line(file, joined.replace("\\", ""), pieces, alias)


def _pairs(line: _Line) -> None:
    at = 0
    keys: tuple[str, ...] = ()
    while line.text[at:].strip():
        match = _PAIR.match(line.text, at)
        if match is None:
            start = at + len(line.text[at:]) - len(line.text[at:].lstrip())
            word = line.text[start:].split(None, 1)[0]
            fix = "give the included file itself" if word.lower() == "include" else "write Key=value"
            line.place(start).fail(f"{word[:60]!r} is no Key=value", fix=fix)
        key = match[1].lower()
        place = line.place(match.start(1))
        if not keys:
            if key not in _KEYS:
                known = [names[0] for names in _KEYS.values()]
                place.fail(f"a line can't begin with {match[1][:60]!r}", fix=did_you_mean(match[1], known))
            keys = _KEYS[key]
        elif key not in {name.lower() for name in keys[1:]}:
            place.fail(f"unknown key {match[1][:60]!r} after {keys[0]}", fix=did_you_mean(match[1], keys[1:]))
        if key in line.values:
            place.fail(f"{match[1][:60]!r} is given twice")
        group = 3 if match[3] is not None else 4
        line.values[key] = (match[group], match.start(group))
        at = match.end()


def _names(line: _Line, key: str, room: int) -> tuple[str, ...]:
    if key not in line.values:
        return ()
    value, at = line.values[key]
    try:
        return tuple(expand(value, room))
    except HostlistError as error:
        line.place(at + error.at).fail(error.what)


def _sizes(value: str, place: Place) -> tuple[int, ...]:
    parts = value.split(",")
    for part in parts:
        if not part.isascii() or not part.isdecimal() or len(part) > 9:
            place.fail(f"block size {part[:40]!r} is not a whole number")
    return tuple(int(part) for part in parts)


def _read(capture: Capture) -> Facts:
    return parse(capture)


def _knows(head: str, file: str) -> bool:
    return bool(_FIRST.search(head)) or file.rsplit("/", 1)[-1] == "topology.conf"


READER = Reader(NAME, _knows, _read)
