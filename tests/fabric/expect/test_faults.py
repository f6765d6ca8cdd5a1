"""Healthy facts give no finding; each fault, put in by itself, gives exactly its own."""

from collections.abc import Callable
from typing import Any

import pytest

from rackyard.fabric.expect import audit_facts
from rackyard.fabric.facts import Facts, HostFact
from rackyard.findings import Finding, Severity, Verdict

Wrong = Callable[[Facts], list[Finding]]
ZERO = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def wrong(make: Any) -> Callable[[Facts], list[Finding]]:
    """What the audit does not pass, without the rules that had nothing to look at."""

    def look(facts: Facts) -> list[Finding]:
        return [one for one in audit_facts(facts, make.site(facts)) if one.verdict is Verdict.FAIL]

    return look


@pytest.fixture
def whole(make: Any) -> Facts:
    """GB300 racks beside HGX servers, cables, and a fabric manager's view."""
    facts = make.racks()
    for other in (make.servers(), make.cables(), make.nvlink(2)):
        facts.add(other)
    return facts


def test_a_healthy_site_passes_every_rule_once(make: Any, whole: Facts) -> None:
    findings = audit_facts(whole, make.site(whole))
    assert {one.verdict for one in findings} == {Verdict.PASS}
    assert len(findings) == len({one.rule for one in findings})


def on(node: str, **values: object) -> Callable[[object], bool]:
    """A test for `change`: facts of a node with these values."""
    return lambda fact: fact.node == node and all(getattr(fact, name) == value for name, value in values.items())


# what breaks: (rule, its subject's end, words of the summary, list of facts, test, new values)
FAULTS = {
    "dead gpu": (
        "gpu-links",
        "node r02-t1, GPU 2",
        "no NVLinks; 47 of 48 GB300 GPUs have 18",
        "gpus",
        on("r02-t1", index=2),
        {"links": 0},
    ),
    "one link": ("gpu-links", "GPU 0", "has 17 NVLinks", "gpus", on("r01-t0", index=0), {"links": 17}),
    "hgx link": ("gpu-links", "hgx2, GPU 5", "31 of 32 H200 GPUs have 18", "gpus", on("hgx2", index=5), {"links": 17}),
    "dead tray": ("gpu-links", "r03-t3, all 4 GPUs", "4 GPUs have no NVLinks", "gpus", on("r03-t3"), {"links": 0}),
    "state": ("state", "r01-t1, GPU 1", "in-progress", "gpus", on("r01-t1", index=1), {"fabric_state": "in-progress"}),
    "not supported": (
        "state",
        "r01-t1, GPU 1",
        "47 of 48",
        "gpus",
        on("r01-t1", index=1),
        {"fabric_state": "not-supported"},
    ),
    "status": (
        "state",
        "GPU 1",
        "Insufficient Resources",
        "gpus",
        on("r01-t1", index=1),
        {"fabric_status": "Insufficient Resources"},
    ),
    "bandwidth": ("health-mask", "GPU 3", "degraded bandwidth", "gpus", on("r01-t1", index=3), {"health_mask": 0x1A9}),
    "recovery": ("health-mask", "GPU 3", "route recovery", "gpus", on("r01-t1", index=3), {"health_mask": 0x1A6}),
    "route": ("health-mask", "GPU 3", "route unhealthy", "gpus", on("r01-t1", index=3), {"health_mask": 0x19A}),
    "timeout": ("health-mask", "GPU 3", "access timeout", "gpus", on("r01-t1", index=3), {"health_mask": 0x16A}),
    "config": ("health-mask", "GPU 3", "insufficient nvlinks", "gpus", on("r01-t1", index=3), {"health_mask": 0x5AA}),
    "partition": ("health-mask", "GPU 3", "partition", "gpus", on("r01-t1", index=3), {"health_mask": 0x21AA}),
    "limited": (
        "health-mask",
        "GPU 3",
        "Limited Capacity",
        "gpus",
        on("r01-t1", index=3),
        {"health_summary": "Limited Capacity"},
    ),
    "zero uuid": ("cluster-uuid", "GPU 3", "zero", "gpus", on("r01-t1", index=3), {"cluster_uuid": ZERO}),
    "mixed clique": (
        "cluster-uuid",
        "GPU 3",
        "cliques: 3 in 00000001",
        "gpus",
        on("r01-t1", index=3),
        {"clique_id": 2},
    ),
    "mixed uuid": ("cluster-uuid", "GPU 0", "cluster UUIDs", "gpus", on("r01-t1", index=0), {"cluster_uuid": "7" * 8}),
    "port down": (
        "port-state",
        "mlx5_2 port 1",
        "DOWN/Polling; 11 of 12",
        "nics",
        on("r02-t0", name="mlx5_2"),
        {"state": "DOWN", "phys_state": "Polling", "gbps": 10.0},
    ),
    "port off": (
        "port-state",
        "mlx5_2 port 1",
        "DOWN/Disabled",
        "nics",
        on("hgx1", name="mlx5_2"),
        {"state": "DOWN", "phys_state": "Disabled"},
    ),
    "no sm": ("port-state", "mlx5_2 port 1", "subnet manager", "nics", on("r02-t0", name="mlx5_2"), {"state": "INIT"}),
    "ethernet": (
        "link-layer",
        "mlx5_0 port 1",
        "Ethernet; 11 of 12",
        "nics",
        on("r02-t0", name="mlx5_0"),
        {"link_layer": "Ethernet"},
    ),
    "slow": ("port-rate", "mlx5_0 port 1", "400 Gb/s; 11 of 12", "nics", on("r02-t0", name="mlx5_0"), {"gbps": 400.0}),
    "slow hgx": ("port-rate", "mlx5_0 port 1", "200 Gb/s; 3 of 4", "nics", on("hgx3", name="mlx5_0"), {"gbps": 200.0}),
    "numa": ("nic-place", "r02-t0, mlx5_3", "NUMA node 0; 11 of 12", "nics", on("r02-t0", name="mlx5_3"), {"numa": 0}),
    "pci domain": (
        "nic-place",
        "r02-t0, mlx5_3",
        "PCI domain 0016",
        "nics",
        on("r02-t0", name="mlx5_3"),
        {"pci": "0016:03:00.0"},
    ),
    "gpu width": ("pci-link", "r02-t0, GPU 3", "x8 of x16", "gpus", on("r02-t0", index=3), {"pci_width": 8}),
    "gpu generation": (
        "pci-link",
        "r02-t0, GPU 3",
        "at most Gen3; 47 of 48",
        "gpus",
        on("r02-t0", index=3),
        {"pci_gen_max": 3},
    ),
    "nic width": ("pci-link", "r02-t0, mlx5_1", "x8 of x16", "pci", on("r02-t0", bdf="0002:03:00.0"), {"width": 8}),
    "nic speed": (
        "pci-link",
        "r02-t0, mlx5_1",
        "Gen4 of Gen5",
        "pci",
        on("r02-t0", bdf="0002:03:00.0"),
        {"speed": "16.0 GT/s PCIe"},
    ),
    "nic card": (
        "pci-link",
        "r02-t0, mlx5_1",
        "x8; 11 of 12",
        "pci",
        on("r02-t0", bdf="0002:03:00.0"),
        {"width": 8, "width_max": 8},
    ),
    "guid": (
        "guids",
        "r01-t0 0000:03:00.0 and r01-t1 0000:03:00.0",
        "HCA GUID",
        "nics",
        on("r01-t1", name="mlx5_0"),
        {"guid": "0001000000000000"},
    ),
    "gpu uuid": (
        "guids",
        "r01-t1 GPU 1 and r02-t0 GPU 0",
        "GPU UUID",
        "gpus",
        on("r01-t1", index=1),
        {"uuid": "GPU-02-00-0"},
    ),
    "nic firmware": (
        "nic-firmware",
        "MT_0000001",
        "r01-t1 mlx5_0",
        "nics",
        on("r01-t1", name="mlx5_0"),
        {"firmware": "40.0"},
    ),
    "vbios": ("vbios", "GB300", "r01-t1 GPU 1", "gpus", on("r01-t1", index=1), {"vbios": "97.00"}),
    "driver": ("driver", "GB300", "r01-t1 differ from the 11 with 580.1", "hosts", on("r01-t1"), {"driver": "570.1"}),
    "kernel": ("kernel", "GB300", "r01-t1", "hosts", on("r01-t1"), {"kernel": "6.5"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_is_one_finding(wrong: Wrong, change: Any, whole: Facts, name: str) -> None:
    rule, subject, words, part, pick, values = FAULTS[name]
    # Labels would add that they hide the fault; they are tested by themselves.
    change(whole.hosts, lambda host: True, labels=())
    change(getattr(whole, part), pick, **values)
    (finding,) = wrong(whole)
    assert finding.rule == f"fabric/{rule}"
    assert finding.subject.endswith(subject)
    assert words in finding.summary
    assert finding.evidence and all(line.line for line in finding.evidence)
    assert finding.advice


def test_a_dead_gpu_says_what_it_costs(wrong: Wrong, change: Any, make: Any) -> None:
    facts = make.racks()
    change(facts.hosts, lambda host: True, labels=())
    change(facts.gpus, on("r01-t1", index=1), links=0)
    (finding,) = wrong(facts)
    assert finding.severity is Severity.ERROR
    assert "684.9 to 51.6 GB/s" in finding.advice
    assert finding.subject == "rack r01, tray 1, node r01-t1, GPU 1"


def test_a_domain_that_lost_an_asic_is_one_finding(wrong: Wrong, change: Any, make: Any) -> None:
    facts = make.racks()
    change(facts.gpus, lambda gpu: gpu.node.startswith("r02"), links=17)
    (finding,) = wrong(facts)
    assert finding.rule == "fabric/gpu-links" and "NVLink domain" in finding.subject
    assert finding.summary.startswith("16 GPUs have 17 NVLinks; 32 of 48")


def test_a_site_whose_gpus_all_lost_links_is_measured_by_the_published_figure(
    wrong: Wrong, change: Any, make: Any
) -> None:
    facts = make.racks(1)
    change(facts.gpus, lambda gpu: True, links=17)
    (finding,) = wrong(facts)
    assert "published figure" in finding.summary


def test_the_lower_of_two_link_counts_stands(wrong: Wrong, change: Any, make: Any) -> None:
    """NVML still answers on a tray whose GPU has no links in NCCL's dump."""
    facts = make.racks()
    change(facts.hosts, lambda host: True, labels=())
    other = make.racks()
    change(other.gpus, on("r01-t1", index=1), links=0)
    facts.gpus += [fact for fact in other.gpus if fact.node == "r01-t1"]
    (finding,) = wrong(facts)
    assert finding.subject.endswith("GPU 1")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"links": 0}, "GPU 1 has no NVLinks"),
        ({"fabric_state": "in-progress"}, "fabric state is in-progress"),
        ({"health_mask": 0x5AA}, "insufficient nvlinks"),
        ({"cluster_uuid": ZERO}, "in no NVLink domain"),
    ],
)
def test_a_clique_label_hides_a_dead_gpu(
    wrong: Wrong, change: Any, make: Any, values: dict[str, object], says: str
) -> None:
    facts = make.racks()
    change(facts.gpus, on("r01-t1", index=1), **values)
    labels = [one for one in wrong(facts) if one.rule == "fabric/clique-label"]
    assert len(labels) == 1 and says in labels[0].summary
    assert labels[0].subject.endswith("r01-t1")


def test_a_tray_with_three_gpus_is_missing_one_and_its_label_hides_it(wrong: Wrong, make: Any) -> None:
    facts = make.racks()
    facts.gpus = [gpu for gpu in facts.gpus if not (gpu.node == "r01-t1" and gpu.index == 2)]
    count, label = sorted(wrong(facts), key=lambda one: one.rule, reverse=True)
    assert count.subject == "rack r01, tray 1, node r01-t1, GPU 2" and count.summary.startswith("3 GPUs; 11 of 12")
    assert "it has 3 of 4 GPUs" in label.summary


def test_an_old_label_is_told(wrong: Wrong, change: Any, make: Any) -> None:
    facts = make.racks()
    change(facts.hosts, on("r01-t1"), labels=(("nvidia.com/gpu.clique", "x.9"),), cluster_uuid="x", clique_id=9)
    (finding,) = wrong(facts)
    assert finding.rule == "fabric/clique-label" and "its GPUs are in" in finding.summary


def test_an_absent_hca_is_named_by_its_address(wrong: Wrong, change: Any, make: Any) -> None:
    facts = make.racks()
    facts.nics = [nic for nic in facts.nics if not (nic.node == "r02-t2" and nic.name == "mlx5_1")]
    # The driver numbers what is left: mlx5_2 and 3 become 1 and 2.
    change(facts.nics, on("r02-t2", name="mlx5_2"), name="mlx5_1")
    change(facts.nics, on("r02-t2", name="mlx5_3"), name="mlx5_2")
    (finding,) = wrong(facts)
    assert finding.rule == "fabric/hca-absent"
    assert "HCA mlx5_1 at 0002:03:00.0 is absent" in finding.summary


def test_an_absent_hca_without_addresses_is_named_by_its_name(wrong: Wrong, change: Any, make: Any) -> None:
    facts = make.racks()
    facts.pci.clear()
    change(facts.nics, lambda nic: True, pci=None)
    facts.nics = [nic for nic in facts.nics if not (nic.node == "r02-t2" and nic.name == "mlx5_1")]
    (finding,) = wrong(facts)
    assert finding.subject.endswith("r02-t2, HCA mlx5_1")


def test_an_hca_that_no_peer_has(wrong: Wrong, change: Any, make: Any) -> None:
    facts = make.racks()
    first = next(nic for nic in facts.nics if nic.node == "r02-t2" and nic.name == "mlx5_3")
    facts.nics.append(first)
    # It is found third, so mlx5_2 and what follows move up by one.
    change(facts.nics, len(facts.nics) - 1, name="mlx5_4", guid="f" * 16)
    change(facts.nics, on("r02-t2", name="mlx5_3"), pci="0011:03:00.0", guid="e" * 16)
    change(facts.nics, on("r02-t2", name="mlx5_4"), pci="0012:03:00.0")
    finding, place = sorted(wrong(facts), key=lambda one: one.rule)
    assert place.rule == "fabric/nic-place"  # NCCL_IB_HCA by number now means another card
    assert (finding.rule, finding.severity) == ("fabric/hca-extra", Severity.WARNING)
    assert "HCA mlx5_3 at 0011:03:00.0 is one more" in finding.summary and finding.subject.endswith("HCA mlx5_3")
    change(facts.nics, on("r02-t2", name="mlx5_3"), hca_type="MT41692")
    assert [one.rule for one in wrong(facts)] == ["fabric/nic-place"]


def test_one_gpu_whose_links_nobody_told_is_named(make: Any, change: Any) -> None:
    facts = make.racks()
    change(facts.gpus, on("r02-t1", index=2), links=None)
    (finding,) = [one for one in audit_facts(facts, make.site(facts)) if one.rule == "fabric/gpu-links"]
    assert finding.verdict is Verdict.UNKNOWN and len(finding.evidence) == 2
    assert finding.subject == "rack r02, tray 1, node r02-t1, GPU 2"


@pytest.mark.parametrize("values", [{"fabric_state": "in-progress"}, {"cluster_uuid": ZERO}, {"health_mask": 0x1A9}])
def test_what_a_whole_rack_or_node_has_is_one_finding(
    wrong: Wrong, change: Any, make: Any, values: dict[str, object]
) -> None:
    facts = make.racks()
    change(facts.hosts, lambda host: True, labels=())
    change(facts.gpus, lambda gpu: gpu.node.startswith("r02"), **values)
    (finding,) = wrong(facts)
    assert finding.subject == "rack r02, all 16 GPUs"
    assert {line.origin for line in finding.evidence} >= {f"r02-t{tray}.txt" for tray in range(4)}
    node = make.racks()
    change(node.hosts, lambda host: True, labels=())
    change(node.gpus, on("r02-t1"), **values)
    (finding,) = wrong(node)
    assert finding.subject == "rack r02, tray 1, node r02-t1, all 4 GPUs"


def test_switches_that_go_by_one_name(wrong: Wrong, change: Any, make: Any) -> None:
    facts = make.cables()
    change(facts.switches, lambda switch: switch.name == "leaf1", name="leaf0")
    (finding,) = wrong(facts)
    assert (finding.rule, finding.subject, finding.severity) == (
        "fabric/switch-names",
        "switch leaf0",
        Severity.WARNING,
    )
    for place, switch in enumerate(facts.switches):
        change(facts.switches, place, name=f"leaf0-{switch.guid}")
    (finding,) = wrong(facts)
    assert finding.subject == "switch leaf0" and len(finding.evidence) == 2


def test_a_missing_tray(wrong: Wrong, make: Any) -> None:
    facts = make.racks()
    for part in (facts.hosts, facts.gpus, facts.nics, facts.pci, facts.cpus):
        part[:] = [fact for fact in part if fact.node != "r02-t1"]
    (finding,) = wrong(facts)
    assert finding.rule == "fabric/trays" and finding.subject == "rack r02, tray 1"


def test_two_trays_in_one_slot(wrong: Wrong, change: Any, make: Any) -> None:
    facts = make.racks()
    for part in (facts.hosts, facts.gpus):
        change(part, on("r01-t1"), slot=1)
    (finding,) = wrong(facts)
    assert finding.rule == "fabric/places" and finding.subject == "chassis SN1, slot 1"


def test_the_line_that_told_the_place_proves_it(wrong: Wrong, change: Any, make: Any) -> None:
    """A host's first fact may be its kernel; chassis and slot are of its GPUs."""
    facts = make.racks()
    change(facts.hosts, lambda host: True, chassis=None, slot=None, tray=None)
    change(facts.gpus, on("r01-t1"), slot=1)
    (finding,) = wrong(facts)
    assert finding.rule == "fabric/places"
    assert [line.text for line in finding.evidence] == ["r01-t0 line 10", "r01-t1 line 10"]


def test_a_node_under_two_racks(wrong: Wrong, make: Any) -> None:
    facts = make.racks()
    facts.hosts.append(HostFact(node="r01-t1", source=facts.hosts[0].source, rack="r07"))
    (finding,) = wrong(facts)
    assert finding.rule == "fabric/places" and "r01 and r07" in finding.summary


def test_one_machine_under_two_names(wrong: Wrong, change: Any, make: Any) -> None:
    facts = make.racks()
    more = make.racks(1, 1)
    for part in (more.hosts, more.gpus, more.nics, more.pci, more.cpus):
        change(part, lambda fact: True, node="r01-t0.example.org")
    facts.add(more)
    findings = wrong(facts)
    assert [one.rule for one in findings] == ["fabric/guids"]
    assert "one machine captured under several names" in findings[0].summary


def test_a_port_waiting_everywhere_is_told_once(wrong: Wrong, change: Any, make: Any) -> None:
    facts = make.racks()
    change(facts.nics, lambda nic: nic.name == "mlx5_1", state="INIT")
    (finding,) = wrong(facts)
    assert finding.summary.startswith("12 ports on 12 nodes are in INIT")


def test_mixed_versions_without_a_majority_name_nobody(wrong: Wrong, change: Any, make: Any) -> None:
    facts = make.racks(2)
    change(facts.hosts, lambda host: host.rack == "r02", kernel="6.9")
    (finding,) = wrong(facts)
    assert "4 × 6.8.0, 4 × 6.9; no version prevails" in finding.summary


def test_cables(wrong: Wrong, change: Any, make: Any) -> None:
    facts = make.cables()
    narrow = make.cables()
    change(narrow.cables, 0, width=1, gbps=100.0)
    change(narrow.cables, 1, width=1, gbps=100.0)
    slow = make.cables()
    change(slow.cables, lambda cable: cable.source.line in (108, 109), speed="HDR", speed_max=None, gbps=200.0)
    assert wrong(facts) == []
    (first,) = wrong(narrow)
    assert first.rule == "fabric/cable-rate" and "1 of 4 lanes" in first.summary
    (second,) = wrong(slow)
    assert "200 Gb/s; 3 of 4 cables of this switch have 400" in second.summary
