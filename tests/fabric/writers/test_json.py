"""The JSON of a site is the site."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackyard.errors import SpecError, Where
from rackyard.fabric import simulate
from rackyard.fabric.model import Cpu, NvCable, PciDevice, Site
from rackyard.fabric.readers.reader import Capture
from rackyard.fabric.readers.site_json import READER, load
from rackyard.fabric.writers.site_json import write


@settings(max_examples=60)
@given(data=st.data())
def test_any_site_comes_back_equal(
    faulty: st.SearchStrategy[Site], odd: st.SearchStrategy[Site], data: st.DataObject
) -> None:
    site = data.draw(faulty | odd)
    text = write(site)
    assert load(text.encode()) == site
    assert load(write(site, indent=0).encode()) == site
    assert write(load(text.encode())) == text
    assert READER.knows(text[:4096], "f")


def test_nothing_is_lost() -> None:
    site = simulate(1, 2)
    tray = replace(
        site.nodes[0],
        tray=0,
        chassis="1820",
        cpus=(Cpu(0, "0-71", "arm64", "ARM", 1, 2),),
        pci=(PciDevice("0000:00:00.0", "", 0, "0x060400", "0x10de", "0x22b1", "0x1", "0x2", "32.0 GT/s PCIe", 16),),
        nics=tuple(replace(nic, guid="00aa", leaf_port="7") for nic in site.nodes[0].nics),
    )
    rack = replace(site.racks[0], nvlinks=(NvCable("r01-t01", 0, 0, "r01-s1", 1, 12, 1, False),))
    full = replace(site, nodes=(tray, site.nodes[1]), racks=(rack,))
    assert load(write(full).encode()) == full


def test_as_a_capture_it_tells_facts() -> None:
    facts = READER.read(Capture("site.json", write(simulate(2, 2)).encode()))
    assert [fact.node for fact in facts.hosts] == ["r01-t01", "r01-t02", "r02-t01", "r02-t02"]
    assert len(facts.gpus) == 16


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('"version": 1', '"version": 2'), "not a site"),
        (('"rack": "r01"', '"rack": 7'), "not a site"),
        (('"name": "r01-t02"', '"name": "r01-t01"'), "contradicts itself"),
        (('"kind": "nvl72-tray"', '"kind": "toaster"'), "not a site"),
        (('"spines"', '"spinets"'), "not a site"),
    ],
)
def test_what_is_no_site_is_refused(change: tuple[str, str], says: str) -> None:
    text = write(simulate(1, 2)).replace(*change)
    with pytest.raises(SpecError, match=says):
        load(text.encode(), "s.json")


def test_broken_json_is_shown_where_it_is() -> None:
    with pytest.raises(SpecError) as caught:
        load(b'{"format": "rackyard.site",\n "version": }', "s.json")
    assert caught.value.where == Where("s.json", 2, 13)


def test_fuzz(fuzz: Callable[..., None]) -> None:
    fuzz(load, [write(simulate(1, 1)).encode(), write(simulate(0, hgx=1), indent=0).encode()])
