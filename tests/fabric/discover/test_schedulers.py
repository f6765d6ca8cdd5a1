"""Sites of which only a scheduler told: what each form carries comes back, and a second export says the same."""

from collections.abc import Callable

import pytest

from rackyard.fabric import Site, simulate
from rackyard.fabric.discover import discover
from rackyard.fabric.readers import READERS
from rackyard.fabric.readers.reader import Capture
from rackyard.fabric.readers.site_json import load as read_json
from rackyard.fabric.simcaptures import captures, kube_nodes
from rackyard.fabric.writers import site_json, slurm_block, slurm_tree, slurm_yaml, topograph


def read(text: str, name: str) -> Site:
    return discover([Capture("export", text.encode())], READERS, name).site


def groups(site: Site) -> set[frozenset[str]]:
    return {frozenset(node.name for node in site.nodes_in_rack(rack.name)) for rack in site.racks}


@pytest.mark.parametrize(
    "write",
    [slurm_tree.write, slurm_block.write, slurm_yaml.write, topograph.write],
    ids=lambda write: write.__module__,
)
def test_export_read_export(write: Callable[[Site], str]) -> None:
    site = simulate(racks=5, trays=17, hgx=4)
    found = read(write(site), site.name)
    assert groups(found) == groups(site)
    text = write(found)
    again = read(text, site.name)
    assert (again.racks, again.nodes, again.leaves, again.spines) == (
        found.racks, found.nodes, found.leaves, found.spines,
    )  # fmt: skip
    assert write(again) == text


def test_json_comes_back_whole() -> None:
    site = simulate(racks=2, hgx=4)
    found = discover([Capture(name, data) for name, data in captures(site)], READERS).site
    assert read_json(site_json.write(found).encode()) == found


def test_a_label_that_says_another_clique_is_a_contradiction() -> None:
    site = simulate(racks=1, trays=3)
    parts = [Capture(name, data) for name, data in captures(site)]
    labels = kube_nodes(site).replace(f'"{site.nodes[1].domain}"', '"00000000-1111-2222-3333-444444444444.9"', 1)
    found = discover([*parts, Capture("nodes.json", labels.encode())], READERS)
    domains = {node.domain for node in found.site.nodes}
    assert domains == {site.nodes[1].domain}  # the hardware is believed
    assert any(one.rule == "fabric/contradiction" and site.nodes[0].name in one.subject for one in found.findings)
