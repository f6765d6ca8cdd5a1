"""NMX-C: ports of GPUs and switches, connections expected and found, in every spelling of protobuf's JSON."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from rackyard.errors import UsageError
from rackyard.fabric.facts import Facts, NvEnd
from rackyard.fabric.readers.nmxc import READER, read
from rackyard.fabric.readers.reader import Capture

HEADER = {"domain_uuid": "dom-1", "return_code": "NMX_ST_SUCCESS"}


def loc(slot: int, tray: int) -> dict[str, Any]:
    place = {"chassis_id": "1", "slot_id": str(slot), "host_id": "1"}
    return {"chassis_serial_number": "SN1", "slot_index": str(tray), "location": place}


def port(number: int, peer: int, peer_port: int, **more: Any) -> dict[str, Any]:
    return {
        "port_num": str(number),
        "peer_port_device_uid": str(peer),
        "peer_port_num": str(peer_port),
        "physical_state": "NMX_PORT_PHYS_STATE_LINKUP",
        "logical_state": "NMX_LOGICAL_LINK_STATE_ACTIVE",
        **more,
    }


GPU = {
    "loc": loc(3, 2),
    "device_uid": "255",
    "device_index": 1,
    "device_health": "NMX_GPU_HEALTH_DEGRADED",
    "port_topo_info": [
        port(1, 512, 9, port_type="NMX_PORT_TYPE_GPU", rail=1),
        port(2, 0, 0, physical_state=2, logical_state=1, plane=5, contain_and_drain=True),
    ],
}
SWITCH = {
    "loc": loc(20, 0),
    "device_uid": "512",
    "device_index": 2,
    "device_health": 1,
    "port_topo_info": [port(9, 255, 1, cage_num=4), port(80, 7, 1, port_type="NMX_PORT_TYPE_FNM")],
}
TOPOLOGY = {"server_header": HEADER, "device_topo_info": [{"gpu_topo_info": GPU}, {"switch_topo_info": SWITCH}]}


def point(slot: int, index: int, number: int) -> dict[str, Any]:
    return {"loc": {"chassis_id": 1, "slot_id": slot, "host_id": 1}, "switch_or_gpu_index": index, "port_num": number}


def answer(*conns: dict[str, Any]) -> dict[str, Any]:
    return {"server_header": HEADER, "conn_info_list": {"conn_info_list": list(conns)}}


LOST = {"end_point_a": point(3, 1, 2), "end_point_b": point(20, 2, 10), "conn_type": 2, "conn_state": 2}
FOUND = {"end_point_a": point(3, 1, 1), "end_point_b": point(20, 2, 9), "conn_type": 2, "conn_state": 1}
GPU_END = NvEnd("gpu", f"{255:016x}", "SN1", 3, 2, 1, "", "degraded")
SWITCH_END = NvEnd("switch", f"{512:016x}", "SN1", 20, 0, 2, "", "healthy")


def camel(what: Any) -> Any:
    if isinstance(what, dict):
        return {re.sub("_([a-z])", lambda m: m[1].upper(), key): camel(value) for key, value in what.items()}
    return [camel(part) for part in what] if isinstance(what, list) else what


def facts_of(what: Any, file: str = "nmxc.json") -> Facts:
    return read(Capture(file, json.dumps(what, indent=1).encode()))


def test_ports_of_gpus_and_switches() -> None:
    facts = facts_of(TOPOLOGY)
    assert [(p.end, p.port, p.peer_uid, p.peer_port, p.logical, p.physical) for p in facts.nvports] == [
        (GPU_END, 1, SWITCH_END.uid, 9, "active", "linkup"),
        (GPU_END, 2, "", -1, "contain-and-drain", "polling"),
        (SWITCH_END, 9, GPU_END.uid, 1, "active", "linkup"),
    ]
    # Somebody's plane is told, so a plane that is left out is the first one.
    assert [(p.rail, p.plane, p.cage) for p in facts.nvports] == [(1, 0, None), (0, 5, None), (0, 0, 4)]
    assert {p.domain for p in facts.nvports} == {"dom-1"}
    assert facts.findings == []


def test_planes_that_nobody_tells_are_not_made_up() -> None:
    device = GPU | {"port_topo_info": [port(1, 512, 9)]}
    assert facts_of({"device_topo_info": [{"gpu_topo_info": device}]}).nvports[0].plane is None


def test_both_spellings_are_the_same() -> None:
    for what in (TOPOLOGY, {"topology": TOPOLOGY, "expected_inactive": answer(LOST)}, [TOPOLOGY, answer(LOST, FOUND)]):
        one, other = facts_of(what), facts_of(camel(what))
        assert one.nvports and [p.end for p in one.nvports] == [p.end for p in other.nvports]
        assert [(p.port, p.source.line) for p in one.nvports] == [(p.port, p.source.line) for p in other.nvports]


def test_connections_join_the_topology() -> None:
    facts = facts_of([answer(LOST, FOUND), TOPOLOGY])
    assert len(facts.nvports) == 5  # the connection that was found is told by the topology already
    assert [(p.end, p.port, p.peer_uid, p.peer_port, p.expectation) for p in facts.nvports[3:]] == [
        (GPU_END, 2, SWITCH_END.uid, 10, "expected-inactive"),
        (SWITCH_END, 10, GPU_END.uid, 2, "expected-inactive"),
    ]


def test_every_domain_has_a_chassis_one() -> None:
    far = {
        "server_header": HEADER | {"domain_uuid": "dom-2"},
        "device_topo_info": [{"gpu_topo_info": GPU | {"device_uid": 9}}],
    }
    assert facts_of([TOPOLOGY, far, answer(LOST)]).nvports[-2].end == GPU_END


def test_connections_alone_are_known_by_place() -> None:
    trunk = LOST | {"conn_type": "NMX_NVLINK_CONN_TYPE_SWITCH"}
    ports = facts_of(answer(LOST, trunk)).nvports
    assert [(p.end.kind, p.end.uid, p.peer_uid) for p in ports] == [
        ("gpu", "dom-1 gpu 1/3/1/1", "dom-1 switch 1/20/1/2"),
        ("switch", "dom-1 switch 1/20/1/2", "dom-1 gpu 1/3/1/1"),
        ("switch", "dom-1 switch 1/3/1/1", "dom-1 switch 1/20/1/2"),
        ("switch", "dom-1 switch 1/20/1/2", "dom-1 switch 1/3/1/1"),
    ]


def test_connections_that_would_count_devices_twice_are_told() -> None:
    facts = facts_of({"expected": answer(FOUND, LOST)})
    assert facts.nvports == [] and facts.findings[0].summary.startswith("2 connections")


DEVICES = {
    "server_header": HEADER,
    "device_topo_info": [
        {"gpu_topo_info": GPU | {"port_topo_info": []}},
        {"switch_topo_info": SWITCH | {"port_topo_info": []}},
    ],
}


@pytest.mark.parametrize(
    ("file", "key", "what", "expectation"),
    [
        ("a/conn_expected.json", "", answer(FOUND), "expected"),
        ("conn-EXPECTED_INACTIVE.json", "", answer(FOUND), "expected-inactive"),
        ("unexpected.json", "", answer(FOUND), "unexpected"),
        ("x.json", "NMX_NVLINK_CONN_ATTR_EXPECTED_ACTIVE", answer(FOUND), "expected"),
        ("expected.json", "discovered", answer(LOST), "discovered"),
        ("x.json", "", answer(FOUND), "discovered"),
        ("x.json", "", answer(LOST), "expected-inactive"),
        ("x.json", "", {"server_header": HEADER, "unexpected_conn_list": {"conn_info_list": [FOUND]}}, "unexpected"),
    ],
)
def test_what_was_asked_for_is_told_by_key_or_file(file: str, key: str, what: Any, expectation: str) -> None:
    ports = facts_of({"topology": DEVICES, key: what}, file).nvports
    assert [(p.end, p.expectation) for p in ports] == [(GPU_END, expectation), (SWITCH_END, expectation)]


def test_a_controller_that_is_not_ready_is_told() -> None:
    facts = facts_of({"server_header": {"return_code": 23}})
    assert facts.nvports == [] and facts.findings[0].rule == "fabric/nvlink-manager"


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b'{"device_topo_info": [\n {"gpu_topo_info": {"device_uid": []}}]}', "nmxc.json:2"),
        (b'{"device_topo_info": [\n {"gpu_topo_info": {"device_uid": }}]}', "nmxc.json:2:35"),
        (b'{"device_topo_info": [\n\n {"gpu_topo_info": {}}]}', "nmxc.json:3"),
        (b'{"device_topo_info": [', "nmxc.json:1:23"),
        (b"{}", "nmxc.json:1"),
        (b"[1]", "nmxc.json:1"),
    ],
)
def test_damage_is_told_with_its_place(data: bytes, where: str) -> None:
    with pytest.raises(UsageError) as error:
        read(Capture("nmxc.json", data))
    assert str(error.value.where) == where


def test_it_knows_its_own() -> None:
    assert READER.knows(json.dumps(TOPOLOGY), "x") and READER.knows(json.dumps(camel(answer(LOST))), "x")
    assert not READER.knows('[{"ID": "c1", "DomainUUID": ""}]', "x")


def test_fuzz(fuzz: Callable[..., None]) -> None:
    seeds = [json.dumps(what).encode() for what in (TOPOLOGY, camel([TOPOLOGY, answer(LOST, FOUND)]))]
    fuzz(
        lambda data: read(Capture("fuzz", data)), [*seeds, json.dumps({"unexpected": answer(LOST)}, indent=1).encode()]
    )
