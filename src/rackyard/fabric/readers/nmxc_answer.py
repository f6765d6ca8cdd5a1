"""The answers of the NVLink controller (NMX-C) as they stand in its JSON, before they become facts.

The messages are those of nmx_c.proto (NVIDIA infra-controller-core, crates/rpc/proto), with the fields that are used.
Protobuf's JSON writes camelCase, tools that keep the names of the .proto snake_case; both are read.
"""

from collections.abc import Iterator

import msgspec

from rackyard.fabric.readers.jsontext import decode, json_bytes
from rackyard.fabric.readers.nmxwords import Number
from rackyard.fabric.readers.reader import Capture

_ANSWER_KEYS = ("deviceTopoInfo", "connInfoList", "unexpectedConnList", "serverHeader")


class Place(msgspec.Struct, rename="camel", frozen=True):
    chassis_id: Number = 0
    slot_id: Number = 0
    host_id: Number = 0


class Seating(msgspec.Struct, rename="camel", frozen=True):
    chassis_serial_number: str = ""
    slot_index: Number = 0
    location: Place = Place()


class Port(msgspec.Struct, rename="camel", frozen=True):
    port_type: Number | None = None
    port_num: Number = 0
    peer_port_device_uid: Number | None = None
    peer_port_num: Number = 0
    physical_state: Number | None = None
    logical_state: Number | None = None
    cage_num: Number | None = None
    rail: Number | None = None
    plane: Number | None = None
    contain_and_drain: bool = False


class Device(msgspec.Struct, rename="camel", frozen=True):
    loc: Seating | None = None
    device_uid: Number | None = None
    device_index: Number = 0
    device_health: Number | None = None
    port_topo_info: list[Port] = []


class Either(msgspec.Struct, rename="camel", frozen=True):
    gpu_topo_info: Device | None = None
    switch_topo_info: Device | None = None


class EndPoint(msgspec.Struct, rename="camel", frozen=True):
    loc: Place = Place()
    switch_or_gpu_index: Number = 0
    cage_num: Number | None = None
    port_num: Number = 0


class Conn(msgspec.Struct, rename="camel", frozen=True):
    end_point_a: EndPoint = EndPoint()
    end_point_b: EndPoint = EndPoint()
    conn_type: Number | None = None
    conn_state: Number | None = None


class Conns(msgspec.Struct, rename="camel", frozen=True):
    conn_info_list: list[msgspec.Raw] = []


class Header(msgspec.Struct, rename="camel", frozen=True):
    domain_uuid: str = ""
    return_code: Number | None = None


class Answer(msgspec.Struct, rename="camel", frozen=True):
    server_header: Header = Header()
    device_topo_info: list[msgspec.Raw] = []
    conn_info_list: Conns = Conns()
    unexpected_conn_list: Conns = Conns()


_SHAPES: tuple[type[msgspec.Struct], ...] = (
    Place,
    Seating,
    Port,
    Device,
    Either,
    EndPoint,
    Conn,
    Conns,
    Header,
    Answer,
)
_SPELLINGS = {
    # As many blanks follow the shorter key as it lost underscores: every byte behind it stays in its place.
    f'"{snake}"'.encode(): f'"{camel}"'.ljust(len(snake) + 2).encode()
    for shape in _SHAPES
    for snake, camel in zip(shape.__struct_fields__, shape.__struct_encode_fields__, strict=True)
    if snake != camel
}


def answer_bytes(capture: Capture) -> bytes:
    """The capture's JSON with the keys that are used in camelCase, every byte in its place."""
    data = json_bytes(capture)
    for snake, camel in _SPELLINGS.items():
        data = data.replace(snake, camel)
    return data


def answers(capture: Capture, data: bytes) -> Iterator[tuple[str, msgspec.Raw]]:
    """Each answer with the key it stands under: one alone, a list of them, or an object of them."""
    if data.lstrip()[:1] == b"[":
        for raw in decode(capture, data, list[msgspec.Raw]):
            yield "", raw
        return
    top = decode(capture, data, dict[str, msgspec.Raw])
    if any(key in top for key in _ANSWER_KEYS):
        yield "", msgspec.Raw(data)
    else:
        yield from top.items()
