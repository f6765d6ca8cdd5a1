"""Two sites compared, and the audit against a design."""

from dataclasses import replace
from typing import Any

import pytest

from rackyard.fabric import Health, Site, simulate
from rackyard.fabric.expect import audit_facts, diff
from rackyard.fabric.facts import Facts
from rackyard.fabric.model import DomainKey, Node
from rackyard.findings import Verdict


@pytest.fixture(scope="module")
def design() -> Site:
    return simulate(racks=2, trays=4, hgx=2)


def changed(site: Site, name: str, **values: object) -> Site:
    """The site with one node altered."""
    return replace(site, nodes=tuple(replace(node, **values) if node.name == name else node for node in site.nodes))


def test_the_same_site_passes(design: Site) -> None:
    (finding,) = diff(design, design)
    assert finding.verdict is Verdict.PASS and "8 nodes" not in finding.summary


def test_a_missing_rack_and_an_extra_one(design: Site) -> None:
    other = simulate(racks=3, trays=4, hgx=2)
    (missing,) = [
        one for one in diff(design, other) if one.subject.startswith("rack r03") and "leaf" not in one.subject
    ]
    assert missing.summary.startswith("the rack was not found; it has 4 nodes")
    extra = diff(other, design)
    assert "rack r03" in {one.subject for one in extra}
    assert any(one.summary.startswith("4 nodes are not in the design") for one in extra)


def test_a_missing_node(design: Site) -> None:
    found = replace(design, nodes=tuple(node for node in design.nodes if node.name != "r01-t02"))
    (finding,) = diff(found, design)
    assert finding.subject.endswith("node r01-t02") and finding.summary == "the node was not found"


@pytest.mark.parametrize(
    ("part", "values", "subject", "words"),
    [
        ("gpus", {"nvlinks": 0}, "GPU 1", "0 of 18 NVLinks"),
        ("gpus", {"health": Health.DEGRADED}, "GPU 1", "the GPU is degraded"),
        ("gpus", {"kind": "GB200"}, "GPU 1", "by design a GB300"),
        ("nics", {"leaf": "leaf-2-r01"}, "NIC mlx5_1", "ends on leaf leaf-2-r01, by design on leaf-1-r01"),
        ("nics", {"rail": 3, "leaf": ""}, "NIC mlx5_1", "rail 3, by design on rail 1"),
        ("nics", {"health": Health.DOWN}, "NIC mlx5_1", "the NIC is down"),
        ("nics", {"gbps": 400}, "NIC mlx5_1", "400 Gb/s, by design 800"),
        ("nics", {"numa": 1}, "NIC mlx5_1", "NUMA node 1"),
    ],
)
def test_parts(design: Site, part: str, values: dict[str, object], subject: str, words: str) -> None:
    node = design.node("r01-t02")
    parts = tuple(replace(one, **values) if one.index == 1 else one for one in getattr(node, part))
    (finding,) = diff(changed(design, "r01-t02", **{part: parts}), design)
    assert finding.verdict is Verdict.FAIL
    assert finding.subject == f"rack r01, node r01-t02, {subject}"
    assert words in finding.summary
    assert len(finding.evidence) == 2


def test_a_gpu_and_a_nic_that_are_gone(design: Site) -> None:
    node = design.node("r01-t02")
    found = changed(design, "r01-t02", gpus=node.gpus[:3], nics=node.nics[:3])
    assert [one.summary for one in diff(found, design)] == ["the GPU was not found", "the NIC was not found"]


def test_a_tray_in_another_slot(design: Site) -> None:
    (finding,) = diff(changed(design, "r01-t02", slot=9), design)
    assert finding.summary == "the node is in slot 9, by design in 2"


def test_what_was_not_captured_is_unknown(design: Site) -> None:
    found = changed(design, "r01-t02", gpus=(), nics=())
    assert {one.verdict for one in diff(found, design)} == {Verdict.UNKNOWN}


def test_leaves_and_uplinks(design: Site) -> None:
    gone = replace(design, leaves=design.leaves[1:])
    assert [one.summary for one in diff(gone, design)] == ["the leaf was not found"]
    fewer = replace(design, leaves=(replace(design.leaves[0], uplinks=14), *design.leaves[1:]))
    (finding,) = diff(fewer, design)
    assert finding.summary.startswith("14 of 18 uplinks")


def test_a_stored_site_is_audited_without_captures(design: Site) -> None:
    findings = audit_facts(Facts(), design)
    assert Verdict.FAIL not in {one.verdict for one in findings}
    assert "fabric/gpu-links" in {one.rule for one in findings if one.verdict is Verdict.PASS}
    node = design.node("r02-t01")
    dead = changed(design, "r02-t01", gpus=(replace(node.gpus[0], nvlinks=0), *node.gpus[1:]))
    failed = [one for one in audit_facts(Facts(), dead) if one.verdict is Verdict.FAIL]
    assert [one.rule for one in failed] == ["fabric/gpu-links"]


def test_the_design_is_the_expectation_where_there_is_one(make: Any, change: Any) -> None:
    facts = make.racks(2)
    change(facts.gpus, lambda gpu: True, links=17)
    site = make.site(facts)
    nodes = tuple(
        replace(node, gpus=tuple(replace(gpu, nvlinks=17) for gpu in simulate(1, 1).nodes[0].gpus), nics=())
        for node in site.nodes
    )
    design = replace(site, nodes=nodes)
    links = [one for one in audit_facts(facts, site, design) if one.rule == "fabric/gpu-links"]
    assert [one.verdict for one in links] == [Verdict.PASS]
    change(facts.gpus, 3, links=16)
    (finding,) = [one for one in audit_facts(facts, site, design) if one.rule == "fabric/gpu-links"]
    assert finding.summary == "has 16 NVLinks; the design has 17"


def test_what_nobody_looked_at_is_not_as_designed() -> None:
    design = simulate(racks=1, trays=2)
    node = design.nodes[1]
    dull = replace(node, gpus=tuple(replace(gpu, health=Health.UNKNOWN, nvlinks=-1) for gpu in node.gpus))
    (finding,) = diff(replace(design, nodes=(design.nodes[0], dull)), design)
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.summary == "no capture tells the health of 4 GPUs: r01-t02"


def regrouped(site: Site, key: Any) -> Site:
    """The site with other domain keys: `key` makes one of each node."""
    return replace(site, nodes=tuple(replace(node, domain=key(node)) for node in site.nodes))


def own(node: Node) -> DomainKey:
    return DomainKey(f"node:{node.name}", 0)


def test_domain_keys_may_be_made_up(design: Site) -> None:
    other = regrouped(design, lambda node: node.domain if node.domain.is_own else DomainKey(f"rack:{node.rack}", 7))
    assert [one.verdict for one in diff(other, design)] == [Verdict.PASS]


def test_a_node_out_of_its_domain(design: Site) -> None:
    there = design.node("r02-t01").domain
    moved = changed(design, "r01-t02", domain=there)
    (finding,) = diff(moved, design)
    assert finding.subject == "rack r01, node r01-t02" and len(finding.evidence) == 2
    assert "where rack r02 is; 3 of 4 nodes" in finding.summary
    (finding,) = diff(changed(design, "r01-t02", domain=own(design.node("r01-t02"))), design)
    assert finding.summary.startswith("is in no NVLink domain; 3 of 4 nodes")


def test_a_domain_that_is_split_or_gone_is_one_finding(design: Site) -> None:
    half = regrouped(design, lambda node: DomainKey("x", 9) if node.name in ("r01-t01", "r01-t02") else node.domain)
    (finding,) = diff(half, design)
    assert "4 nodes that share an NVLink domain by design are in several: 2 × " in finding.summary
    gone = regrouped(design, lambda node: own(node) if node.rack == "r01" else node.domain)
    (finding,) = diff(gone, design)
    assert finding.summary.startswith("none of 4 nodes is in an NVLink domain") and "r01-t04" in finding.subject


def test_two_domains_that_are_one(design: Site) -> None:
    one = regrouped(design, lambda node: node.domain if node.domain.is_own else DomainKey("x", 1))
    (finding,) = diff(one, design)
    assert finding.summary == "8 nodes are in one NVLink domain, x.1; by design they are 2"


def test_domains_that_nobody_told_are_unknown(design: Site) -> None:
    (finding,) = diff(regrouped(design, own), design)
    assert finding.verdict is Verdict.UNKNOWN and "no capture tells a domain" in finding.summary


def test_a_nic_that_the_design_lacks(design: Site) -> None:
    node = design.node("r01-t02")
    more = (*node.nics, replace(node.nics[0], index=4, name="mlx5_4", pci="0013:03:00.0", rail=-1, leaf=""))
    (finding,) = diff(changed(design, "r01-t02", nics=more), design)
    assert finding.subject == "rack r01, node r01-t02, NIC mlx5_4" and finding.summary == "the NIC is not in the design"
    renamed = tuple(replace(nic, name=f"ibp{nic.index}") for nic in more)
    (finding,) = diff(changed(design, "r01-t02", nics=(*renamed[:4], replace(renamed[4], rail=4))), design)
    assert finding.summary == "5 NICs; the design has 4, under other names"
