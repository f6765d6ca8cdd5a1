"""Kueue's Topology and ResourceFlavor: the rules of their CRDs, and levels that our labels really have."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from rackyard.errors import UsageError
from rackyard.fabric import simulate
from rackyard.fabric.labelkeys import load, shipped
from rackyard.fabric.labels import labels_of
from rackyard.fabric.model import Site
from rackyard.fabric.writers.kueue import levels, write

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])"
)


@settings(max_examples=40)
@given(data=st.data())
def test_the_rules_of_the_crds(
    faulty: st.SearchStrategy[Site], odd: st.SearchStrategy[Site], data: st.DataObject
) -> None:
    site = data.draw(faulty | odd)
    topology, flavor = YAML(typ="safe", pure=True).load_all(write(site))
    assert (topology["apiVersion"], topology["kind"]) == ("kueue.x-k8s.io/v1beta2", "Topology")
    assert (flavor["apiVersion"], flavor["kind"]) == ("kueue.x-k8s.io/v1beta2", "ResourceFlavor")
    keys = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    assert all(set(level) == {"nodeLabel"} for level in topology["spec"]["levels"])
    assert 1 <= len(keys) <= 16
    assert len(set(keys)) == len(keys)
    assert keys[-1] == "kubernetes.io/hostname"
    assert all(LABEL.fullmatch(key) and len(key) <= 316 for key in keys)
    assert SUBDOMAIN.fullmatch(topology["metadata"]["name"])
    assert flavor["spec"]["topologyName"] == topology["metadata"]["name"]
    assert 1 <= len(flavor["spec"]["nodeLabels"]) <= 8
    labels = labels_of(site, shipped().written())
    for own in labels.values():
        assert all(key in own for key in keys[:-1])
    for above, below in pairwise(keys[:-1]):
        pairs = {(own[below], own[above]) for own in labels.values()}
        assert len({name for name, _ in pairs}) == len(pairs)


def test_levels_of_racks() -> None:
    site = simulate(3, 4)
    own = shipped().prefix
    assert levels(site, shipped()) == (f"{own}/tier-1", f"{own}/tier-0", "kubernetes.io/hostname")
    assert levels(simulate(3, 4, 4), shipped())[2] == f"{own}/domain"
    mine = load('prefix = "yard.example.com"\n')
    assert levels(site, mine)[0] == "yard.example.com/tier-1"


def test_what_no_topology_can_be_is_refused() -> None:
    site = simulate(1, 2)
    with pytest.raises(UsageError, match="no nodes"):
        write(replace(site, nodes=()))
    with pytest.raises(UsageError, match="Kubernetes node"):
        write(replace(site, nodes=(replace(site.nodes[0], name="Tray_1"),)))
