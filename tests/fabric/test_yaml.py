"""The YAML form: it undoes itself, it can be written by hand, and it says where a mistake is."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackyard.errors import SpecError, Where
from rackyard.fabric import (
    Cpu,
    DomainKey,
    Gpu,
    Health,
    Leaf,
    Nic,
    Node,
    Provenance,
    Rack,
    Site,
    Spine,
    SwitchTray,
    dump,
    load,
    simulate,
)
from rackyard.fabric.model import NvCable, PciDevice

HAND = """\
name: lab
racks:
  r01: {switch_trays: 9}
  h01:
nodes:
  r01-t01: {shape: GB300, rack: r01, slot: 1}
  r01-t02: {shape: GB300, rack: r01, slot: 2, cordoned: "fan #3", gpu_health: {2: down}}
  hgx-01: {shape: H200, rack: h01, slot: 1}
"""

names = st.text(min_size=1, max_size=8)
words = st.text(max_size=8)
health = st.sampled_from(Health)
small = st.integers(0, 20)
domains = st.builds(DomainKey, names, small)
known = st.integers(-1, 20)
gpus = st.builds(Gpu, small, names, words, words, st.integers(-1, 3), known, st.floats(0, 1e6, allow_nan=False), health)
nics = st.builds(Nic, small, words, known, small, st.integers(-1, 3), words, words, health, words, words)
cpus = st.builds(Cpu, known, words, words, words, known, known)
pci = st.builds(PciDevice, names, words, known, words, words, words, words, words, words, small)
cables = st.builds(NvCable, names, known, known, words, known, known, known, st.booleans())


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """Any site at all, with names as odd as can be."""
    rack_names = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    racks = tuple(
        Rack(
            name,
            draw(st.none() | domains),
            tuple(draw(st.lists(st.builds(SwitchTray, names, names, known, known, health), max_size=2))),
            draw(health),
            tuple(draw(st.lists(cables, max_size=4))),
        )
        for name in rack_names
    )
    nodes = tuple(
        Node(
            name,
            draw(st.sampled_from(["nvl72-tray", "hgx", "unknown"])),
            draw(st.sampled_from(rack_names)),
            draw(known),
            draw(domains),
            tuple(draw(st.lists(gpus, max_size=3, unique_by=lambda gpu: gpu.index))),
            tuple(draw(st.lists(nics, max_size=3))),
            tuple(draw(st.lists(cpus, max_size=2))),
            draw(health),
            draw(words),
            draw(known),
            draw(words),
            tuple(draw(st.lists(pci, max_size=2))),
        )
        for name in draw(st.lists(names, max_size=3, unique=True))
    )
    several = st.lists(names, max_size=2).map(tuple)
    leaf = st.builds(Leaf, names, known, names, known, several, words)
    leaves = draw(st.lists(leaf, max_size=3, unique_by=lambda leaf: leaf.name))
    plain = st.lists(st.builds(Spine, names), max_size=2)
    spines = tuple(draw(plain | st.lists(st.builds(Spine, names, words, several), max_size=2)))
    origin = draw(st.builds(Provenance, words, words, st.none() | st.integers(1, 99), st.booleans()))
    return Site(draw(names), draw(st.booleans()), racks, nodes, tuple(leaves), spines, origin)


@settings(max_examples=60, deadline=None)
@given(sites())
def test_any_site_comes_back_equal(site: Site) -> None:
    assert load(dump(site)) == site


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2), st.integers(1, 18), st.integers(0, 5), st.sampled_from(["GB200", "GB300"]), st.data())
def test_simulated_sites_come_back_equal(racks: int, trays: int, hgx: int, gpu: str, data: st.DataObject) -> None:
    site = simulate(racks, trays, max(hgx, 1), gpu, racks_per_block=data.draw(st.integers(0, 4)))
    assert load(dump(site)) == site
    assert dump(site).count("\n") == 1
    assert load(dump(site, full=True)) == site
    node = data.draw(st.sampled_from(site.nodes))
    hurt = site.with_cordon({node.name: "why: #1"})
    assert load(dump(hurt)) == hurt
    # Leaves and spines take lines only where not every leaf goes to every spine.
    switches = len(site.leaves) + len(site.spines) if any(spine.above for spine in site.spines) else 0
    assert len(dump(hurt).splitlines()) < 20 + len(site.nodes) + len(site.racks) + switches


def test_written_by_hand() -> None:
    site = load(HAND, "lab.yaml")
    assert not site.simulated
    assert site.provenance == Provenance("yaml", "lab.yaml", 1)
    tray = site.node("r01-t02")
    assert tray.cordoned == "fan #3"
    assert tray.gpus[2].health is Health.DOWN
    assert tray.gpus[0].uuid == ""
    assert tray.nics[3].leaf == "leaf-3-r01"
    assert tray.domain == site.rack("r01").domain == DomainKey("rack:r01", 1)
    assert site.node("hgx-01").domain == DomainKey("node:hgx-01", 0)
    assert site.leaves[0] == Leaf("leaf-0-r01", 0, "r01", 0)
    assert load(dump(site)) == site


WIRED = """\
name: lab
racks:
  r01:
    switch_trays: 2
    nvlinks:
    - {node: r01-t01, gpu: 0, links: ["0:r01-s1:0:12:0", "1:r01-s1:1:12:1:down"]}
nodes:
  r01-t01: {shape: mine, rack: r01, slot: 10, tray: 8, chassis: "1820", guids: ["00aa"], leaf_ports: ["1/1"]}
shapes:
  mine:
    kind: nvl72-tray
    cpus: [{numa: 0, cpus: 0-71, arch: arm64}]
    gpus: [{kind: GB300}]
    nics: [{name: mlx5_0, rail: 0}]
    pci:
    - {bdf: "0008:00:00.0", class: "0x060400", numa: 0, speed: 64.0 GT/s PCIe, width: 16}
leaves:
  leaf-0-r01: {rail: 0, rack: r01, uplinks: 4, spines: [s1, s2], guid: "00bb"}
spines:
- s1
- {name: s2, guid: "00cc", above: [core]}
"""


def test_cables_and_switches_by_hand() -> None:
    site = load(WIRED)
    assert site.racks[0].nvlinks == (
        NvCable("r01-t01", 0, 0, "r01-s1", 0, 12, 0, True),
        NvCable("r01-t01", 0, 1, "r01-s1", 1, 12, 1, False),
    )
    tray = site.nodes[0]
    assert (tray.tray, tray.chassis) == (8, "1820")
    assert tray.cpus == (Cpu(0, "0-71", "arm64"),)
    assert tray.pci == (PciDevice("0008:00:00.0", "", 0, "0x060400", link_speed="64.0 GT/s PCIe", link_width=16),)
    assert (tray.nics[0].guid, tray.nics[0].leaf_port) == ("00aa", "1/1")
    assert site.leaves == (Leaf("leaf-0-r01", 0, "r01", 4, ("s1", "s2"), "00bb"),)
    assert site.spines == (Spine("s1"), Spine("s2", "00cc", ("core",)))
    assert load(dump(site)) == site


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "says"),
    [
        ("0:r01-s1:0:12:0", "0:r01-s1:0:12", 6, 39, "not an NVLink"),
        ("1:12:1:down", "1:12:1:up", 6, 58, "not an NVLink"),
        ("gpu: 0,", "gpu: x,", 6, 28, "not a whole number"),
        ("above: [core]", "over: [core]", 21, 28, "unknown key 'over'"),
        ('["00aa"]', '["00aa", "00ab"]', 8, 80, "2 values"),
        ("width: 16", "widht: 16", 16, 80, "did you mean width?"),
        ("arch: arm64", "arch: [a]", 12, 40, "expected a single value"),
    ],
)
def test_mistakes_in_these_are_shown_where_they_are(old: str, new: str, line: int, column: int, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(WIRED.replace(old, new), "f.yaml")
    assert says in str(caught.value)
    assert caught.value.where == Where("f.yaml", line, column)


def test_a_node_of_a_known_shape_takes_one_line() -> None:
    site = simulate(1, 3)
    seated = replace(site, nodes=tuple(replace(node, tray=node.slot - 1, chassis="1820") for node in site.nodes))
    text = dump(seated)
    assert load(text) == seated
    assert "shapes:" not in text
    assert '  r01-t01: {shape: GB300, rack: r01, slot: 1, tray: 0, chassis: "1820"}\n' in text
    assert "leaves:" not in text


def test_the_short_form() -> None:
    assert load("simulate: {racks: 2, trays: 18, hgx: 2, gpu: GB300}") == simulate(2, 18, 2, "GB300")
    assert load("simulate:") == simulate()
    assert load("simulate: {racks: 3, racks_per_block: 2}") == simulate(3, racks_per_block=2)
    assert "racks_per_block" not in dump(simulate(3))


def test_a_domain_over_two_racks() -> None:
    text = HAND.replace("{switch_trays: 9}", "{switch_trays: 9, domain: 1234-5.7}").replace(
        "h01:", "h01: {domain: 1234-5.7}"
    )
    site = load(text)
    assert site.node("hgx-01").domain == site.node("r01-t01").domain == DomainKey("1234-5", 7)


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("simulate: {rack: 2}", 1, 12, "did you mean racks?"),
        ("simulate: {racks: two}", 1, 19, "not a whole number"),
        ("simulate: {gpu: GB30}", 1, 11, "did you mean GB300?"),
        ("simulate: {}\nname: x", 2, 1, "unknown key 'name'"),
        (
            HAND.replace("shape: GB300, rack: r01, slot: 1", "shape: GB200x, rack: r01, slot: 1"),
            6,
            20,
            "did you mean GB200?",
        ),
        (HAND.replace("rack: h01", "rack: h02"), 8, 31, "did you mean h01?"),
        (HAND.replace("cordoned", "cordon"), 7, 47, "did you mean cordoned?"),
        (HAND.replace("{2: down}", "{7: down}"), 7, 83, "positions"),
        (HAND.replace("{2: down}", "{2: bad}"), 7, 83, "not known"),
        (HAND.replace(", slot: 1}", "}", 1), 6, 12, "'slot' is missing"),
        (HAND.replace("r01-t02", "r01-t01"), 7, 3, "given twice"),
        (HAND.replace("9}", "9, domain: x}"), 3, 34, "clique id"),
        ("name: [", 1, 8, "not valid YAML"),
        ("", 1, 1, "empty"),
        ("- 1", 1, 1, "expected a mapping"),
    ],
)
def test_mistakes_are_shown_where_they_are(text: str, line: int, column: int, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(text, "f.yaml")
    assert says in str(caught.value)
    assert caught.value.where == Where("f.yaml", line, column)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.sampled_from("abr0: {}[]-,\n\"'&*!|>#%\\\t"), max_size=60) | st.text(max_size=40))
def test_garbage_is_a_spec_error(text: str) -> None:
    with contextlib.suppress(SpecError):
        load(text)


def test_deep_nesting_is_a_spec_error() -> None:
    with pytest.raises(SpecError):
        load("[" * 3_000)


def test_a_changed_part_makes_its_own_shape() -> None:
    site = simulate(racks=1, trays=2)
    tray = site.nodes[0]
    dead = replace(tray, gpus=(replace(tray.gpus[0], nvlinks=0), *tray.gpus[1:]))
    changed = replace(site, nodes=(dead, *site.nodes[1:]))
    assert "shape-1" in dump(changed)
    assert load(dump(changed)) == changed
