"""NMX-C (the NVLink controller): answers to GetTopologyInfo and GetConnInfoList as JSON, such as grpcurl prints.

Read in nmx_c.proto (NVIDIA infra-controller-core, crates/rpc/proto): messages FmTopologyInfo, GetConnInfoListResponse
and ConnInfoCombined; names in snake_case or camelCase; enumerations as names or numbers; zeros may be left out.

Inferred: `slot_index` is what NMX-M calls TrayIndex; end point A of a GPU connection is the GPU. An answer does not say
which connections were asked for: that is taken from the key the answer stands under, or from the file's name (EXPECTED,
EXPECTED_INACTIVE, UNEXPECTED, DISCOVERED); without either an inactive connection is an expected one and the rest are
discovered.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from rackyard.errors import UsageError, Where
from rackyard.fabric.facts import Facts, NvEnd, NvPortFact, Source
from rackyard.fabric.readers import nmxwords
from rackyard.fabric.readers.jsontext import Lines, decode
from rackyard.fabric.readers.nmxc_answer import (
    Answer,
    Conn,
    Either,
    EndPoint,
    Place,
    Port,
    Seating,
    answer_bytes,
    answers,
)
from rackyard.fabric.readers.nmxwords import Number, uid, whole, word
from rackyard.fabric.readers.reader import Capture, Reader
from rackyard.findings import Evidence, Finding, Severity, Verdict

NAME = "nmx-c"

_KNOWN = re.compile(
    r'"(?:device_topo_info|deviceTopoInfo|conn_info_list|connInfoList|server_header|serverHeader'
    r'|unexpected_conn_list|unexpectedConnList)"'
)
_EXPECTATION = re.compile(r"unexpected|expected[-_. ]?inactive|expected[-_. ]?active|expected|discovered", re.I)


class _Told(NamedTuple):
    """A device with its ports, where it was told."""

    domain: str
    end: NvEnd
    ports: list[Port]
    line: int
    path: str


class _Link(NamedTuple):
    """A connection, and what it is an answer to."""

    domain: str
    conn: Conn
    asked: str
    line: int
    path: str


_Seat = tuple[str, str, int, int, int, int]  # domain, kind, chassis, slot, host, index; every domain has a chassis 1


class _Placed(NamedTuple):
    """What the topology tells: the device in each seat, the devices' identifiers, and the ports that have facts."""

    seats: dict[_Seat, NvEnd]
    uids: set[str]
    ports: set[tuple[str, int]]


def read(capture: Capture) -> Facts:
    """The NVLink ports of GPUs and switches; and each connection as two ports, where the topology does not tell them.

    Raises:
        UsageError: malformed JSON, another shape, or nothing of the two answers in it.
    """
    data = answer_bytes(capture)
    facts = Facts()
    devices: list[_Told] = []
    links: list[_Link] = []
    seats: dict[_Seat, NvEnd] = {}
    lines = Lines(data)
    for key, raw in answers(capture, data):
        line = lines.of(raw)
        answer = decode(capture, raw, Answer, line=line)
        facts.findings += _refused(capture, answer, line)
        devices += _devices(capture, lines, key, answer, seats)
        links += _links(capture, lines, key, answer)
    planes = any(port.plane is not None for told in devices for port in told.ports)
    for told in devices:
        facts.nvports += _ports(capture, told, planes)
    known = {(port.end.uid, port.port) for port in facts.nvports}
    unplaced: list[_Link] = []
    placed = _Placed(seats, {told.end.uid for told in devices}, known)
    for link in links:
        facts.nvports += _connection(capture, link, placed, unplaced)
    facts.findings += _unplaced(capture, unplaced)
    if not devices and not links and not facts.findings:
        raise UsageError(
            "no device and no connection in this answer of NMX-C",
            where=Where(capture.file, 1),
            fix="keep the answers to GetTopologyInfo and GetConnInfoList",
        )
    return facts


def _refused(capture: Capture, answer: Answer, line: int) -> Iterator[Finding]:
    code = word(answer.server_header.return_code, nmxwords.RETURN_CODE)
    if code not in nmxwords.RETURN_CODE:
        yield Finding(
            rule="fabric/nvlink-manager",
            verdict=Verdict.UNKNOWN,
            severity=Severity.WARNING,
            subject=answer.server_header.domain_uuid or capture.file,
            summary=f"the NVLink controller answered {code}: what it knows of the fabric is not here",
            evidence=(Evidence(capture.file, f"return_code {answer.server_header.return_code}", line),),
            advice="Look at the controller's state, then ask again.",
        )


def _devices(capture: Capture, lines: Lines, key: str, answer: Answer, seats: dict[_Seat, NvEnd]) -> Iterator[_Told]:
    for number, raw in enumerate(answer.device_topo_info):
        line = lines.of(raw)
        either = decode(capture, raw, Either, line=line)
        for kind, name, device in (
            ("gpu", "gpu_topo_info", either.gpu_topo_info),
            ("switch", "switch_topo_info", either.switch_topo_info),
        ):
            if device is None:
                continue
            words = nmxwords.GPU_HEALTH if kind == "gpu" else nmxwords.SWITCH_HEALTH
            index, at = whole(device.device_index), device.loc or Seating()
            end = NvEnd(
                kind,
                uid(device.device_uid),
                at.chassis_serial_number,
                whole(at.location.slot_id) if device.loc else -1,
                whole(at.slot_index) if device.loc else -1,
                index,
                "",
                word(device.device_health, words),
            )
            if not end.uid:
                raise UsageError("a device without device_uid", where=Where(capture.file, line))
            seats[_seat(answer.server_header.domain_uuid, kind, at.location, index)] = end
            path = f"{key}.device_topo_info[{number}].{name}".lstrip(".")
            yield _Told(answer.server_header.domain_uuid, end, device.port_topo_info, line, path)


def _seat(domain: str, kind: str, place: Place, index: int) -> _Seat:
    return domain, kind, whole(place.chassis_id), whole(place.slot_id), whole(place.host_id), index


def _ports(capture: Capture, told: _Told, planes: bool) -> Iterator[NvPortFact]:
    """`planes` is whether this capture tells planes at all; then, as zeros may be left out, none means the first."""
    for number, port in enumerate(told.ports):
        if word(port.port_type, nmxwords.PORT_TYPE) not in nmxwords.NVLINK_PORTS:
            continue
        peer = uid(port.peer_port_device_uid)
        yield NvPortFact(
            end=told.end,
            port=whole(port.port_num),
            source=Source(NAME, capture.file, told.line, f"{told.path}.port_topo_info[{number}]"),
            domain=told.domain,
            peer_uid=peer,
            peer_port=whole(port.peer_port_num) if peer else -1,
            logical=nmxwords.logical(port.logical_state, port.contain_and_drain),
            physical=nmxwords.state(port.physical_state, nmxwords.PHYSICAL),
            rail=_said(port.rail, planes),
            plane=_said(port.plane, planes),
            cage=_said(port.cage_num, False),
        )


def _said(value: Number | None, zero: bool) -> int | None:
    return (0 if zero else None) if value is None else whole(value)


def _links(capture: Capture, lines: Lines, key: str, answer: Answer) -> Iterator[_Link]:
    hint = _EXPECTATION.search(key) or _EXPECTATION.search(capture.file.rpartition("/")[2])
    for asked, name, conns in (
        (hint[0] if hint else "", "conn_info_list", answer.conn_info_list),
        ("unexpected", "unexpected_conn_list", answer.unexpected_conn_list),
    ):
        for number, raw in enumerate(conns.conn_info_list):
            line = lines.of(raw)
            conn = decode(capture, raw, Conn, line=line)
            path = f"{key}.{name}.conn_info_list[{number}]".lstrip(".")
            yield _Link(answer.server_header.domain_uuid, conn, asked, line, path)


def _expectation(asked: str, state: str | None) -> str:
    asked = asked.lower()
    if asked.startswith("unexpected"):
        return "unexpected"
    if asked.endswith("inactive") or (not asked and state == "inactive"):
        return "expected-inactive"
    return "expected" if asked.startswith("expected") else "discovered"


def _connection(capture: Capture, link: _Link, placed: _Placed, unplaced: list[_Link]) -> Iterator[NvPortFact]:
    """Both ports of a connection. An end point has a place and no identifier; the topology beside it gives that.
    Without it, what is inactive or unexpected is told by its place; the rest goes to `unplaced`, lest devices count
    twice.
    """
    state = nmxwords.state(link.conn.conn_state, nmxwords.CONNECTION)
    expectation = _expectation(link.asked, state)
    a, b = link.conn.end_point_a, link.conn.end_point_b
    trunk = word(link.conn.conn_type, nmxwords.CONNECTION_TYPE) == "switch"
    turned = (
        not trunk
        and _seat(link.domain, "gpu", a.loc, whole(a.switch_or_gpu_index)) not in placed.seats
        and _seat(link.domain, "gpu", b.loc, whole(b.switch_or_gpu_index)) in placed.seats
    )
    ends = [
        (_end("switch" if trunk or turned else "gpu", a, link.domain, placed.seats), a),
        (_end("gpu" if turned else "switch", b, link.domain, placed.seats), b),
    ]
    if expectation in ("expected", "discovered") and any(end.uid not in placed.uids for end, _ in ends):
        unplaced.append(link)
        return
    for (end, point), (peer, far) in (ends, ends[::-1]):
        port = whole(point.port_num)
        if expectation == "discovered" and (end.uid, port) in placed.ports:
            continue
        yield NvPortFact(
            end=end,
            port=port,
            source=Source(NAME, capture.file, link.line, link.path),
            domain=link.domain,
            peer_uid=peer.uid,
            peer_port=whole(far.port_num),
            logical=state,
            cage=None if point.cage_num is None else whole(point.cage_num),
            expectation=expectation,
        )


def _end(kind: str, point: EndPoint, domain: str, seats: dict[_Seat, NvEnd]) -> NvEnd:
    """The device at an end point: as the topology tells it, else known by its place alone."""
    seat = _seat(domain, kind, point.loc, whole(point.switch_or_gpu_index))
    known = seats.get(seat)
    if known is not None:
        return known
    _, _, chassis, slot, host, index = seat
    return NvEnd(kind, f"{domain} {kind} {chassis}/{slot}/{host}/{index}".lstrip(), "", slot, -1, index)


def _unplaced(capture: Capture, links: list[_Link]) -> Iterator[Finding]:
    if links:
        yield Finding(
            rule="fabric/nvlink-unplaced",
            verdict=Verdict.UNKNOWN,
            severity=Severity.INFO,
            subject=capture.file,
            summary=f"{len(links)} connections are between devices that are not listed here: they are not used",
            evidence=(Evidence(capture.file, links[0].path, links[0].line),),
            advice="Put the answers to GetTopologyInfo and GetConnInfoList into one file, each under a key of its own.",
        )


def _knows(head: str, file: str) -> bool:
    return _KNOWN.search(head) is not None


READER = Reader(NAME, _knows, read)
