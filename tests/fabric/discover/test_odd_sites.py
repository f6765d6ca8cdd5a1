"""Sites that are not as one expects: few servers, hosts nobody captured, parts that disagree with the rest."""

import re
from collections.abc import Callable

import pytest

from rackyard.fabric import Health, Site, simulate
from rackyard.fabric.discover import Discovered, discover
from rackyard.fabric.expect import audit
from rackyard.fabric.readers import READERS
from rackyard.fabric.readers.bundle import unpack
from rackyard.fabric.readers.reader import Capture
from rackyard.fabric.simcaptures import captures, kube_nodes
from rackyard.findings import Verdict


def pieces(site: Site) -> list[Capture]:
    """The captures of a site, tarballs taken apart, and the cluster's nodes."""
    found = []
    for name, data in captures(site):
        capture = Capture(name, data)
        found += unpack(capture) if name.endswith(".tar") else [capture]
    return [*found, Capture("nodes.json", kube_nodes(site).encode())]


def edited(parts: list[Capture], where: str, change: Callable[[str], str]) -> list[Capture]:
    """The captures with the text of those whose name contains `where` changed."""
    return [
        Capture(part.file, change(part.data.decode()).encode(), part.node) if where in part.file else part
        for part in parts
    ]


def seen(parts: list[Capture]) -> Discovered:
    return discover(parts, READERS)


def errors(found: Discovered) -> set[tuple[str, str]]:
    return {(one.rule, one.subject) for one in audit(found) if one.verdict is Verdict.FAIL}


@pytest.mark.parametrize("servers", [1, 2, 3, 4, 6, 9])
def test_a_leaf_with_few_servers_is_still_a_leaf(servers: int) -> None:
    site = simulate(racks=1, hgx=servers)
    found = seen(pieces(site)).site
    assert {leaf.name for leaf in found.leaves} == {leaf.name for leaf in site.leaves}
    assert len(found.spines) == len(site.spines)
    assert all(nic.leaf for node in found.nodes for nic in node.nics)


def test_a_leaf_that_is_gone_is_missed_although_only_one_other_rack_has_one() -> None:
    def drop(text: str) -> str:
        blocks = [block for block in text.split("\n\n") if '"leaf-2-r02"' not in block]
        return "\n\n".join(re.sub(r'^\[.*"leaf-2-r02".*\n?', "", block, flags=re.M) for block in blocks)

    found = seen(edited(pieces(simulate(racks=2)), "ibnetdiscover", drop))
    assert ("fabric/leaf-missing", "rack r02, rail 2") in errors(found)


def test_racks_of_other_machines_are_not_compared() -> None:
    found = seen(pieces(simulate(racks=1, hgx=12)))
    assert errors(found) == set()


def test_a_tray_nobody_captured_stands_in_its_rack() -> None:
    site = simulate(racks=2)
    found = seen([part for part in pieces(site) if "r01-t12" not in part.file])
    assert {node.rack for node in found.site.nodes if node.name.startswith("r01")} == {"r01"}
    assert found.site.node("r01-t12").health is Health.UNKNOWN


def test_one_wrong_serial_number_does_not_rename_the_rack() -> None:
    parts = pieces(simulate(racks=2))
    serial = re.search(r", (\d{13}),", next(p.data.decode() for p in parts if "r01-t09/query" in p.file))
    assert serial is not None
    found = seen(edited(parts, "r01-t09/query", lambda text: text.replace(serial[1], "1820000000001")))
    racks = {node.name: node.rack for node in found.site.nodes}
    assert racks["r01-t08"] == "r01" and racks["r01-t09"] == "1820000000001"


def test_gpus_that_share_nothing_are_believed_over_a_label() -> None:
    site = simulate(racks=2)
    uuid = site.nodes[6].domain.cluster_uuid
    zero = "00000000-0000-0000-0000-000000000000"
    found = seen(edited(pieces(site), "r01-t07/query", lambda text: text.replace(uuid, zero)))
    assert found.site.node("r01-t07").domain.cluster_uuid == "node:r01-t07"
    assert any(one.rule == "fabric/contradiction" and "r01-t07" in one.subject for one in found.findings)


def test_a_gpu_in_another_clique_is_not_healthy() -> None:
    site = simulate(racks=2)
    uuid = site.nodes[6].domain.cluster_uuid

    def move(text: str) -> str:
        lines = text.split("\n")
        lines[2] = lines[2].replace(f"1, {uuid}", f"2, {uuid}")
        return "\n".join(lines)

    found = seen(edited(pieces(site), "r01-t07/query", move)).site.node("r01-t07")
    assert [gpu.health for gpu in found.gpus] == [
        Health.HEALTHY, Health.DEGRADED, Health.HEALTHY, Health.HEALTHY,
    ]  # fmt: skip
    assert found.health is Health.DEGRADED


def test_a_guid_that_two_hcas_claim_moves_no_cable() -> None:
    site = simulate(racks=2)
    parts = pieces(site)
    guids = re.findall(
        r"\t((?:[0-9a-f]{4}:){3}[0-9a-f]{4})\t", next(p for p in parts if "r01-t02/sysfs" in p.file).data.decode()
    )
    found = seen(edited(parts, "r01-t02/sysfs", lambda text: text.replace(guids[1], guids[0])))
    assert [nic.leaf for nic in found.site.node("r01-t02").nics] == [f"leaf-{rail}-r01" for rail in range(4)]
    assert {rule for rule, _ in errors(found)} == {"fabric/guids"}


def test_an_hca_that_the_host_does_not_have_is_not_healthy() -> None:
    found = seen(
        edited(
            pieces(simulate(racks=2)),
            "r01-t04/sysfs",
            lambda text: "\n".join(line for line in text.split("\n") if not line.startswith("ib\tmlx5_2")),
        )
    )
    assert [nic.health for nic in found.site.node("r01-t04").nics][2] is Health.UNKNOWN


def test_hosts_of_two_dns_domains_stay_two_hosts() -> None:
    site = simulate(racks=1, trays=2)
    parts = pieces(site)
    both = [
        Capture(f"{where}/{part.file}", part.data, f"{part.node}.{where}.example")
        for where in ("east", "west")
        for part in parts
        if part.node
    ]
    assert {node.name for node in seen(both).site.nodes} == {
        f"r01-t0{tray}.{where}.example" for tray in (1, 2) for where in ("east", "west")
    }
    one = [Capture(part.file, part.data, f"{part.node}.east.example") for part in parts if part.node]
    short = [part for part in parts if not part.node]
    assert {node.name for node in seen([*one, *short]).site.nodes} == {"r01-t01", "r01-t02"}
