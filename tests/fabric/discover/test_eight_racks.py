"""The public eight-rack fabric: its real faults, each located and proved, and nothing else."""

import itertools
from pathlib import Path

import pytest

from rackyard.fabric.discover import Discovered, discover
from rackyard.fabric.expect import rails
from rackyard.fabric.readers.ibnetdiscover import READER
from rackyard.fabric.readers.reader import Capture
from rackyard.findings import Finding

pytestmark = pytest.mark.corpus

SHORT_LEAVES = {  # leaf: uplinks of 18, counted by hand with grep
    "A09-P1-IBLEAF-01-01": 17,
    "A09-P1-IBLEAF-01-02": 14,
    "A09-P1-IBLEAF-01-03": 16,
    "A09-P1-IBLEAF-02-03": 15,
    "A09-P1-IBLEAF-02-04": 16,
    "A09-P1-IBLEAF-04-02": 16,
    "A09-P1-IBLEAF-04-04": 16,
    "B09-P1-IBLEAF-01-05": 16,
    "B09-P1-IBLEAF-01-07": 16,
    "B09-P1-IBLEAF-01-08": 17,
    "B09-P1-IBLEAF-02-06": 16,
    "B09-P1-IBLEAF-03-07": 15,
}


@pytest.fixture(scope="module")
def found(corpus: Path) -> Discovered:
    file = corpus / "topology" / "ibnetdiscover" / "topograph-example.out"
    return discover([Capture(str(file), file.read_bytes())], [READER])


def test_it_is_eight_racks_of_trays_on_four_rails(found: Discovered) -> None:
    site = found.site
    assert len(site.racks) == 8
    assert site.rails() == (0, 1, 2, 3)
    assert (len(site.leaves), len(site.spines)) == (31, 9)
    assert all(len(site.nodes_in_rack(rack.name)) <= 18 for rack in site.racks)
    assert "B11-P1-CUFM-02" in found.rails.others  # a fabric manager, by its two HCAs on a port where no tray is


def test_one_tray_has_two_rails_crossed(found: Discovered) -> None:
    (one,) = rails.crossed_rails(found)
    assert "b08-p1-dgx-08-c01" in one.subject
    assert "HCA-5 (rail 2) is on B09-P1-IBLEAF-04-08 port 1 (rail 3)" in one.summary
    assert "HCA-6 (rail 3) is on B09-P1-IBLEAF-03-08 port 1 (rail 2)" in one.summary
    assert {line.line for line in one.evidence} >= {127, 171}


def test_one_rack_has_no_leaf_on_one_rail(found: Discovered) -> None:
    (one,) = rails.missing_leaves(found)
    assert one.subject == "rack a05-p1-dgx-01, rail 2"
    assert "HCA-5 is missing on all 18 trays" in one.summary
    # its trays are not reported one by one for what the rack does not have
    assert list(rails.missing_rails(found)) == []


def test_leaves_with_missing_uplinks(found: Discovered) -> None:
    short = {one.subject.removeprefix("leaf "): one for one in rails.uplinks(found)}
    assert {leaf: int(one.summary.split(" ", 1)[0]) for leaf, one in short.items()} == SHORT_LEAVES
    worst = short["A09-P1-IBLEAF-01-02"]
    assert "2 to A10-P1-IBSPINE-01, 2 to A10-P1-IBSPINE-04" in worst.summary
    assert worst.severity.value == "error"


def test_no_cable_leads_out_of_its_rack_and_both_ends_agree(found: Discovered) -> None:
    none: list[Finding] = []
    assert list(rails.foreign_leaves(found)) == none
    assert list(rails.one_sided(found)) == none


def test_crossed_ports_on_the_right_leaf_are_a_remark(found: Discovered) -> None:
    remarks = list(rails.port_order(found))
    assert {one.severity.value for one in remarks} == {"info"}
    assert {one.subject.rsplit(" ", 1)[1] for one in remarks} == {
        "a05-p1-dgx-01-c12",
        "a05-p1-dgx-01-c14",
        "b06-p1-dgx-06-c02",
        "b06-p1-dgx-06-c07",
        "b06-p1-dgx-06-c08",
        "unnamed-B09-P1-IBLEAF-01-06-port-4",
    }


def test_hcas_without_a_name_are_put_together_into_trays(found: Discovered) -> None:
    unnamed = [node for node in found.site.nodes if node.name.startswith("unnamed-")]
    assert all(len(node.nics) in (3, 4) for node in unnamed)
    # The HCAs of a tray carry neighbouring GUIDs: two of them in one ConnectX board are four apart.
    crossed = found.site.node("unnamed-A09-P1-IBLEAF-01-01-port-11")
    guids = sorted(int(nic.guid, 16) for nic in crossed.nics)
    assert any(two - one == 4 for one, two in itertools.pairwise(guids))
