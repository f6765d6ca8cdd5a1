"""The model and the simulator, by example."""

import subprocess
import sys

import pytest

from rackyard.errors import UsageError
from rackyard.fabric import Health, simulate


def test_an_nvl72_rack_has_the_published_shape() -> None:
    site = simulate(racks=2, trays=18)
    assert site.simulated
    assert site.provenance.simulated
    assert site.gpus() == 144
    assert [node.name for node in site.nodes[:2]] == ["r01-t01", "r01-t02"]
    tray = site.node("r01-t05")
    assert (tray.kind, tray.rack, tray.slot) == ("nvl72-tray", "r01", 5)
    assert [gpu.pci for gpu in tray.gpus] == ["0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0"]
    assert [gpu.numa for gpu in tray.gpus] == [0, 0, 1, 1]
    assert {gpu.nvlinks for gpu in tray.gpus} == {18}
    assert [(nic.rail, nic.gbps, nic.leaf) for nic in tray.nics] == [(r, 800, f"leaf-{r}-r01") for r in range(4)]
    assert [(cpu.numa, cpu.cpus) for cpu in tray.cpus] == [(0, "0-71"), (1, "72-143")]
    rack = site.rack("r01")
    assert [tray.name for tray in rack.switch_trays][:3] == ["r01-s1", "r01-s2", "r01-s3"]
    assert sum(tray.asics for tray in rack.switch_trays) == 18
    assert rack.domain is not None
    assert rack.domain != site.rack("r02").domain
    assert len(site.nodes_in_domain(rack.domain)) == 18
    assert len(site.leaves) == 8
    assert site.rails() == (0, 1, 2, 3)


def test_gb200_has_connectx7_and_hgx_servers_are_their_own_domain() -> None:
    site = simulate(racks=1, hgx=5, gpu="GB200")
    assert {nic.gbps for nic in site.node("r01-t01").nics} == {400}
    server = site.node("hgx-05")
    assert (server.kind, server.rack, len(server.gpus)) == ("hgx", "h02", 8)
    assert site.nodes_in_domain(server.domain) == (server,)
    assert site.rack("h01").domain is None


def test_only_servers_may_name_their_gpu() -> None:
    assert simulate(racks=0, hgx=1, gpu="H100").nodes[0].gpus[0].kind == "H100"


def test_blocks_have_their_own_spines_and_meet_in_the_core() -> None:
    site = simulate(racks=3, trays=1, hgx=5, racks_per_block=2)
    assert [rack.name for rack in site.racks] == ["r01", "r02", "r03", "h01", "h02"]
    spines = {leaf.rack: leaf.spines for leaf in site.leaves}
    for block, racks in enumerate((("r01", "r02"), ("r03", "h01"), ("h02",)), 1):
        assert [spines[rack] for rack in racks] == [tuple(f"spine-{block}-{n}" for n in range(1, 10))] * len(racks)
    cores = ("core-1", "core-2", "core-3", "core-4")
    assert {spine.above for spine in site.spines[:27]} == {cores}
    assert [spine.name for spine in site.spines[27:]] == list(cores)
    assert {leaf.uplinks for leaf in site.leaves} == {18}


def test_one_block_needs_no_core_and_changes_nothing_else() -> None:
    site, flat = simulate(racks=2, trays=2, hgx=1, racks_per_block=3), simulate(racks=2, trays=2, hgx=1)
    assert [spine.name for spine in site.spines] == [f"spine-1-{n}" for n in range(1, 10)]
    assert not any(spine.above for spine in site.spines)
    assert (site.racks, site.nodes) == (flat.racks, flat.nodes)
    assert [spine.name for spine in flat.spines] == [f"spine-{n}" for n in range(1, 10)]


@pytest.mark.parametrize(
    "wrong",
    [{"gpu": "GB3OO"}, {"trays": 19}, {"racks": -1}, {"racks": 0}, {"racks": 10_001}, {"racks_per_block": -1}],
)
def test_nonsense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        simulate(**wrong)  # type: ignore[arg-type]


def test_changes_make_a_new_site() -> None:
    site = simulate(racks=1, trays=2)
    hurt = site.with_health(nodes={"r01-t01": Health.DOWN}, nvlink={"r01": Health.DEGRADED}).with_cordon(
        {"r01-t02": "fan"}
    )
    assert hurt.node("r01-t01").health is Health.DOWN
    assert hurt.rack("r01").nvlink is Health.DEGRADED
    assert hurt.node("r01-t02").cordoned == "fan"
    assert site.node("r01-t01").health is Health.HEALTHY
    assert hurt.with_cordon({"r01-t02": ""}).node("r01-t02").cordoned == ""
    with pytest.raises(KeyError):
        site.with_health(nodes={"nope": Health.DOWN})
    with pytest.raises(KeyError):
        site.with_cordon({"nope": "x"})


def test_the_digest_follows_the_content() -> None:
    site = simulate(racks=1, trays=2)
    assert site.digest() == simulate(racks=1, trays=2).digest()
    assert site.digest() != site.with_cordon({"r01-t01": "fan"}).digest()
    assert len(site.digest()) == 64


def test_names_are_unique() -> None:
    from dataclasses import replace

    site = simulate(racks=1, trays=2)
    with pytest.raises(ValueError, match="two nodes"):
        replace(site, nodes=(site.nodes[0], site.nodes[0]))
    with pytest.raises(ValueError, match="not in the site"):
        replace(site, racks=())


def test_importing_the_fabric_brings_no_heavy_module() -> None:
    heavy = ("torch", "numpy", "ruamel.yaml", "pydantic")
    code = f"import sys, rackyard.fabric; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
