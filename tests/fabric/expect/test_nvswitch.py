"""The switch side of NVLink: dead links, ASICs and trays, connections against the expected ones, health."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rackyard.fabric.expect import audit_facts
from rackyard.fabric.facts import Facts
from rackyard.findings import Finding, Verdict


def failed(make: Any, facts: Facts) -> list[Finding]:
    return [one for one in audit_facts(facts, make.site(facts)) if one.verdict is Verdict.FAIL]


def down(change: Any, facts: Facts, pick: Callable[..., bool]) -> None:
    """Take links down at both ends."""
    change(facts.nvports, lambda p: pick(p.end.uid, p.peer_uid) or pick(p.peer_uid, p.end.uid), logical="STATE_DOWN")


def test_one_broken_link_is_told_at_the_gpu(make: Any, change: Any) -> None:
    facts = make.nvlink(2)
    down(change, facts, lambda a, b: (a, b) == ("g0-3", "s0-2"))
    (finding,) = failed(make, facts)
    assert finding.rule == "fabric/nvlink-ports"
    assert finding.subject == "chassis SN0, slot 1, tray 0, GPU 3"
    assert finding.summary == "3 NVLink ports are up; 15 of 16 GPUs have 4"


def test_a_dead_gpu_is_one_finding(make: Any, change: Any) -> None:
    facts = make.nvlink(2)
    down(change, facts, lambda a, b: a == "g1-3")
    (finding,) = failed(make, facts)
    assert "SN1" in finding.subject and finding.summary.startswith("0 NVLink ports")


def test_a_dead_asic_is_one_finding(make: Any, change: Any) -> None:
    facts = make.nvlink(2)
    down(change, facts, lambda a, b: a == "s1-3")
    (finding,) = failed(make, facts)
    assert finding.subject == "chassis SN1, slot 12, tray 1, NVSwitch ASIC 1"


def test_a_dark_switch_tray_is_one_finding(make: Any, change: Any) -> None:
    facts = make.nvlink(3)
    down(change, facts, lambda a, b: a in ("s1-2", "s1-3"))
    (finding,) = failed(make, facts)
    assert finding.subject == "chassis SN1, switch tray in slot 12"
    assert "50.0% of the rack's NVLink bandwidth" in finding.summary


def test_gpus_all_of_whose_links_are_down_are_not_well_for_being_alike(make: Any, change: Any) -> None:
    facts = make.nvlink(2)
    facts.nvports = [port for port in facts.nvports if port.end.kind == "gpu"]
    down(change, facts, lambda a, b: True)
    assert {(one.rule, one.summary) for one in failed(make, facts)} == {
        ("fabric/nvlink-ports", "all 32 NVLink ports of its 8 GPUs are down")
    }


def expected(facts: Facts, place: int, kind: str, **values: object) -> None:
    facts.nvports.append(
        msgspec.structs.replace(facts.nvports[place], expectation=kind, logical=None, physical=None, **values)
    )


def test_expected_connections_that_were_found_are_well(make: Any) -> None:
    facts = make.nvlink()
    for place in range(len(facts.nvports)):
        expected(facts, place, "expected")
    assert failed(make, facts) == []


def test_a_missing_connection(make: Any) -> None:
    facts = make.nvlink()
    for place in range(len(facts.nvports)):
        expected(facts, place, "expected")
    gone = facts.nvports[0]
    facts.nvports = [
        p
        for p in facts.nvports
        if p.expectation == "expected" or {p.end.uid, p.peer_uid} != {gone.end.uid, gone.peer_uid}
    ]
    findings = [one for one in failed(make, facts) if one.rule == "fabric/nvlink-connections"]
    assert [one.summary for one in findings] == ["NVLink connection is expected and not found"]
    assert findings[0].subject.endswith("GPU 0, port 0")


@pytest.mark.parametrize(("kind", "words"), [("expected-inactive", "inactive"), ("unexpected", "not expected")])
def test_other_connections(make: Any, kind: str, words: str) -> None:
    facts = make.nvlink()
    expected(facts, 0, kind, port=77)
    (finding,) = failed(make, facts)
    assert finding.rule == "fabric/nvlink-connections" and words in finding.summary


@pytest.mark.parametrize("word", ["NO_NVLINK", "DEGRADED_BW", "DEGRADED", "MISSING_NVLINK"])
def test_health(make: Any, change: Any, word: str) -> None:
    facts = make.nvlink()
    ill = msgspec.structs.replace(facts.nvports[0].end, health=word)
    change(facts.nvports, lambda port: port.end.uid == ill.uid, end=ill)
    (finding,) = failed(make, facts)
    assert finding.rule == "fabric/nvlink-health" and word in finding.summary


def test_contain_and_drain(make: Any, change: Any) -> None:
    facts = make.nvlink()
    change(facts.nvports, 0, physical="LINKUP contain-and-drain")
    assert any("contain and drain" in one.summary for one in failed(make, facts))
