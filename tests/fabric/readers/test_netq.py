"""NetQ's topology graph: tiers, hosts, cables by interface."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackyard.errors import UsageError
from rackyard.fabric.facts import End, Facts
from rackyard.fabric.readers.netq import READER, read
from rackyard.fabric.readers.reader import Capture, head_of


def node(key: str, name: str, tier: int, kind: str = "switch") -> dict[str, Any]:
    return {"id": key, "name": name, "tier": tier, "device_type": kind, "layout": {"tier": {"x": 1, "y": 45.5}}}


def link(*ends: tuple[str, str, str, str]) -> dict[str, Any]:
    cables = [
        {"id": f"{a}:{p}-*-{b}:{q}", "interfaces": [{"interface": p, "node": a}, {"interface": q, "node": b}]}
        for a, p, b, q in ends
    ]
    return {"id": f"{ends[0][0]}-*-{ends[0][2]}", "compounded_links": cables, "size": len(cables)}


GRAPH = [
    {
        "links": [
            link(("n1", "swp1", "n4", "eth0"), ("n1", "swp2", "n4", "eth1")),
            link(("n1", "swp1", "n5", "eth0"), ("n2", "swp2", "n5", "eth1")),
            link(("n1", "swp49", "n3", "swp1"), ("n3", "swp2", "n1", "swp50")),
            link(("n2", "swp49", "n3", "swp3")),
        ],
        "nodes": [
            {"tier": 1, "compounded_nodes": [node("n1", "leaf-1", 1), node("n2", "leaf-2", 1)]},
            {"tier": 2, "compounded_nodes": [node("n3", "spine-1", 2)]},
            {
                "tier": -1,
                "compounded_nodes": [node("n4", "tray-1", -1, "discovered_via_lldp"), node("n5", "", -1, "host")],
            },
        ],
    }
]


def facts_of(graph: Any) -> Facts:
    return read(Capture("netq.json", json.dumps(graph, indent=1).encode()))


def test_leaves_are_tier_zero_and_cables_are_told_from_below() -> None:
    facts = facts_of(GRAPH)
    assert [(s.name, s.tier) for s in facts.switches] == [("leaf-1", 0), ("leaf-2", 0), ("spine-1", 1)]
    assert [(h.node, h.tiers) for h in facts.hosts] == [("tray-1", ("leaf-1", "spine-1")), ("n5", ())]
    assert [(c.a.owner, c.a.device, c.b and c.b.owner, c.b and c.b.device) for c in facts.cables] == [
        ("tray-1", "eth0", "leaf-1", "swp1"),
        ("tray-1", "eth1", "leaf-1", "swp2"),
        ("n5", "eth0", "leaf-1", "swp1"),
        ("n5", "eth1", "leaf-2", "swp2"),
        ("leaf-1", "swp49", "spine-1", "swp1"),
        ("leaf-1", "swp50", "spine-1", "swp2"),
        ("leaf-2", "swp49", "spine-1", "swp3"),
    ]
    assert facts.cables[0].a == End("hca", "tray-1", "eth0", 1) and facts.findings == []


def test_lines_are_those_of_the_objects() -> None:
    lines = json.dumps(GRAPH, indent=1).split("\n")
    facts = facts_of(GRAPH)
    for fact in (*facts.cables, *facts.switches, *facts.hosts):
        line = fact.source.line or 0
        assert lines[line - 1].strip().startswith("{") and fact.source.text.split(" ")[0] in lines[line]


def test_links_that_say_too_little_are_told() -> None:
    graph = json.loads(json.dumps(GRAPH))
    graph[0]["links"][0]["compounded_links"] = []
    graph[0]["links"][1]["compounded_links"][0]["interfaces"][0]["node"] = "n99"
    facts = facts_of(graph)
    assert len(facts.cables) == 4
    assert facts.findings[0].summary.startswith("2 links")


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b'[{"links": [],\n "nodes": [,]}]', "netq.json:2:12"),
        (b'[{"links": [],\n "nodes": [\n{"compounded_nodes": [\n{"id": 3}]}]}]', "netq.json:4"),
        (b'[{"links": []', "netq.json:1:14"),
        (b'[{"links": [], "nodes": []}]', "netq.json:1"),
        (b'{"links": 1, "nodes": []}', "netq.json:1"),
        (b"", "netq.json:1:1"),
    ],
)
def test_damage_is_told_with_its_place(data: bytes, where: str) -> None:
    with pytest.raises(UsageError) as error:
        read(Capture("netq.json", data))
    assert str(error.value.where) == where


def test_fuzz(fuzz: Callable[..., None]) -> None:
    fuzz(
        lambda data: read(Capture("fuzz", data)), [json.dumps(GRAPH, indent=1).encode(), json.dumps(GRAPH[0]).encode()]
    )


@pytest.mark.corpus
def test_the_public_graph_is_read_whole(corpus: Path) -> None:
    path = corpus / "topology" / "netq" / "topograph-topologyGraph.json"
    capture = Capture(path.name, path.read_bytes())
    assert READER.knows(head_of(capture), path.name)
    facts = read(capture)
    graph = json.loads(path.read_text())[0]
    assert len(facts.cables) == sum(len(each["compounded_links"]) for each in graph["links"])
    named = {each["name"]: each["tier"] for group in graph["nodes"] for each in group["compounded_nodes"]}
    assert {s.name: s.tier for s in facts.switches} == {name: tier - 1 for name, tier in named.items() if tier > 0}
    assert {h.node for h in facts.hosts} == {name for name, tier in named.items() if tier < 0}
    assert all(host.tiers for host in facts.hosts) and facts.findings == []
