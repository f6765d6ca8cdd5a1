"""lldpctl: both JSON forms, one or many interfaces, tell the same."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rackyard.errors import UsageError
from rackyard.fabric.facts import End, Facts
from rackyard.fabric.readers.lldp import READER, read
from rackyard.fabric.readers.reader import Capture

SWITCH = [{"type": "Bridge", "enabled": True}, {"type": "Router", "enabled": True}]
HOST = [{"type": "Bridge", "enabled": False}, {"type": "Station", "enabled": True}]


def terse(switch: str, port: dict[str, Any], able: Any = SWITCH) -> dict[str, Any]:
    chassis = {"id": {"type": "mac", "value": "aa:00:00:00:00:01"}, "descr": "Cumulus", "capability": able}
    return {"via": "LLDP", "rid": "1", "chassis": {switch: chassis} if switch else chassis, "port": port}


def wordy(name: str, switch: str, port: str) -> dict[str, Any]:
    return {
        "name": name,
        "via": "LLDP",
        "chassis": [{"id": [{"type": "mac", "value": "aa:00:00:00:00:01"}], "name": [{"value": switch}]}],
        "port": [{"id": [{"type": "ifname", "value": port}], "descr": [{"value": "to host"}]}],
    }


IFNAME = {"id": {"type": "ifname", "value": "swp1"}, "descr": "to host"}
MAC = {"id": {"type": "mac", "value": "aa:00:00:00:00:07"}, "descr": "Ethernet1/7"}
ONE = {"lldp": {"interface": {"eth0": terse("leaf-1", IFNAME)}}}
MANY = {"lldp": {"interface": [{"eth0": terse("leaf-1", IFNAME)}, {"eth1": terse("leaf-2", MAC)}]}}
ZERO = {"lldp": [{"interface": [wordy("eth0", "leaf-1", "swp1"), wordy("eth1", "leaf-2", "swp9")]}]}


def facts_of(what: Any, node: str = "tray-1") -> Facts:
    return read(Capture("lldp.json", json.dumps(what, indent=2).encode(), node))


@pytest.mark.parametrize(
    ("what", "heard"),
    [
        (ONE, [("eth0", "leaf-1", "swp1")]),
        (MANY, [("eth0", "leaf-1", "swp1"), ("eth1", "leaf-2", "Ethernet1/7")]),
        (ZERO, [("eth0", "leaf-1", "swp1"), ("eth1", "leaf-2", "swp9")]),
        ({"lldp": {"interface": {"eth0": terse("", IFNAME)}}}, [("eth0", "aa:00:00:00:00:01", "swp1")]),
        ({"lldp": {"interface": {"eth0": terse("tray-2", IFNAME, HOST)}}}, []),
        ({"lldp": {"interface": {"eth0": terse("leaf-1", IFNAME) | {"via": "unknown"}}}}, []),
        ({"lldp": {}}, []),
        ({"lldp": [{}]}, []),
    ],
)
def test_every_form_tells_the_same(what: Any, heard: list[tuple[str, str, str]]) -> None:
    facts = facts_of(what)
    assert [(nic.name, nic.leaf, nic.leaf_port) for nic in facts.nics] == heard
    assert [(c.a, c.b) for c in facts.cables] == [
        (End("hca", "tray-1", name, 1), End("switch", leaf, port, 0)) for name, leaf, port in heard
    ]


def test_lines_are_those_of_the_interfaces() -> None:
    lines = json.dumps(MANY, indent=2).split("\n")
    assert [lines[(nic.source.line or 0) - 1].strip() for nic in facts_of(MANY).nics] == ['"eth0": {', '"eth1": {']


def test_damage_is_told_with_line_and_column() -> None:
    with pytest.raises(UsageError) as error:
        read(Capture("lldp.json", b'{\n "lldp": {\n  "\xc3\xa4": x}}', "tray-1"))
    assert str(error.value.where) == "lldp.json:3:8"
    with pytest.raises(UsageError) as error:
        read(Capture("lldp.json", b'{"lldp": {"interface":\n', "tray-1"))
    assert str(error.value.where) == "lldp.json:2:1"
    for data in (b"[]", b"{}", b"[" * 100_000, b'{"lldp":' * 100_000):
        with pytest.raises(UsageError):
            read(Capture("lldp.json", data, "tray-1"))


def test_somebody_must_know_the_host() -> None:
    with pytest.raises(UsageError, match="which host"):
        facts_of(ONE, node="")


def test_it_knows_its_own() -> None:
    assert READER.knows(json.dumps(ZERO, indent=2), "x")
    assert not READER.knows('[{"links": [], "nodes": []}]', "x")


def test_fuzz(fuzz: Callable[..., None]) -> None:
    seeds = [json.dumps(what, indent=1).encode() for what in (ONE, MANY, ZERO)]
    fuzz(lambda data: read(Capture("fuzz", data, "tray-1")), seeds)
