"""`ibnetdiscover`: the whole InfiniBand fabric, each link as both of its ends list it.

The format is read off infiniband-diags (rdma-core, ibnetdiscover.c: plain, `-f` and `-g`) and the topology files of
ibsim, which have no GUIDs and no descriptions. Links that are down are not listed, so no state is said. The GUID of an
HCA's end is its port's, that of a switch's end the switch's.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from rackyard.errors import UsageError, Where
from rackyard.fabric.facts import CableFact, End, Facts, Source, SwitchFact
from rackyard.fabric.readers.ibnames import (
    COMPLAINT,
    complained,
    gbps_of,
    host_and_device,
    is_aggregation_node,
    switch_name,
    switch_names,
)
from rackyard.fabric.readers.reader import Capture, Reader, text_of
from rackyard.findings import Finding, Severity, Verdict

NAME = "ibnetdiscover"

# Possessive (`*+`) wherever blanks may repeat: a line of a million blanks must not take a million squared steps.
_LINK = (
    r"\[([0-9]{1,5})\](?:\[ext [0-9]{1,4}\])?(?:\(([0-9a-f]{1,16})\))?[ \t]*+"
    r'"([^"]{1,80})"[ \t]*+\[([0-9]{1,5})\](?:\[ext [0-9]{1,4}\])?[ \t]*+(?:\(([0-9a-f]{1,16})\))?[ \t]*+'
)
_PORT = re.compile(
    _LINK + r'#[ \t]*+(?:lid [0-9]+ lmc [0-9]+ )?"(.*)" lid [0-9]+ (?:([0-9]{1,2})x|\?\?)([A-Z0-9]+|\?\?\?)(?: .*)?'
)
_BARE_PORT = re.compile(_LINK + r"(?:w=([0-9]{1,2})[ \t]*+)?(?:#(?![ \t]*+(?:\"|lid )).*)?")
_HEADER = re.compile(r'(Switch|Ca|Hca|Rt)[ \t]++([0-9]{1,4})[ \t]++"([^"]{1,80})"[ \t]*+(?:#[ \t]*+(.*))?')
_DESCRIPTION = re.compile(r'"(.*)"(?: (?:enhanced|base) port 0 lid ([0-9]{1,9}) lmc [0-9]+)?(?: .*)?')
_ID = re.compile(r"([SHR])-([0-9a-f]{16})")
_OTHER_LINE = re.compile(r"\s*+$|#|[a-z]+=|Chassis [0-9]|Hostname: |Non-Chassis Nodes|module ")
_KNOWN = re.compile(
    r'^# Topology file: generated on |^(?:Switch|Ca|Hca|Rt)[ \t]++[0-9]++[ \t]++"|^(?:switch|ca)guid=0x', re.M
)

_KIND_OF_TYPE = {"Switch": "switch", "Ca": "hca", "Hca": "hca", "Rt": "other"}
_KIND_OF_LETTER = {"S": "switch", "H": "hca", "R": "other"}

_Rate = tuple[int | None, str | None, float | None]


class _Node(NamedTuple):
    kind: str
    owner: str
    device: str
    guid: str


class _Header(NamedTuple):
    source: Source
    id: str
    kind: str
    ports: int
    description: str
    lid: int | None


def read(capture: Capture) -> Facts:
    """Switches and cables, each link once per end that lists it.

    Raises:
        UsageError: a line that can't be understood, or not a single link.
    """
    lines = text_of(capture).split("\n")
    facts = Facts()
    headers, complaints = _survey(capture, lines)
    nodes, facts.switches = _nodes(headers)
    own = len(nodes)
    facts.cables = _cables(capture, lines, nodes, {h.source.line: nodes[h.id] for h in headers})
    if not facts.cables:
        raise _no_link(capture, headers)
    facts.findings += complained(NAME, capture.file, complaints)
    facts.findings += _cut(capture, len(nodes) - own, headers[-1].source, facts.cables[-1].source)
    return facts


def _survey(capture: Capture, lines: list[str]) -> tuple[list[_Header], list[Source]]:
    """The header of each node's block, and what the tool complained of. A pass of its own, because links name nodes
    whose block comes later."""
    headers: list[_Header] = []
    complaints: list[Source] = []
    for number, line in enumerate(lines, 1):
        if not line or line[0] == "[":
            continue
        if line[0] in "SCHR" and (match := _HEADER.fullmatch(line)):
            kind, ports, node, comment = match.groups()
            said = _DESCRIPTION.fullmatch(comment) if comment else None
            if said is None and comment and comment[0] == '"':
                raise _unreadable(capture, number, line)
            source = Source(NAME, capture.file, number, line)
            description, lid = (said[1], said[2]) if said else ("", None)
            headers.append(
                _Header(source, node, _KIND_OF_TYPE[kind], int(ports), description, int(lid) if lid else None)
            )
        elif COMPLAINT.match(line):
            complaints.append(Source(NAME, capture.file, number, line))
        elif not _OTHER_LINE.match(line):
            raise _unreadable(capture, number, line)
    return headers, complaints


def _nodes(headers: list[_Header]) -> tuple[dict[str, _Node], list[SwitchFact]]:
    """Every node that has a block, by its id; and the switches among them."""
    names = switch_names({head.id: head.description for head in headers if head.kind == "switch"})
    nodes: dict[str, _Node] = {}
    switches = []
    for head in headers:
        node = _node(head.id, head.kind, head.description)
        if head.kind == "switch":
            name = names[head.id]
            node = node._replace(owner=name.name or node.owner)
            switches.append(
                SwitchFact(
                    name=node.owner,
                    source=head.source,
                    guid=node.guid or None,
                    ports=head.ports,
                    lid=head.lid,
                    model=name.model or None,
                )
            )
        nodes[head.id] = node
    return nodes, switches


def _node(node: str, kind: str | None, description: str) -> _Node:
    """A node by its id (`H-` or `S-` and the GUID; any name in ibsim), its kind where known, its description."""
    match = _ID.fullmatch(node)
    guid = match[2] if match else ""
    if kind is None:
        kind = _KIND_OF_LETTER[match[1]] if match else "other"
    if kind == "switch":
        return _Node(kind, switch_name(description).name or guid or node, "", guid)
    if kind == "other":
        return _Node(kind, description or node, "", guid)
    if is_aggregation_node(description):
        return _Node("other", "", "", guid)
    host, device = host_and_device(description if description or guid else node)
    return _Node(kind, host, device, guid)


def _cables(
    capture: Capture, lines: list[str], nodes: dict[str, _Node], starts: dict[int | None, _Node]
) -> list[CableFact]:
    """One cable a port line. `starts` tells which node's block starts at a line; nodes that are only named as a far end
    are added to `nodes`."""
    cables: list[CableFact] = []
    rates: dict[tuple[str | None, str | None], _Rate] = {}
    here: _Node | None = None
    file = capture.file
    for number, line in enumerate(lines, 1):
        if line[:1] != "[":
            here = starts.get(number, here)
            continue
        match = _PORT.fullmatch(line)
        if match is not None:
            port, guid, far, far_port, far_guid, description, width, speed = match.groups()
        elif (match := _BARE_PORT.fullmatch(line)) is not None:
            port, guid, far, far_port, far_guid, width = match.groups()
            description, speed = "", None
        if match is None or here is None:
            raise _unreadable(capture, number, line)
        there = nodes.get(far)
        if there is None:
            there = nodes[far] = _node(far, None, description)
        rate = rates.get((width, speed))
        if rate is None:
            rate = rates[width, speed] = _rate(width, speed)
        cables.append(
            CableFact(
                a=End(here.kind, here.owner, here.device, int(port), guid.zfill(16) if guid else here.guid),
                b=End(
                    there.kind, there.owner, there.device, int(far_port), far_guid.zfill(16) if far_guid else there.guid
                ),
                source=Source(NAME, file, number, line),
                width=rate[0],
                speed=rate[1],
                gbps=rate[2],
            )
        )
    return cables


def _rate(width: str | None, speed: str | None) -> _Rate:
    lanes = int(width) if width else None
    named = None if speed == "???" else speed
    return lanes, named, gbps_of(lanes, named)


def _cut(capture: Capture, missing: int, last: Source, last_link: Source) -> Iterable[Finding]:
    """A whole capture has a block for every node, and links in the last of them."""
    bare = (last.line or 0) > (last_link.line or 0)
    if not missing and not bare:
        return
    why = (
        "the last block has no link" if bare else f"{missing} nodes are named at the far end of links but have no block"
    )
    yield Finding(
        rule="fabric/capture-cut",
        verdict=Verdict.UNKNOWN,
        severity=Severity.WARNING,
        subject=capture.file,
        summary=f"the capture is cut: {why}",
        evidence=((last if bare else last_link).evidence(),),
        advice="Capture again and keep the whole output.",
    )


def _unreadable(capture: Capture, number: int, line: str) -> UsageError:
    return UsageError(
        f"this line of ibnetdiscover can't be understood: {line.strip()[:120]!r}",
        where=Where(capture.file, number),
        why="it is cut, or something else was written between",
        fix="capture again with `ibnetdiscover > FILE`, without -p, -l, -H, -S or -R",
    )


def _no_link(capture: Capture, headers: list[_Header]) -> UsageError:
    last = headers[-1].source if headers else None
    return UsageError(
        f"no link in this capture, after the block of {last.text[:120]!r}" if last else "no node in this capture",
        where=Where(capture.file, last.line if last else None),
        why="the port that ibnetdiscover started from is down, or the output is cut",
        fix="look at the port's state with ibstat, then run ibnetdiscover again",
    )


def _knows(head: str, file: str) -> bool:
    return _KNOWN.search(head) is not None


READER = Reader(NAME, _knows, read)
