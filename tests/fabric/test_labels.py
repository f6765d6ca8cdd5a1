"""What a node is labelled with, and what it is not."""

from dataclasses import replace
from typing import Any

import pytest

from rackyard.fabric import DomainKey, Gpu, Health, Leaf, Nic, Node, Provenance, Rack, Site, Spine, simulate
from rackyard.fabric.labelkeys import shipped
from rackyard.fabric.labels import labels_of
from rackyard.fabric.model import NvCable

NODE = "r01-t01"


def site_with(site: Site, name: str, **change: Any) -> Site:
    """The site with one node changed."""
    nodes = tuple(replace(node, **change) if node.name == name else node for node in site.nodes)
    return replace(site, nodes=nodes)


def own(site: Site, name: str = NODE) -> dict[str, str]:
    """The labels of ours on a node, without the prefix."""
    found = labels_of(site, shipped().written())[name]
    return {key.removeprefix("rackyard.io/"): value for key, value in found.items()}


def with_gpu(site: Site, index: int, **change: Any) -> Site:
    gpus = site.node(NODE).gpus
    return site_with(site, NODE, gpus=tuple(replace(g, **change) if g.index == index else g for g in gpus))


def with_nic(site: Site, index: int, **change: Any) -> Site:
    nics = site.node(NODE).nics
    return site_with(site, NODE, nics=tuple(replace(n, **change) if n.index == index else n for n in nics))


@pytest.fixture
def site() -> Site:
    return simulate(racks=3, hgx=1)


def test_a_healthy_tray(site: Site) -> None:
    site = site_with(site, NODE, tray=0, chassis="1820225190001")
    assert own(site) == {
        "domain": str(site.node(NODE).domain),
        "clique": "1",
        "rack": "r01",
        "chassis": "1820225190001",
        "slot": "1",
        "tray": "0",
        "rails-up": "0xf",
        "degraded-links": "0",
        "degraded-gpus": "0",
        "leaf-rail-0": "leaf-0-r01",
        "leaf-rail-1": "leaf-1-r01",
        "leaf-rail-2": "leaf-2-r01",
        "leaf-rail-3": "leaf-3-r01",
        "tier-0": "leaf-0-r01",
        "tier-1": "spine-1",
    }


def test_a_server_is_its_own_domain_and_in_no_clique(site: Site) -> None:
    found = own(site, "hgx-01")
    assert found["domain"] == "node.hgx-01.0" and "clique" not in found
    assert not any("domain" in key for key in aliases(site, "hgx-01"))


@pytest.mark.parametrize(
    ("uuid", "label"),
    [("rack:r01", "rack.r01.1"), ("node:r01-t01", None), ("00000000-0000-0000-0000-000000000000", None), ("", None)],
)
def test_a_tray_that_no_fabric_manager_spoke_of_is_in_no_clique(site: Site, uuid: str, label: str | None) -> None:
    found = own(site_with(site, NODE, domain=DomainKey(uuid, 1)))
    assert found.get("domain") == label and "clique" not in found


def test_what_nobody_said_gives_no_label() -> None:
    node = Node(
        name="bare",
        kind="nvl72-tray",
        rack="r",
        slot=-1,
        domain=DomainKey("node:bare", 0),
        gpus=(Gpu(0, "", "", "", -1, -1, 0, Health.UNKNOWN),),
        nics=(Nic(0, "mlx5_0", -1, 0, -1, "", "", Health.UNKNOWN),),
    )
    site = Site("s", False, (Rack("r"),), (node,), (), (), Provenance("test"))
    assert own(site, "bare") == {"rack": "r"}
    nowhere = replace(node, rack="unplaced", kind="unknown", gpus=(), nics=())
    assert own(replace(site, racks=(Rack("unplaced"),), nodes=(nowhere,)), "bare") == {}


def aliases(site: Site, name: str = NODE) -> dict[str, str]:
    table = shipped()
    mine = labels_of(site, table.written())[name]
    return {
        key: value
        for key, value in labels_of(site, table.written(["topograph", "topograph-0"]))[name].items()
        if key not in mine
    }


def test_topographs_keys_of_both_times(site: Site) -> None:
    domain = str(site.node(NODE).domain)
    assert aliases(site) == {
        "accelerator.topograph.run/domain": domain,
        "fabric.topograph.run/tier-0": "leaf-0-r01",
        "fabric.topograph.run/tier-1": "spine-1",
        "network.topology.nvidia.com/accelerator": domain,
        "network.topology.nvidia.com/leaf": "leaf-0-r01",
        "network.topology.nvidia.com/spine": "spine-1",
    }


# --- health ------------------------------------------------------------------------------------------------------


def test_a_gpu_without_nvlinks_shows_though_its_clique_is_right(site: Site) -> None:
    found = own(with_gpu(site, 2, nvlinks=0))
    assert (found["degraded-gpus"], found["degraded-links"]) == ("1", "18")
    assert found["domain"] == own(site)["domain"]


def test_a_gpu_that_is_down_shows(site: Site) -> None:
    assert own(with_gpu(site, 2, health=Health.DOWN))["degraded-gpus"] == "1"


def test_a_gpu_with_fewer_links_than_its_peers_shows_even_of_an_unknown_kind(site: Site) -> None:
    gpus = tuple(replace(gpu, kind="B999", nvlinks=36) for gpu in site.node(NODE).gpus)
    found = own(with_gpu(site_with(site, NODE, gpus=gpus), 1, nvlinks=35))
    assert (found["degraded-gpus"], found["degraded-links"]) == ("1", "1")


def test_gpus_of_which_nobody_said_the_kind_are_no_peers(site: Site) -> None:
    gpus = tuple(replace(gpu, kind="unknown", nvlinks=12 + gpu.index) for gpu in site.node(NODE).gpus)
    found = own(site_with(site, NODE, gpus=gpus))
    assert "degraded-gpus" not in found and "degraded-links" not in found


def test_links_that_the_switches_see_down_count_when_the_host_says_nothing(site: Site) -> None:
    cables = tuple(NvCable(NODE, gpu, port, "r01-s1", 0, port, port, not gpu) for gpu in range(4) for port in range(2))
    racks = tuple(replace(rack, nvlinks=cables) if rack.name == "r01" else rack for rack in site.racks)
    gpus = tuple(replace(gpu, nvlinks=-1) for gpu in site.node(NODE).gpus)
    found = own(site_with(replace(site, racks=racks), NODE, gpus=gpus))
    assert (found["degraded-gpus"], found["degraded-links"]) == ("3", "6")


@pytest.mark.parametrize("change", [{"nvlinks": -1}, {"health": Health.UNKNOWN}])
def test_an_unknown_gpu_is_never_told_as_zero_degraded(site: Site, change: dict[str, Any]) -> None:
    assert "degraded-gpus" not in own(with_gpu(site, 0, **change))
    found = own(with_gpu(with_gpu(site, 0, **change), 1, nvlinks=0))
    assert found["degraded-gpus"] == "1"


def test_a_tray_of_which_only_some_gpus_were_seen_is_not_told_as_zero_degraded(site: Site) -> None:
    found = own(site_with(site, NODE, gpus=site.node(NODE).gpus[:3]))
    assert "degraded-gpus" not in found and "degraded-links" not in found


# --- rails and tiers ---------------------------------------------------------------------------------------------


def test_a_rail_that_is_down_leaves_the_mask(site: Site) -> None:
    found = own(with_nic(site, 1, health=Health.DOWN))
    assert (found["rails-up"], found["degraded-links"], found["degraded-gpus"]) == ("0xd", "1", "0")


def test_a_degraded_rail_is_up_and_counted(site: Site) -> None:
    found = own(with_nic(site, 1, health=Health.DEGRADED))
    assert (found["rails-up"], found["degraded-links"]) == ("0xf", "1")


@pytest.mark.parametrize("change", [{"rail": -1}, {"health": Health.UNKNOWN}])
def test_while_a_rail_is_unknown_there_is_no_mask(site: Site, change: dict[str, Any]) -> None:
    assert "rails-up" not in own(with_nic(site, 1, **change))


def test_a_rail_of_two_nics_is_up_when_both_are(site: Site) -> None:
    nics = (*site.node(NODE).nics, replace(site.node(NODE).nics[0], index=4, leaf="leaf-x", health=Health.DOWN))
    found = own(site_with(site, NODE, nics=nics))
    assert found["rails-up"] == "0xe" and "leaf-rail-0" not in found


def changed_labels(before: Site, after: Site) -> dict[str, dict[str, tuple[str | None, str | None]]]:
    keys = shipped().written(["topograph", "topograph-0"])
    old, new = labels_of(before, keys), labels_of(after, keys)
    differences = {
        name: {
            key: (old[name].get(key), new[name].get(key))
            for key in old[name].keys() | new[name].keys()
            if old[name].get(key) != new[name].get(key)
        }
        for name in old
    }
    return {name: changes for name, changes in differences.items() if changes}


@pytest.mark.parametrize("rail", range(4))
def test_one_moved_cable_moves_one_label(site: Site, rail: int) -> None:
    moved = with_nic(site, rail, leaf=f"leaf-{rail}-r02")
    expected = {f"rackyard.io/leaf-rail-{rail}": (f"leaf-{rail}-r01", f"leaf-{rail}-r02")}
    assert changed_labels(site, moved) == {NODE: expected}


def test_two_swapped_rails_move_two_labels(site: Site) -> None:
    swapped = with_nic(with_nic(site, 2, leaf="leaf-3-r01"), 3, leaf="leaf-2-r01")
    assert set(changed_labels(site, swapped)[NODE]) == {"rackyard.io/leaf-rail-2", "rackyard.io/leaf-rail-3"}


def test_a_leaf_that_lacks_an_uplink_moves_no_label(site: Site) -> None:
    leaves = tuple(
        replace(leaf, spines=leaf.spines[1:], uplinks=leaf.uplinks - 1) if leaf.name == "leaf-0-r01" else leaf
        for leaf in site.leaves
    )
    assert changed_labels(site, replace(site, leaves=leaves)) == {}


def test_a_rack_that_lacks_a_rail_on_some_trays_stays_one_group(site: Site) -> None:
    nodes = tuple(
        replace(node, nics=node.nics[1:]) if node.rack == "r01" and node.slot <= 10 else node for node in site.nodes
    )
    found = labels_of(replace(site, nodes=nodes), shipped().written())
    groups = {found[node.name]["rackyard.io/tier-0"] for node in site.nodes_in_rack("r01")}
    assert len(groups) == 1 and groups != {found["r02-t01"]["rackyard.io/tier-0"]}


def test_tiers_go_up_as_far_as_switches_are_known() -> None:
    site = simulate(racks=4)
    leaves = tuple(replace(leaf, spines=(f"pod-{int(leaf.rack[1:]) // 3}",)) for leaf in site.leaves)
    spines = (Spine("pod-0", above=("core-1", "core-2")), Spine("pod-1", above=("core-1", "core-2")), Spine("core-1"))
    found = labels_of(replace(site, leaves=leaves, spines=spines), shipped().written())
    tiers = [[found[f"r0{rack}-t01"][f"rackyard.io/tier-{tier}"] for tier in range(3)] for rack in (1, 4)]
    assert tiers == [["leaf-0-r01", "pod-0", "core-1"], ["leaf-0-r04", "pod-1", "core-1"]]


def test_switches_that_are_above_each_other_end_somewhere() -> None:
    site = simulate(racks=1)
    leaves = tuple(Leaf(leaf.name, leaf.rail, leaf.rack, 1, ("a",)) for leaf in site.leaves)
    spines = (Spine("a", above=("b",)), Spine("b", above=("a",)))
    assert (
        labels_of(replace(site, leaves=leaves, spines=spines), shipped().written())[NODE]["rackyard.io/tier-1"] == "a"
    )


def test_a_long_switch_name_is_hashed(site: Site) -> None:
    assert own(with_nic(site, 0, leaf="leaf " * 20))["leaf-rail-0"].startswith("x")
