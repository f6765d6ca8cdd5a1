"""HyperNodes: every field as the CRD and the webhook of Volcano want it, and the members exactly those of the group."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from rackyard.errors import UsageError
from rackyard.fabric import simulate
from rackyard.fabric.model import Site
from rackyard.fabric.tiers import tiers
from rackyard.fabric.writers.patterns import pattern_of
from rackyard.fabric.writers.volcano import write

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def objects(text: str) -> list[dict[str, Any]]:
    return [entry for entry in YAML(typ="safe", pure=True).load_all(text) if entry is not None]


def check(entry: dict[str, Any]) -> None:
    """The rules of hypernode_types.go (kubebuilder marks) and of the validating webhook."""
    assert set(entry) == {"apiVersion", "kind", "metadata", "spec"}
    assert entry["apiVersion"] == "topology.volcano.sh/v1alpha1"
    assert entry["kind"] == "HyperNode"
    assert SUBDOMAIN.fullmatch(entry["metadata"]["name"])
    assert len(entry["metadata"]["name"]) <= 63
    spec = entry["spec"]
    assert set(spec) == {"tier", "tierName", "members"}
    assert type(spec["tier"]) is int
    assert spec["tier"] >= 0
    assert 0 < len(spec["tierName"]) <= 253
    assert spec["members"]
    for member in spec["members"]:
        assert set(member) == {"type", "selector"}
        assert member["type"] in ("Node", "HyperNode")
        (kind, selector) = next(iter(member["selector"].items()))
        assert len(member["selector"]) == 1
        if kind == "exactMatch":
            assert SUBDOMAIN.fullmatch(selector["name"])
            assert 0 < len(selector["name"]) <= 253
        else:
            assert kind == "regexMatch"
            assert member["type"] == "Node"
            assert re.compile(selector["pattern"])


def members(entries: list[dict[str, Any]], nodes: list[str]) -> dict[str, set[str]]:
    """The nodes of each HyperNode, found as Volcano finds them: children first, patterns searched and not matched."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        own: set[str] = set()
        for member in entry["spec"]["members"]:
            kind, selector = next(iter(member["selector"].items()))
            if kind == "regexMatch":
                own |= {node for node in nodes if re.search(selector["pattern"], node)}
            elif member["type"] == "HyperNode":
                own |= found[selector["name"]]
            else:
                own.add(selector["name"])
        found[entry["metadata"]["name"]] = own
    return found


@settings(max_examples=60)
@given(data=st.data(), compact=st.booleans())
def test_members_are_those_of_the_groups(
    faulty: st.SearchStrategy[Site], odd: st.SearchStrategy[Site], data: st.DataObject, compact: bool
) -> None:
    site = data.draw(faulty | odd)
    entries = objects(write(site, compact=compact))
    for entry in entries:
        check(entry)
    groups = [group for tier in tiers(site) for group in tier]
    found = members(entries, [node.name for node in site.nodes])
    assert len(found) == len(entries) == len(groups)
    for entry, group in zip(entries, groups, strict=True):
        assert found[entry["metadata"]["name"]] == set(group.nodes())
        assert (entry["spec"]["tier"], entry["spec"]["tierName"]) == (group.tier, group.tier_name)
    by_name = {entry["metadata"]["name"]: entry["spec"]["tier"] for entry in entries}
    used = [
        (member["selector"]["exactMatch"]["name"], entry["spec"]["tier"])
        for entry in entries
        for member in entry["spec"]["members"]
        if member["type"] == "HyperNode"
    ]
    assert len({name for name, _ in used}) == len(used)
    assert all(by_name[name] < tier for name, tier in used)
    assert found[entries[-1]["metadata"]["name"]] == {node.name for node in site.nodes}


NUMBERED = st.builds(
    lambda stem, number, width, tail: f"{stem}{number:0{width}d}{tail}",
    st.sampled_from(["a", "n-", "r1-t", "b.c"]),
    st.integers(0, 1200),
    st.integers(1, 4),
    st.sampled_from(["", "", "x"]),
)


@given(st.lists(NUMBERED, min_size=1, max_size=40, unique=True), st.lists(NUMBERED, max_size=40))
def test_a_pattern_matches_its_names_and_no_others(names: list[str], others: list[str]) -> None:
    pattern = pattern_of(names)
    if pattern is None:
        return
    near = [change for name in names for change in (name + "0", "0" + name, name[:-1], name.replace(".", "z"))]
    for name in {*names, *others, *near}:
        assert bool(re.search(pattern, name)) == (name in names), pattern


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(1, 5))
def test_a_range_is_matched_to_its_ends(low: int, size: int, width: int) -> None:
    names = [f"n{number:0{width}d}" for number in range(low, low + size + 1)]
    pattern = pattern_of(names)
    assert pattern is not None
    wanted = set(names)
    for number in range(max(low - 20, 0), low + size + 120):
        for digits in (1, width, 5):
            name = f"n{number:0{digits}d}"
            assert bool(re.search(pattern, name)) == (name in wanted), pattern


def test_tiers_of_two_racks_and_servers() -> None:
    entries = objects(write(simulate(2, 18, 4), compact=True))
    assert [(entry["metadata"]["name"], entry["spec"]["tier"]) for entry in entries] == [
        ("r01", 1),
        ("r02", 1),
        ("r01-leaf-group", 2),
        ("r02-leaf-group", 2),
        ("h01", 2),
        ("simulated", 3),
    ]
    assert entries[0]["spec"]["members"] == [
        {"type": "Node", "selector": {"regexMatch": {"pattern": "^r01-t(0[1-9]|1[0-8])$"}}}
    ]


def test_nodes_are_named_as_the_kubelet_registers_them() -> None:
    site = simulate(1, 2)
    entries = objects(write(replace(site, nodes=(replace(site.nodes[0], name="R01-T01"), site.nodes[1]))))
    names = [member["selector"]["exactMatch"]["name"] for member in entries[0]["spec"]["members"]]
    assert names == ["r01-t01", "r01-t02"]


def test_what_no_hypernode_can_be_is_refused() -> None:
    site = simulate(1, 2)
    with pytest.raises(UsageError, match="no nodes"):
        write(replace(site, nodes=()))
    with pytest.raises(UsageError, match="Kubernetes node"):
        write(replace(site, nodes=(replace(site.nodes[0], name="Tray_1"),)))
