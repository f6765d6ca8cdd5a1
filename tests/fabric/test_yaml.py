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
gpus = st.builds(Gpu, small, names, words, words, st.integers(-1, 3), small, st.floats(0, 1e6, allow_nan=False), health)
nics = st.builds(Nic, small, words, small, small, st.integers(-1, 3), words, words, health)
cpus = st.builds(Cpu, small, words)


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """Any site at all, with names as odd as can be."""
    rack_names = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    racks = tuple(
        Rack(
            name,
            draw(st.none() | domains),
            tuple(draw(st.lists(st.builds(SwitchTray, names, names, small, small, health), max_size=2))),
            draw(health),
        )
        for name in rack_names
    )
    nodes = tuple(
        Node(
            name,
            draw(st.sampled_from(["nvl72-tray", "hgx"])),
            draw(st.sampled_from(rack_names)),
            draw(small),
            draw(domains),
            tuple(draw(st.lists(gpus, max_size=3, unique_by=lambda gpu: gpu.index))),
            tuple(draw(st.lists(nics, max_size=3))),
            tuple(draw(st.lists(cpus, max_size=2))),
            draw(health),
            draw(words),
        )
        for name in draw(st.lists(names, max_size=3, unique=True))
    )
    leaves = draw(st.lists(st.builds(Leaf, names, small, names, small), max_size=3, unique_by=lambda leaf: leaf.name))
    spines = tuple(draw(st.lists(st.builds(Spine, names), max_size=2)))
    origin = draw(st.builds(Provenance, words, words, st.none() | st.integers(1, 99), st.booleans()))
    return Site(draw(names), draw(st.booleans()), racks, nodes, tuple(leaves), spines, origin)


@settings(max_examples=25, deadline=None)
@given(sites())
def test_any_site_comes_back_equal(site: Site) -> None:
    assert load(dump(site)) == site


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2), st.integers(1, 18), st.integers(0, 5), st.sampled_from(["GB200", "GB300"]), st.data())
def test_simulated_sites_come_back_equal(racks: int, trays: int, hgx: int, gpu: str, data: st.DataObject) -> None:
    site = simulate(racks, trays, max(hgx, 1), gpu)
    assert load(dump(site)) == site
    assert dump(site).count("\n") == 1
    assert load(dump(site, full=True)) == site
    node = data.draw(st.sampled_from(site.nodes))
    hurt = site.with_cordon({node.name: "why: #1"})
    assert load(dump(hurt)) == hurt
    assert len(dump(hurt).splitlines()) < 20 + len(site.nodes) + len(site.racks)


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


def test_the_short_form() -> None:
    assert load("simulate: {racks: 2, trays: 18, hgx: 2, gpu: GB300}") == simulate(2, 18, 2, "GB300")
    assert load("simulate:") == simulate()


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
