"""The picture of a site: a well-formed SVG and a page that carries everything with it."""

from dataclasses import replace
from xml.etree import ElementTree

from rackyard.fabric import Health, simulate
from rackyard.findings import Evidence, Finding, Severity, Verdict
from rackyard.report.topology import page, rail_table, svg

SVG = "{http://www.w3.org/2000/svg}"


def test_every_part_is_drawn_with_its_health() -> None:
    site = simulate(racks=2, hgx=2).with_health(nodes={"r01-t05": Health.DOWN}).with_cordon({"r02-t01": "fan <3>"})
    root = ElementTree.fromstring(svg(site))
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert sum(title.startswith("GPU ") for title in titles) == site.gpus()
    assert sum("switch tray" in title for title in titles) == 18
    assert "r01-t05: slot 5, down" in titles
    assert "r02-t01: slot 1, healthy, cordoned: fan <3>" in titles
    assert "(simulated)" in root.attrib["aria-label"]


def test_a_rack_is_to_have_leaves_for_its_own_rails_only() -> None:
    site = simulate(racks=1, hgx=1)
    site = replace(site, leaves=tuple(leaf for leaf in site.leaves if leaf.name != "leaf-2-r01"))
    rails, rows = rail_table(site)
    assert rails == tuple(range(8))
    cells = dict(rows)["r01"]
    assert cells[2] == ("no leaf", "bad")
    assert cells[5] == ("", "")
    assert cells[0] == ("leaf-0-r01: 18/18 NICs up, 18 uplinks", "")


def test_the_page_fetches_nothing_and_escapes_what_it_was_told() -> None:
    site = replace(simulate(racks=1, trays=2), name="<lab>")
    finding = Finding(
        "fabric/x", Verdict.FAIL, Severity.ERROR, "r01", "<b>bad</b>", (Evidence("f", "line & text", 3),), "mend it"
    )
    text = page(site, (finding,))
    assert "&lt;lab&gt;" in text and "&lt;b&gt;bad" in text and "line &amp; text" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "Not audited" in page(site)
