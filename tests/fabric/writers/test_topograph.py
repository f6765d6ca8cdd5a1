"""Topograph models: what is written is a valid model, and comes back."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackyard.errors import UsageError
from rackyard.fabric import simulate
from rackyard.fabric.facts import Facts
from rackyard.fabric.model import Site
from rackyard.fabric.readers.reader import Capture
from rackyard.fabric.readers.topograph import READER
from rackyard.fabric.writers.topograph import write


@settings(max_examples=60)
@given(data=st.data())
def test_the_same_text_comes_back(
    faulty: st.SearchStrategy[Site],
    odd: st.SearchStrategy[Site],
    read_back: Callable[[Facts], Site],
    data: st.DataObject,
) -> None:
    site = data.draw(faulty | odd)
    text = write(site)
    assert READER.knows(text[:4096], "f")
    facts = READER.read(Capture("f", text.encode()))
    assert {fact.node for fact in facts.hosts} == {node.name for node in site.nodes}
    assert write(read_back(facts)) == text


@settings(max_examples=20)
@given(data=st.data())
def test_domains_come_back(faulty: st.SearchStrategy[Site], data: st.DataObject) -> None:
    site = data.draw(faulty)
    for fact in READER.read(Capture("f", write(site).encode())).hosts:
        domain = site.node(fact.node).domain
        if domain.cluster_uuid.startswith("node:"):
            assert (fact.cluster_uuid, fact.block) == (None, None)
        else:
            assert (fact.cluster_uuid, fact.clique_id) == (domain.cluster_uuid, domain.clique_id)


def test_one_rack_is_declared() -> None:
    text = write(simulate(1, 3))
    assert "switches:\n  r01: {}\nblocks:\n- switch: r01\n" in text
    with pytest.raises(UsageError, match="no nodes"):
        write(replace(simulate(1, 1), nodes=()))
