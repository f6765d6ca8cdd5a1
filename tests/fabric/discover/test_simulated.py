"""Captures of a simulated site are discovered as that site, and each fault put into them is found alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from rackyard.fabric import Site, simulate
from rackyard.fabric.discover import Discovered, discover
from rackyard.fabric.expect import rails
from rackyard.fabric.model import Health, Node
from rackyard.fabric.readers import ibnetdiscover, smi_nvlink, smi_query, sysfs_table
from rackyard.fabric.readers.reader import Capture
from rackyard.fabric.simcaptures import captures
from rackyard.findings import Finding

READERS = [smi_query.READER, smi_nvlink.READER, sysfs_table.READER, ibnetdiscover.READER]
RULES = [
    rails.crossed_rails,
    rails.foreign_leaves,
    rails.missing_leaves,
    rails.missing_rails,
    rails.uplinks,
    rails.port_order,
    rails.one_sided,
    rails.nameless,
]


def seen(site: Site, drop: Callable[[str], bool] = lambda name: False) -> Discovered:
    return discover([Capture(name, data) for name, data in captures(site) if not drop(name)], READERS, site.name)


def found_in(discovered: Discovered) -> list[Finding]:
    return [finding for rule in RULES for finding in rule(discovered)]


def changed(site: Site, name: str, **values: object) -> Site:
    return replace(site, nodes=tuple(replace(n, **values) if n.name == name else n for n in site.nodes))  # type: ignore[arg-type]


def wired(node: Node, nic: int, leaf: str) -> Node:
    nics = tuple(replace(one, leaf=leaf) if one.index == nic else one for one in node.nics)
    return replace(node, nics=nics)


def test_what_was_simulated_is_what_is_found() -> None:
    site = simulate(racks=3, hgx=4)
    found = seen(site).site
    assert found.simulated
    assert [rack.name for rack in found.racks] == ["hgx", "r01", "r02", "r03"]
    for node in site.nodes:
        other = found.node(node.name)
        assert (other.kind, other.domain, other.health) == (node.kind, node.domain, node.health)
        assert [(g.index, g.kind, g.uuid, g.pci, g.numa, g.nvlinks, g.health) for g in other.gpus] == [
            (g.index, g.kind, g.uuid, g.pci, g.numa, g.nvlinks, g.health) for g in node.gpus
        ]
        assert [(n.name, n.rail, n.gbps, n.leaf, n.numa, n.pci) for n in other.nics] == [
            (n.name, n.rail, n.gbps, n.leaf, n.numa, n.pci) for n in sorted(node.nics, key=lambda n: n.index)
        ]
    assert {leaf.name: (leaf.rail, leaf.uplinks, leaf.spines) for leaf in found.leaves} == {
        leaf.name: (leaf.rail, leaf.uplinks, leaf.spines) for leaf in site.leaves
    }


def test_a_healthy_site_gives_no_finding() -> None:
    found = seen(simulate(racks=3, hgx=8))
    assert found.findings == ()
    assert found_in(found) == []


def test_blocks_and_the_core_above_them_are_found() -> None:
    site = simulate(racks=3, hgx=4, racks_per_block=2)
    found = seen(site)
    assert found.findings == ()
    assert found_in(found) == []
    assert {spine.name: spine.above for spine in found.site.spines} == {s.name: s.above for s in site.spines}
    assert {leaf.name: leaf.spines for leaf in found.site.leaves} == {leaf.name: leaf.spines for leaf in site.leaves}


def test_the_order_of_captures_does_not_matter() -> None:
    site = simulate(racks=2)
    parts = [Capture(name, data) for name, data in captures(site)]
    assert discover(parts, READERS).site == discover(parts[::-1], READERS).site


def faults() -> Iterator[tuple[str, Callable[[Site], Site], set[tuple[str, str]]]]:
    def swap(site: Site) -> Site:
        node = site.node("r01-t05")
        crossed = wired(wired(node, 1, node.nics[2].leaf), 2, node.nics[1].leaf)
        return changed(site, node.name, nics=crossed.nics)

    yield "two rails crossed", swap, {("fabric/rail-crossed", "rack r01, tray r01-t05")}

    def foreign(site: Site) -> Site:
        node = site.node("r02-t03")
        return changed(site, node.name, nics=wired(node, 0, "leaf-0-r01").nics)

    yield (
        "a cable into another rack's leaf",
        foreign,
        {
            ("fabric/leaf-foreign", "rack r02, tray r02-t03, NIC mlx5_0"),
        },
    )

    def out(site: Site) -> Site:
        node = site.node("r03-t18")
        nics = tuple(replace(nic, health=Health.DOWN) if nic.index == 3 else nic for nic in node.nics)
        return changed(site, node.name, nics=nics)

    yield "a cable out", out, {("fabric/rail-missing", "rack r03, tray r03-t18")}

    def leaf(site: Site) -> Site:
        short = tuple(replace(one, uplinks=11) if one.name == "leaf-2-r02" else one for one in site.leaves)
        return replace(site, leaves=short)

    yield "uplinks missing", leaf, {("fabric/uplink-missing", "leaf leaf-2-r02")}

    def gone(site: Site) -> Site:
        nodes = tuple(
            replace(node, nics=tuple(nic for nic in node.nics if nic.leaf != "leaf-1-r01")) for node in site.nodes
        )
        return replace(site, nodes=nodes, leaves=tuple(one for one in site.leaves if one.name != "leaf-1-r01"))

    yield "a leaf gone", gone, {("fabric/leaf-missing", "rack r01, rail 1")}


@pytest.mark.parametrize(("name", "break_it", "expected"), list(faults()))
def test_each_fault_is_found_alone(name: str, break_it: Callable[[Site], Site], expected: set[tuple[str, str]]) -> None:
    findings = found_in(seen(break_it(simulate(racks=4))))
    real = {(one.rule, one.subject) for one in findings if one.severity.value != "info"}
    assert real == expected
    assert all(one.evidence for one in findings)


def test_captures_that_contradict_one_another_are_both_shown() -> None:
    site = simulate(racks=1, trays=2)
    liar = changed(site, "r01-t02", gpus=tuple(replace(gpu, pci="0008:07:00.0") for gpu in site.node("r01-t02").gpus))
    both = [Capture(name, data) for name, data in captures(site)] + [
        Capture("later/" + name, data) for name, data in captures(liar) if "r01-t02" in name
    ]
    found = discover(both, READERS)
    contradictions = [one for one in found.findings if one.rule == "fabric/contradiction"]
    assert contradictions
    assert {one.subject.split(",")[0] for one in contradictions} == {"node r01-t02"}
    assert all(len(one.evidence) == 2 for one in contradictions)


def test_a_broken_capture_is_reported_and_the_others_are_read() -> None:
    site = simulate(racks=1, trays=3)
    parts = [Capture(name, data) for name, data in captures(site)]
    found = discover([*parts, Capture("notes.txt", b"remember the milk\n")], READERS)
    (one,) = found.findings
    assert (one.rule, one.verdict.value, one.subject) == ("fabric/unreadable", "UNKNOWN", "notes.txt:1")
    assert len(found.site.nodes) == 3
