"""NMX-M (the NVLink manager, in NetQ now): what its REST API lists under `nmx/v1/`, as JSON.

Read in its OpenAPI, version 85.1.1000 (NVIDIA infra-controller-core, crates/libnmxm/tests/opennmxm.yaml): ComputeNode,
SwitchNode, GPU, Switch, Port, Chassis, Partition, LocationInfo. A file may hold one list, one entity, several lists in
a list (as `jq -s` makes them) or an object with the endpoints' names as keys. A port does not say which device it is
of; the device's PortIDList does, so ports are read together with `gpus` and `switches` only.

Inferred: an entity that neither its own fields, nor the key, nor the file's name gives away is a compute node.
DomainUUID is kept as the block's name: it names the same NVLink domain as the driver's cluster UUID, and is not known
to be equal to it.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from rackyard.errors import UsageError, Where
from rackyard.fabric.facts import Facts, HostFact, NvEnd, NvPortFact, Source
from rackyard.fabric.readers import nmxwords
from rackyard.fabric.readers.jsontext import Lines, decode, json_bytes
from rackyard.fabric.readers.nmxwords import Number, uid, whole, word
from rackyard.fabric.readers.reader import Capture, Reader
from rackyard.findings import Evidence, Finding, Severity, Verdict

NAME = "nmx-m"

_ENDPOINTS = {
    "computenodes": "node",
    "switchnodes": "switch-node",
    "gpus": "gpu",
    "switches": "switch",
    "ports": "port",
    "chassis": "chassis",
    "partitions": "partition",
}
_SPELLING = {
    "id": "ID",
    "domain": "DomainUUID",
    "device_uid": "DeviceUID",
    "device_id": "DeviceID",
    "alids": "ALIDList",
    "port_ids": "PortIDList",
    "gpu_ids": "GpuIDList",
    "switch_ids": "SwitchIDList",
    "compute_ids": "ComputeNodeIDList",
    "peer_uid": "PeerPortDeviceUID",
    "location": "LocationInfo",
    "chassis": "ChassisSerialNumber",
    "slot": "SlotID",
    "tray": "TrayIndex",
    "host": "HostID",
}


def _spelled(field: str) -> str:
    return _SPELLING.get(field) or "".join(part.capitalize() for part in field.split("_"))


_ABSENT = msgspec.Raw()


class _Location(msgspec.Struct, rename=_spelled):
    chassis: str = ""
    slot: int | None = None
    tray: int | None = None
    host: int | None = None


class _Entity(msgspec.Struct, rename=_spelled):
    """Any of the entities: the fields of all of them that are used or tell them apart."""

    id: str = ""
    name: str = ""
    domain: str = ""
    location: _Location | None = None
    health: str | None = None
    device_uid: Number | None = None
    device_id: Number | None = None
    alids: msgspec.Raw = _ABSENT
    port_ids: list[str] | None = None
    gpu_ids: msgspec.Raw = _ABSENT
    switch_ids: msgspec.Raw = _ABSENT
    compute_ids: msgspec.Raw = _ABSENT
    serial_number: str | None = None
    members: msgspec.Raw = _ABSENT
    type: str | None = None
    port_num: Number | None = None
    peer_uid: Number | None = None
    peer_port_num: Number | None = None
    physical_state: str | None = None
    logical_state: str | None = None
    rail: Number | None = None
    plane: Number | None = None
    cage_num: Number | None = None
    contain_and_drain: bool = False


class _Told(NamedTuple):
    entity: _Entity
    kind: str
    source: Source


def read(capture: Capture) -> Facts:
    """Compute nodes as hosts, and the NVLink ports of the GPUs and switches that are listed beside them.

    Raises:
        UsageError: malformed JSON, another shape, or no entity at all.
    """
    told = list(_entities(capture))
    if not told:
        raise UsageError("NMX-M lists nothing here", where=Where(capture.file, 1), fix="ask for nmx/v1/compute-nodes")
    facts = Facts()
    facts.hosts = [host for one in told if one.kind == "node" and (host := _host(one)) is not None]
    names = {_seat(one.entity.location): one.entity.name for one in told if one.kind == "node" and one.entity.location}
    owners: dict[str, NvEnd] = {}
    for one in told:
        if one.kind in ("gpu", "switch"):
            owners |= dict.fromkeys(one.entity.port_ids or (), _end(one, names))
    ports = [one for one in told if one.kind == "port"]
    facts.nvports = [port for one in ports if (port := _port(one, owners)) is not None]
    facts.findings += _unowned(capture, [one for one in ports if one.entity.id not in owners])
    return facts


def _entities(capture: Capture) -> Iterator[_Told]:
    data = json_bytes(capture)
    lines = Lines(data)
    for raw, hint in _parts(capture, data, _endpoint(capture.file.rpartition("/")[2].partition(".")[0]), depth=0):
        line = lines.of(raw)
        entity = decode(capture, raw, _Entity, line=line)
        kind = _kind(entity, hint)
        yield _Told(entity, kind, Source(NAME, capture.file, line, f"{kind} {entity.name or entity.id}"))


def _parts(capture: Capture, data: bytes | msgspec.Raw, hint: str, depth: int) -> Iterator[tuple[msgspec.Raw, str]]:
    """The entities' texts, each with what it is where an endpoint's name tells."""
    if bytes(memoryview(data)[:64]).lstrip()[:1] == b"[" and depth < 3:
        for part in decode(capture, data, list[msgspec.Raw]):
            yield from _parts(capture, part, hint, depth + 1)
        return
    if depth == 0:
        top = decode(capture, data, dict[str, msgspec.Raw])
        if any(_endpoint(key) for key in top):
            for key, part in top.items():
                yield from _parts(capture, part, _endpoint(key), depth + 1)
            return
    yield msgspec.Raw(bytes(data)) if isinstance(data, bytes) else data, hint


def _endpoint(name: str) -> str:
    """What is listed at an endpoint, or in a file named after it: `compute-nodes`, `ComputeNodes`, `nmx_v1_gpus`."""
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    return next((kind for ending, kind in _ENDPOINTS.items() if plain.endswith(ending)), "")


def _kind(entity: _Entity, hint: str) -> str:
    if entity.port_num is not None:
        return "port"
    if entity.device_uid is not None:
        return "gpu" if entity.alids is not _ABSENT or hint == "gpu" else "switch"
    if entity.compute_ids is not _ABSENT or entity.serial_number is not None:
        return "chassis"
    if entity.switch_ids is not _ABSENT:
        return "switch-node"
    if entity.members is not _ABSENT:
        return "partition"
    return "node" if entity.gpu_ids is not _ABSENT else hint or "node"


_Seat = tuple[str, int | None, int | None]


def _seat(location: _Location) -> _Seat:
    return location.chassis, location.slot, location.host


def _host(told: _Told) -> HostFact | None:
    entity = told.entity
    if not entity.name:
        return None
    at = entity.location or _Location()
    return HostFact(
        node=entity.name,
        source=told.source,
        chassis=at.chassis or None,
        slot=at.slot,
        tray=at.tray,
        host_id=at.host,
        block=entity.domain or None,
        health=nmxwords.node_health(entity.health),
    )


def _end(told: _Told, names: Mapping[_Seat, str]) -> NvEnd:
    entity, kind = told.entity, told.kind
    at = entity.location or _Location()
    words = nmxwords.GPU_HEALTH if kind == "gpu" else nmxwords.SWITCH_HEALTH
    return NvEnd(
        kind,
        uid(entity.device_uid),
        at.chassis,
        -1 if at.slot is None else at.slot,
        -1 if at.tray is None else at.tray,
        whole(entity.device_id, -1),
        names.get(_seat(at), "") if kind == "gpu" else "",
        word(entity.health, words) if entity.health is not None else "",
    )


def _port(told: _Told, owners: Mapping[str, NvEnd]) -> NvPortFact | None:
    port, end = told.entity, owners.get(told.entity.id)
    if end is None or word(port.type, nmxwords.PORT_TYPE) not in nmxwords.NVLINK_PORTS:
        return None
    peer = uid(port.peer_uid)
    return NvPortFact(
        end=end,
        port=whole(port.port_num),
        source=told.source,
        domain=port.domain,
        peer_uid=peer,
        peer_port=whole(port.peer_port_num, -1) if peer else -1,
        logical=nmxwords.logical(port.logical_state, port.contain_and_drain),
        physical=nmxwords.state(port.physical_state, nmxwords.PHYSICAL),
        rail=None if port.rail is None else whole(port.rail),
        plane=None if port.plane is None else whole(port.plane),
        cage=None if port.cage_num is None else whole(port.cage_num),
    )


def _unowned(capture: Capture, ports: list[_Told]) -> Iterator[Finding]:
    if ports:
        yield Finding(
            rule="fabric/nvlink-unplaced",
            verdict=Verdict.UNKNOWN,
            severity=Severity.INFO,
            subject=capture.file,
            summary=f"{len(ports)} NVLink ports are of no GPU and no switch that is listed here: they are not used",
            evidence=(Evidence(capture.file, ports[0].source.text, ports[0].source.line),),
            advice="Put nmx/v1/gpus, switches and ports into one file: `jq -s . gpus.json switches.json ports.json`",
        )


def _knows(head: str, file: str) -> bool:
    return any(f'"{key}"' in head for key in ("DomainUUID", "LocationInfo", "PeerPortDeviceUID", "ALIDList"))


READER = Reader(NAME, _knows, read)
