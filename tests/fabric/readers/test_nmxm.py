"""NMX-M: compute nodes as hosts, ports joined with their GPUs and switches."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackyard.errors import UsageError
from rackyard.fabric.facts import Facts, NvEnd
from rackyard.fabric.model import Health
from rackyard.fabric.readers.nmxm import READER, read
from rackyard.fabric.readers.reader import Capture, head_of

DOMAIN = "11111111-2222-3333-4444-555555555555"


def at(slot: int, tray: int) -> dict[str, Any]:
    return {"ChassisID": 1, "ChassisSerialNumber": "SN1", "SlotID": slot, "TrayIndex": tray, "HostID": 1}


def entity(key: str, slot: int = 3, tray: int = 2, **more: Any) -> dict[str, Any]:
    return {"ID": key, "DomainUUID": DOMAIN, "LocationInfo": at(slot, tray)} | more


NODES = [
    entity("c1", Name="tray-1", Health="HEALTHY", GpuIDList=["g1"]),
    entity("c2", 4, 3, Name="tray-2", Health="UNHEALTHY"),
    entity("c3", 5, 4, Name="tray-3", Health="SOMETHING_NEW"),
    entity("c4", 6, 5, Name="", Health="HEALTHY"),
]
GPUS = [entity("g1", DeviceUID=255, DeviceID=1, ALIDList=[7], PortIDList=["p1", "p2"], Health="DEGRADED_BW")]
SWITCHES = [entity("s1", 20, 0, DeviceUID=2**63 + 5, DeviceID=2, PortIDList=["p3"], Health="MISSING_NVLINK")]
PORTS = [
    entity(
        "p1",
        Type="GPU",
        PortNum=1,
        PeerPortDeviceUID=2**63 + 5,
        PeerPortNum=9,
        PhysicalState="LINKUP",
        LogicalState="STATE_ACTIVE",
        Rail=0,
        Plane=3,
    ),
    entity(
        "p2",
        Type="GPU",
        PortNum=2,
        PeerPortDeviceUID=0,
        PeerPortNum=0,
        PhysicalState="POLLING",
        LogicalState="STATE_DOWN",
    ),
    entity("p3", 20, 0, Type="SWITCH_ACCESS", PortNum=9, PeerPortDeviceUID=255, PeerPortNum=1, CageNum=4),
    entity("p4", 20, 0, Type="SWITCH_ACCESS", PortNum=10),
]
ALL = [NODES, GPUS, SWITCHES, PORTS]


def facts_of(what: Any, file: str = "nmx.json") -> Facts:
    return read(Capture(file, json.dumps(what, indent=1).encode()))


def test_compute_nodes_are_hosts() -> None:
    hosts = facts_of(NODES).hosts
    assert [(h.node, h.chassis, h.slot, h.tray, h.host_id, h.block, h.health) for h in hosts] == [
        ("tray-1", "SN1", 3, 2, 1, DOMAIN, Health.HEALTHY),
        ("tray-2", "SN1", 4, 3, 1, DOMAIN, Health.DOWN),
        ("tray-3", "SN1", 5, 4, 1, DOMAIN, Health.UNKNOWN),
    ]
    assert hosts[1].source.line == json.dumps(NODES, indent=1)[: json.dumps(NODES, indent=1).index('"c2"')].count("\n")


def test_ports_are_joined_with_their_devices() -> None:
    facts = facts_of(ALL)
    gpu = NvEnd("gpu", f"{255:016x}", "SN1", 3, 2, 1, "tray-1", "degraded-bw")
    switch = NvEnd("switch", f"{2**63 + 5:016x}", "SN1", 20, 0, 2, "", "missing-nvlink")
    assert [(p.end, p.port, p.peer_uid, p.peer_port, p.logical, p.physical) for p in facts.nvports] == [
        (gpu, 1, switch.uid, 9, "active", "linkup"),
        (gpu, 2, "", -1, "down", "polling"),
        (switch, 9, gpu.uid, 1, None, None),
    ]
    assert [(p.rail, p.plane, p.cage, p.domain) for p in facts.nvports[:3:2]] == [
        (0, 3, None, DOMAIN),
        (None, None, 4, DOMAIN),
    ]
    assert [finding.rule for finding in facts.findings] == ["fabric/nvlink-unplaced"]


def test_keys_and_file_names_tell_what_is_listed() -> None:
    keyed = {"compute-nodes": NODES, "gpus": GPUS, "switches": SWITCHES, "ports": PORTS}
    assert facts_of(keyed).nvports == facts_of(keyed).nvports != []
    bare = [entity("x", Name="switch-tray-1", Health="HEALTHY")]
    assert facts_of(bare, "switch-nodes.json").hosts == [] and facts_of({"switch-nodes": bare}).hosts == []
    assert [host.node for host in facts_of(NODES[0]).hosts] == ["tray-1"]


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b'[\n {"ID": "c1",\n  "LocationInfo": {"SlotID": "x"}}]', "nmx.json:2"),
        (b'[\n {"ID": }]', "nmx.json:2:9"),
        (b"[]", "nmx.json:1"),
        (b"[[[[[[1]]]]]]", "nmx.json:1"),
        (b"7", "nmx.json:1"),
    ],
)
def test_damage_is_told_with_its_place(data: bytes, where: str) -> None:
    with pytest.raises(UsageError) as error:
        read(Capture("nmx.json", data))
    assert str(error.value.where) == where


def test_fuzz(fuzz: Callable[..., None]) -> None:
    seeds = [json.dumps(what).encode() for what in (NODES, {"gpus": GPUS, "ports": PORTS})]
    fuzz(lambda data: read(Capture("fuzz", data)), [*seeds, json.dumps([SWITCHES, PORTS], indent=1).encode()])


@pytest.mark.corpus
def test_the_public_compute_nodes_are_read(corpus: Path) -> None:
    path = corpus / "topology" / "netq" / "topograph-computeNodes.json"
    capture = Capture(path.name, path.read_bytes())
    assert READER.knows(head_of(capture), path.name)
    hosts = read(capture).hosts
    for host, node in zip(hosts, json.loads(path.read_text()), strict=True):
        place = node["LocationInfo"]
        assert (host.node, host.block, host.chassis) == (node["Name"], node["DomainUUID"], place["ChassisSerialNumber"])
        assert (host.slot, host.tray, host.host_id) == (place["SlotID"], place["TrayIndex"], place["HostID"])
        assert host.health is Health.HEALTHY
