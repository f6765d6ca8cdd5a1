"""What is compared with what: unlike things never, ties are nobody's fault, the order of reading never matters."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackyard.fabric.expect import audit_facts
from rackyard.fabric.facts import Facts, Source
from rackyard.findings import Finding, Verdict


def verdicts(make: Any, facts: Facts) -> dict[str, list[Finding]]:
    """Findings by rule, without those that pass, and without what cables and a fabric manager would tell."""
    found: dict[str, list[Finding]] = {}
    for one in audit_facts(facts, make.site(facts)):
        if one.verdict in (Verdict.FAIL, Verdict.UNKNOWN) and not one.rule.startswith(
            ("fabric/cable", "fabric/nvlink")
        ):
            found.setdefault(one.rule, []).append(one)
    return found


def failed(make: Any, facts: Facts) -> list[str]:
    return [one.rule for one in audit_facts(facts, make.site(facts)) if one.verdict is Verdict.FAIL]


def test_products_are_not_compared(make: Any, change: Any) -> None:
    facts = make.racks(2, 4, "NVIDIA GB300")
    facts.add(
        make.racks(2, 4, "NVIDIA GB200", first=5, gbps=400.0, hca_type="MT4129", board_id="MT_2", firmware="28.1")
    )
    change(facts.gpus, lambda gpu: "GB200" in gpu.product, vbios="97.00", pci_gen_max=5)
    change(facts.hosts, lambda host: host.rack in ("r05", "r06"), driver="570.1")
    facts.add(make.servers(3))
    assert failed(make, facts) == []


def test_a_rack_with_other_hcas_is_another_kind(make: Any, change: Any) -> None:
    facts = make.racks(3)
    other = make.racks(1, 4, first=8, gbps=400.0, hca_type="MT4129", board_id="MT_2", firmware="28.1")
    change(other.nics, lambda nic: True, numa=1, link_layer="Ethernet")
    other.nics = [nic for nic in other.nics if nic.name in ("mlx5_0", "mlx5_2")]
    facts.add(other)
    assert failed(make, facts) == []


def test_a_rack_with_other_rates_and_no_types_is_another_kind(make: Any) -> None:
    facts = make.racks(2, hca_type=None)
    facts.add(make.racks(1, 4, first=8, hca_type=None, gbps=400.0))
    assert failed(make, facts) == []


def test_a_whole_rack_without_an_hca_is_not_judged(make: Any) -> None:
    facts = make.racks(4)
    facts.nics = [nic for nic in facts.nics if not (nic.node.startswith("r02") and nic.name == "mlx5_3")]
    found = verdicts(make, facts)
    (finding,) = found.pop("fabric/hca-absent")
    assert finding.verdict is Verdict.UNKNOWN and finding.subject == "rack r02"
    assert "lack HCA mlx5_3" in finding.summary
    assert not found


def test_a_slow_rack_of_the_same_type_is_told(make: Any, change: Any) -> None:
    facts = make.racks(4)
    change(facts.nics, lambda nic: nic.node.startswith("r02"), gbps=400.0)
    assert set(failed(make, facts)) == {"fabric/port-rate"}


@pytest.mark.parametrize(
    ("rule", "part", "values"),
    [
        ("gpu-links", "gpus", {"links": 17}),
        ("state", "gpus", {"fabric_state": "not-supported"}),
        ("cluster-uuid", "gpus", {"cluster_uuid": "7" * 32}),
        ("port-rate", "nics", {"gbps": 200.0}),
        ("port-state", "nics", {"state": "DOWN"}),
        ("link-layer", "nics", {"link_layer": "Ethernet"}),
        ("nic-place", "nics", {"numa": 7}),
    ],
)
def test_ties_are_unknown(make: Any, change: Any, rule: str, part: str, values: dict[str, object]) -> None:
    facts = make.servers(2)
    change(getattr(facts, part), lambda fact: fact.node == "hgx2", **values)
    found = verdicts(make, facts)
    assert {one.verdict for one in found[f"fabric/{rule}"]} == {Verdict.UNKNOWN}
    assert not [one for own in found.values() for one in own if one.verdict is Verdict.FAIL]


def test_two_nodes_go_by_the_board(make: Any, change: Any) -> None:
    facts = make.servers(2)
    change(facts.nics, lambda nic: nic.node == "hgx2" and nic.name == "mlx5_3", gbps=200.0)
    (finding,) = verdicts(make, facts)["fabric/port-rate"]
    assert finding.verdict is Verdict.FAIL and "15 of 16" in finding.summary


def test_ports_unused_everywhere_are_no_fault(make: Any, change: Any) -> None:
    facts = make.racks()
    change(facts.nics, lambda nic: nic.name == "mlx5_3", state="DOWN", phys_state="Disabled", board_id="MT_9")
    assert failed(make, facts) == []


def test_what_is_not_said_is_unknown(make: Any, change: Any) -> None:
    facts = make.racks()
    change(
        facts.gpus,
        lambda gpu: gpu.node == "r01-t0",
        links=None,
        fabric_state=None,
        health_mask=None,
        health_summary=None,
    )
    found = verdicts(make, facts)
    assert set(found) == {"fabric/gpu-links", "fabric/state", "fabric/health-mask"}
    assert all(one.verdict is Verdict.UNKNOWN and "4" in one.summary for own in found.values() for one in own)


def test_nothing_read_is_never_well(make: Any) -> None:
    found = audit_facts(Facts(), make.site(make.racks(1, 1)))
    assert Verdict.FAIL not in {one.verdict for one in found}
    assert "fabric/port-state" in {one.rule for one in found if one.verdict is Verdict.UNKNOWN}


def test_pci_links_below_their_maximum_everywhere_are_how_the_machine_is(make: Any, change: Any) -> None:
    facts = make.racks()
    change(facts.gpus, lambda gpu: True, pci_width=1)
    assert failed(make, facts) == []


def test_a_zero_mask_is_not_healthy(make: Any, change: Any) -> None:
    facts = make.racks()
    change(facts.gpus, lambda gpu: gpu.node == "r01-t0", health_mask=0, health_summary=None)
    (finding,) = verdicts(make, facts)["fabric/health-mask"]
    assert finding.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("mask", [0x1AA, 0xAA, 0x11AA])
def test_healthy_masks(make: Any, change: Any, mask: int) -> None:
    facts = make.racks()
    change(facts.gpus, lambda gpu: True, health_mask=mask)
    assert failed(make, facts) == []


def test_dump_nodes_are_compared_among_themselves(make: Any, change: Any) -> None:
    """A fused NCCL dump names hosts by a hash, gives no product, and holds a job's GPUs only."""
    facts = make.racks()
    dump = Facts(gpus=make.racks(1, 2).gpus)
    for place, gpu in enumerate(dump.gpus):
        line = Source("nccl-topology", "topo.xml", place + 1, "<gpu/>")
        node = "host-1a" if gpu.node == "r01-t0" else "host-2b"
        change(
            dump.gpus,
            place,
            node=node,
            source=line,
            product=None,
            cluster_uuid=None,
            clique_id=None,
            fabric_state=None,
            health_mask=None,
            health_summary=None,
            chassis=None,
            slot=None,
            tray=None,
            vbios=None,
        )
    dump.gpus = dump.gpus[:7]
    facts.add(dump)
    assert failed(make, facts) == []
    change(facts.gpus, lambda gpu: gpu.node == "host-2b" and gpu.index == 1, links=0)
    (finding,) = [one for one in audit_facts(facts, make.site(facts)) if one.verdict is Verdict.FAIL]
    assert finding.subject == "node host-2b, GPU 1" and "6 of 7" in finding.summary


@given(seed=st.integers(0, 2**32), faults=st.lists(st.integers(0, 10_000), max_size=6))
def test_the_order_of_facts_does_not_matter(make: Any, change: Any, seed: int, faults: list[int]) -> None:
    draw = random.Random(seed)
    facts = make.racks(2, 3)
    facts.add(make.servers(2))
    facts.add(make.cables())
    facts.add(make.nvlink(2))
    facts.gpus += make.racks(1, 2).gpus
    for fault in faults:
        change(facts.gpus, fault % len(facts.gpus), links=fault % 19, clique_id=fault % 2, vbios=str(fault % 3))
        change(
            facts.nics,
            fault % len(facts.nics),
            state="DOWN",
            numa=fault % 2,
            gbps=float(fault % 3 * 200),
            guid="2" * 16,
        )
        change(facts.cables, fault % len(facts.cables), width=1, gbps=100.0)
        change(facts.nvports, fault % len(facts.nvports), logical="STATE_DOWN")
        change(facts.hosts, fault % len(facts.hosts), rack="r09", kernel=str(fault % 3))
    site = make.site(facts)
    first = audit_facts(facts, site)
    for part in (
        facts.hosts,
        facts.gpus,
        facts.nics,
        facts.pci,
        facts.cables,
        facts.nvports,
        facts.switches,
        facts.cpus,
    ):
        draw.shuffle(part)
    assert audit_facts(facts, site) == first


def test_a_node_of_an_unnamed_product_may_be_another_model(make: Any, change: Any) -> None:
    facts = make.servers(3)
    change(facts.gpus, lambda gpu: True, product=None, vbios=None)
    change(facts.gpus, lambda gpu: gpu.node == "hgx2", links=12)
    (finding,) = verdicts(make, facts)["fabric/gpu-links"]
    assert finding.verdict is Verdict.UNKNOWN and finding.subject == "hgx2"
    change(facts.gpus, lambda gpu: gpu.node == "hgx2", links=0)
    assert failed(make, facts) == ["fabric/gpu-links"]


def test_a_lone_node_has_no_peers(make: Any) -> None:
    found = verdicts(make, make.servers(1))
    assert {"fabric/gpu-count", "fabric/hca-absent", "fabric/nic-place"} <= set(found)
    assert {one.verdict for own in found.values() for one in own} == {Verdict.UNKNOWN}
