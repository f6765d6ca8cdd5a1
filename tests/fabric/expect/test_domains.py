"""Racks and NVLink domains: layouts that are regular, and trays that stand out."""

from collections.abc import Callable
from typing import Any

from rackyard.fabric.expect import audit_facts
from rackyard.fabric.facts import Facts
from rackyard.findings import Finding, Verdict


def rule(make: Any, facts: Facts) -> list[Finding]:
    """What `fabric/rack-domain` says."""
    return [one for one in audit_facts(facts, make.site(facts)) if one.rule == "fabric/rack-domain"]


def move(change: Any, facts: Facts, pick: Callable[..., bool], uuid: str | None = None, clique: int = 1) -> None:
    """Put nodes into another domain, with their labels."""
    values = {"clique_id": clique} if uuid is None else {"cluster_uuid": uuid, "clique_id": clique}
    change(facts.gpus, lambda fact: pick(fact.node), **values)
    change(facts.hosts, lambda fact: pick(fact.node), labels=(), **values)


def test_one_domain_a_rack_passes_though_clique_ids_collide(make: Any) -> None:
    (finding,) = rule(make, make.racks())
    assert finding.verdict is Verdict.PASS and "3 NVLink domains" in finding.summary


def test_domains_over_two_racks_are_a_layout(make: Any, change: Any) -> None:
    facts = make.racks(4)
    for pair in (("r01", "r02"), ("r03", "r04")):
        move(change, facts, lambda node, pair=pair: node[:3] in pair, f"{pair[0]}-uuid")
    (finding,) = rule(make, facts)
    assert finding.verdict is Verdict.PASS
    assert "2 domains span several racks (r01+r02, r03+r04), as NVL36x2 does" in finding.summary


def test_every_rack_in_two_cliques_is_a_layout(make: Any, change: Any) -> None:
    facts = make.racks(3)
    move(change, facts, lambda node: node[-1] in "23", clique=2)
    (finding,) = rule(make, facts)
    assert finding.verdict is Verdict.PASS and "3 racks hold several domains each" in finding.summary


def test_a_rack_split_where_its_peers_are_whole(make: Any, change: Any) -> None:
    facts = make.racks(3)
    move(change, facts, lambda node: node in ("r02-t2", "r02-t3"), clique=2)
    (finding,) = rule(make, facts)
    assert finding.verdict is Verdict.FAIL and finding.subject == "rack r02"
    assert "2 of 3 racks are one domain" in finding.summary and len(finding.evidence) == 2


def test_one_split_rack_alone_is_not_judged(make: Any, change: Any) -> None:
    facts = make.racks(1)
    move(change, facts, lambda node: node in ("r01-t2", "r01-t3"), clique=2)
    (finding,) = rule(make, facts)
    assert finding.verdict is Verdict.UNKNOWN


def test_a_single_tray_stands_out(make: Any, change: Any) -> None:
    facts = make.racks(1)
    move(change, facts, lambda node: node == "r01-t2", clique=2)
    (finding,) = rule(make, facts)
    assert finding.verdict is Verdict.FAIL and finding.subject.endswith("node r01-t2")
    assert "clique 2 of the same cluster UUID" in finding.summary and "3 of 4 nodes" in finding.summary


def test_a_tray_in_the_domain_of_another_rack(make: Any, change: Any) -> None:
    facts = make.racks(2)
    move(change, facts, lambda node: node == "r01-t2", "00000002-0000-4000-8000-000000000001")
    (finding,) = rule(make, facts)
    assert finding.verdict is Verdict.FAIL and "the domain of rack r02" in finding.summary


def test_servers_alone_have_no_domains(make: Any) -> None:
    (finding,) = rule(make, make.servers())
    assert finding.verdict is Verdict.NOT_APPLICABLE


def stray(change: Any, facts: Facts, node: str, serial: str) -> None:
    """Give a tray the serial number of a chassis that nobody else has; its rack is called by it."""
    change(facts.gpus, lambda gpu: gpu.node == node, chassis=serial)
    change(facts.hosts, lambda host: host.node == node, chassis=serial, rack=serial)


def test_a_tray_of_another_chassis_in_the_domain_of_its_neighbours_is_one_finding(make: Any, change: Any) -> None:
    facts = make.racks(2)
    stray(change, facts, "r01-t2", "SN9")
    failed = [one for one in audit_facts(facts, make.site(facts)) if one.verdict is Verdict.FAIL]
    (finding,) = failed
    assert (finding.rule, finding.subject) == ("fabric/rack-domain", "rack SN9, tray 2, node r01-t2")
    assert "serial number SN9" in finding.summary and "3 nodes of rack r01" in finding.summary
    assert len(finding.evidence) == 2


def test_one_captured_tray_of_a_second_rack_is_a_layout(make: Any, change: Any) -> None:
    facts = make.racks(2)
    for part in (facts.hosts, facts.gpus, facts.nics, facts.pci, facts.cpus):
        part[:] = [fact for fact in part if not fact.node.startswith("r02") or fact.node == "r02-t2"]
    move(change, facts, lambda node: True, "one-uuid")
    (finding,) = rule(make, facts)
    assert finding.verdict is Verdict.PASS and "r01+r02" in finding.summary
