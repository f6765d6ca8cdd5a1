"""`ibnetdiscover`: the whole InfiniBand fabric, each link as both of its ends list it.

The format is read off infiniband-diags (rdma-core, ibnetdiscover.c: plain, `-f` and `-g`) and the topology files of
ibsim, which have no GUIDs and no descriptions. Links that are down are not listed, so no state is said. The GUID of an
HCA's end is its port's, that of a switch's end the switch's.
"""

import re
from collections.abc import Iterable, Sequence
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


class _Ends(NamedTuple):
    """The nodes by their ids, and by id and description those whose GUID another node has, too."""

    nodes: dict[str, _Node]
    twins: dict[tuple[str, str], _Node]


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
    twins = _twins(headers, nodes)
    starts = {h.source.line: twins.get((h.id, h.description)) or nodes[h.id] for h in headers}
    facts.cables = _cables(capture, lines, _Ends(nodes, twins), starts)
    if not facts.cables:
        raise _no_link(capture, headers)
    facts.findings += complained(NAME, capture.file, complaints)
    facts.findings += _twice(capture, headers)
    facts.findings += _cut(capture, list(nodes.values())[own:], headers[-1].source, facts.cables[-1].source)
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
    """Every node that has a block, by its id; and the switches among them. A switch that carries the GUID of one before
    it, and another description, is a switch of its own.
    """
    first = {head.id: head for head in reversed(headers)}
    names = switch_names({key: head.description for key, head in first.items() if head.kind == "switch"})
    nodes: dict[str, _Node] = {}
    switches: dict[tuple[str, str], SwitchFact] = {}
    for head in headers:
        node = _node(head.id, head.kind, head.description)
        if head.kind == "switch":
            same = head.description == first[head.id].description and head.id in names
            name = names[head.id] if same else switch_name(head.description)
            node = node._replace(owner=name.name or node.owner)
            fact = SwitchFact(
                name=node.owner,
                source=head.source,
                guid=node.guid or None,
                ports=head.ports,
                lid=head.lid,
                model=name.model or None,
            )
            switches.setdefault((head.id, node.owner), fact)
        nodes.setdefault(head.id, node)
    return nodes, list(switches.values())


def _twins(headers: list[_Header], nodes: dict[str, _Node]) -> dict[tuple[str, str], _Node]:
    """The switches that carry the GUID of one before them under another description. Real fabrics have none."""
    if len(nodes) == len(headers):
        return {}
    first = {head.id: head.description for head in reversed(headers)}
    return {
        (head.id, head.description): _node(head.id, head.kind, head.description)
        for head in headers
        if head.kind == "switch" and head.description != first[head.id]
    }


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


def _cables(capture: Capture, lines: list[str], ends: _Ends, starts: dict[int | None, _Node]) -> list[CableFact]:
    """One cable a port line. `starts` tells which node's block starts at a line; nodes that are only named as a far end
    are added to `ends`."""
    nodes, twins = ends
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
        there = twins.get((far, description)) if twins else None
        there = there or nodes.get(far)
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


def _twice(capture: Capture, headers: list[_Header]) -> Iterable[Finding]:
    """Nodes with several blocks. ibnetdiscover writes one for each GUID, so the file holds several runs, or two nodes
    carry one GUID. Switches of two names are told by `fabric/guids`, too."""
    blocks: dict[str, list[_Header]] = {}
    for head in headers:
        blocks.setdefault(head.id, []).append(head)
    twice = [own for own in blocks.values() if len(own) > 1]
    if twice:
        names = _few([_node(own[0].id, own[0].kind, own[0].description) for own in twice])
        yield Finding(
            rule="fabric/block-twice",
            verdict=Verdict.UNKNOWN,
            severity=Severity.WARNING,
            subject=capture.file,
            summary=f"several blocks of one GUID: {names}",
            evidence=tuple(head.source.evidence() for own in twice[:4] for head in own[:2]),
            advice="One file must hold one run: capture again. If it is one, two nodes carry the same GUID.",
        )


_NAMED = 4
"""How many nodes a finding about the file names."""


def _few(nodes: Sequence[_Node]) -> str:
    """The first of these nodes, by name or else by GUID."""
    shown = [f"{node.owner} {node.device}".strip() if node.owner else f"GUID {node.guid}" for node in nodes[:_NAMED]]
    more = len(nodes) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _cut(capture: Capture, missing: Sequence[_Node], last: Source, last_link: Source) -> Iterable[Finding]:
    """A whole capture has a block for every node, and links in the last of them."""
    bare = (last.line or 0) > (last_link.line or 0)
    if not missing and not bare:
        return
    lack = f"{len(missing)} nodes are named at the far end of links but have no block: "
    why = "the last block has no link" if bare else lack + _few(missing)
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
