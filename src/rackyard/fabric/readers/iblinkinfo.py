"""`iblinkinfo`: every port of an InfiniBand fabric with its state, also those that are down, and what it could run at.

The format is read off infiniband-diags (rdma-core, iblinkinfo.c): blocks of `Switch:` and `CA:`, or one line a port
with `--line`; `-p` adds buffer settings, which are passed over. In blocks the far end has no GUID: its LID tells which
node it is.
"""

import re
import sys
from collections import defaultdict
from functools import lru_cache
from typing import NamedTuple

from rackyard.errors import UsageError, Where
from rackyard.fabric.facts import CableFact, End, Facts, Source, SwitchFact
from rackyard.fabric.readers.ibnames import (
    COMPLAINT,
    complained,
    gbps_of,
    host_and_device,
    is_aggregation_node,
    speed_of,
    switch_name,
    switch_names,
)
from rackyard.fabric.readers.reader import Capture, Reader, text_of

NAME = "iblinkinfo"

_HEADER = re.compile(r"(Switch|CA|Router):? (?:0x([0-9a-f]{1,16}) )?(.*):[ \t]*")
_ROW = re.compile(
    r"[ \t]*+(?:0x([0-9a-f]{1,16})[ \t]++)?(?:\"([^\"]*)\"[ \t]++)?"
    r"([0-9]{1,6})[ \t]++([0-9]{1,4})\[[ 0-9]{1,4}\][ \t]*+"
    r"==\(([^/]{0,80})/[ \t]*+([A-Za-z]+|\?\([0-9]+\))\)(?: \(HOQ:[^)]*\))?==>[ \t]*+(.*)"
)
_FAR = re.compile(
    r"(?:0x([0-9a-f]{1,16})[ \t]++)?([0-9]{1,6})[ \t]++([0-9]{1,4})\[[ 0-9]{1,4}\][ \t]*+"
    r"\"(.*)\"[ \t]*+\((.{0,200})\)[ \t]*"
)
_NOBODY = re.compile(r"\[[ 0-9]{1,4}\] \"\" \( ?\)[ \t]*|\"Port not available\"[ \t]*")
_LINK = re.compile(
    r"[ \t]*+(?:([0-9]{1,2})X[ \t]++)?(?:([0-9.]{1,10}) Gbps (\(FDR10\) )?)?.*?([A-Za-z]+|\?\([0-9]+\))[ \t]*"
)
_COULD_WIDTH = re.compile(r"Could be ([0-9]{1,2})X")
_COULD_SPEED = re.compile(r"Could be (?:(FDR10)|([0-9.]{1,10}) Gbps)")
_KNOWN = re.compile(r"==\([^)/\n]{1,40}/[^)\n]{1,30}\)(?: \(HOQ:[^)\n]*\))?==>")
_KINDS = {"Switch": "switch", "CA": "hca", "Router": "other"}
_STATES = {"Initialize": "Init"}


class _Node(NamedTuple):
    kind: str
    owner: str
    device: str
    guid: str


class _Link(NamedTuple):
    width: int | None
    speed: str | None
    state: str


class _Row(NamedTuple):
    source: Source
    kind: str
    guid: str
    description: str
    match: re.Match[str]


def read(capture: Capture) -> Facts:
    """Switches, and one cable for each port that is listed; a port that is down has no far end.

    Raises:
        UsageError: a line that can't be understood, or no port at all.
    """
    complaints: list[Source] = []
    rows = _rows(capture, complaints)
    facts = Facts(findings=complained(NAME, capture.file, complaints))
    names = switch_names({row.guid: row.description for row in rows if row.kind == "switch"})
    nodes: dict[tuple[str, str, str], _Node] = {}
    by_lid: dict[str, _Node] = {}
    for row in rows:
        key = row.kind, row.guid, row.description
        if key not in nodes:
            node = nodes[key] = _node(*key)
            if row.kind == "switch":
                node = nodes[key] = node._replace(owner=names[row.guid].name or node.owner)
                facts.switches.append(_switch(row, node, names[row.guid].model))
        by_lid[row.match[3]] = nodes[key]
    by_lid.pop("0", None)  # not yet given by a subnet manager, so not one node's
    rows.reverse()
    while rows:  # each row goes as its cable comes: a fabric is large
        row = rows.pop()
        facts.cables.append(_cable(capture, row, nodes[row.kind, row.guid, row.description], by_lid))
    return facts


def _rows(capture: Capture, complaints: list[Source]) -> list[_Row]:
    rows: list[_Row] = []
    kind, guid, description = "", "", ""
    for number, line in enumerate(text_of(capture).split("\n"), 1):
        match = _ROW.fullmatch(line)
        own = match[1] or (guid if match[2] is None else "") if match is not None else ""
        if match is not None and own:
            source = Source(NAME, capture.file, number, line)
            named = description if match[2] is None else match[2].strip()
            rows.append(_Row(source, kind if match[2] is None else "", own.zfill(16), named, match))
        elif (header := _HEADER.fullmatch(line)) is not None and (header[2] or header[1] != "Switch"):
            kind, guid, description = _KINDS[header[1]], header[2] or "", header[3]
        elif COMPLAINT.match(line):
            complaints.append(Source(NAME, capture.file, number, line))
        elif line.strip() and line[0] != "#":
            raise _unreadable(capture, number, line)
    if not rows:
        raise UsageError(
            "no port in this output of iblinkinfo",
            where=Where(capture.file),
            fix="run it as root on a host whose InfiniBand port is up",
        )
    return _kinds_found(rows)


def _kinds_found(rows: list[_Row]) -> list[_Row]:
    """With `--line` nobody says what a node is. All ports of a switch have one GUID; those of an HCA have one each."""
    ports: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        ports[row.guid].add(row.match[4])
    return [
        row if row.kind else row._replace(kind="switch" if len(ports[row.guid]) > 1 else _kind_by_name(row.description))
        for row in rows
    ]


def _kind_by_name(description: str) -> str:
    if is_aggregation_node(description):
        return "other"
    if switch_name(description).model:
        return "switch"
    # A lone word may be a host or a switch; makers put the adapter's name into what nobody has set.
    return "hca" if host_and_device(description)[1] or "ConnectX" in description else "switch"


def _node(kind: str, guid: str, description: str) -> _Node:
    if kind == "switch":
        return _Node(kind, switch_name(description).name or guid, "", guid)
    if kind == "other" or is_aggregation_node(description):
        return _Node("other", "" if is_aggregation_node(description) else description, "", guid)
    host, device = host_and_device(description)
    return _Node("hca", host, device, guid)


def _switch(row: _Row, node: _Node, model: str) -> SwitchFact:
    lid = int(row.match[3]) or None
    return SwitchFact(name=node.owner, source=row.source, guid=node.guid or None, lid=lid, model=model or None)


def _cable(capture: Capture, row: _Row, node: _Node, by_lid: dict[str, _Node]) -> CableFact:
    port, text, physical, rest = row.match.group(4, 5, 6, 7)
    link = _link(text)
    far = _FAR.fullmatch(rest)
    if link is None or (far is None and _NOBODY.fullmatch(rest) is None):
        raise _unreadable(capture, row.source.line, row.source.text)
    could = _could(far[5]) if far else _Link(None, None, "")
    return CableFact(
        a=End(node.kind, node.owner, node.device, int(port), node.guid),
        b=_far_end(far, by_lid) if far else None,
        source=row.source,
        width=link.width,
        speed=link.speed,
        gbps=gbps_of(link.width, link.speed),
        state=link.state,
        phys_state=sys.intern(physical),
        width_max=could.width or link.width,
        speed_max=could.speed or link.speed,
    )


@lru_cache(maxsize=256)
def _link(text: str) -> _Link | None:
    match = _LINK.fullmatch(text)
    if match is None:
        return None
    speed = "FDR10" if match[3] else speed_of(match[2] or "")
    return _Link(int(match[1]) if match[1] else None, speed, _STATES.get(match[4], match[4]))


@lru_cache(maxsize=256)
def _could(hints: str) -> _Link:
    width, speed = _COULD_WIDTH.search(hints), _COULD_SPEED.search(hints)
    return _Link(int(width[1]) if width else None, (speed[1] or speed_of(speed[2])) if speed else None, "")


def _far_end(far: re.Match[str], by_lid: dict[str, _Node]) -> End:
    guid, lid, port, description = far.group(1, 2, 3, 4)
    node = by_lid.get(lid)
    if node is None:
        node = _node(_kind_by_name(description), guid.zfill(16) if guid else "", description)
    return End(node.kind, node.owner, node.device, int(port), node.guid)


def _unreadable(capture: Capture, number: int | None, line: str) -> UsageError:
    return UsageError(
        f"this line of iblinkinfo can't be understood: {line.strip()[:120]!r}",
        where=Where(capture.file, number),
        why="it is cut, or something else was written between",
        fix="capture again with `iblinkinfo > FILE` or `iblinkinfo --line > FILE`",
    )


def _knows(head: str, file: str) -> bool:
    return _KNOWN.search(head) is not None


READER = Reader(NAME, _knows, read)
