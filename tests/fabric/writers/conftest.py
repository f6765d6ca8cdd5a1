"""Sites to export, and the site that an export read back describes."""

import socket
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from rackyard.fabric import simulate
from rackyard.fabric.facts import Facts, HostFact
from rackyard.fabric.model import DomainKey, Health, Leaf, Nic, Node, Provenance, Rack, Site, Spine

Draw = st.DrawFn


@pytest.fixture(scope="session")
def faulty() -> st.SearchStrategy[Site]:
    """Simulated sites with trays missing, cables crossed or gone, cordons, and several groups of spines."""
    return _faulty()


@pytest.fixture(scope="session")
def odd() -> st.SearchStrategy[Site]:
    """Small sites of no pattern at all, whose racks, leaves and spines have names that no format likes."""
    return _odd()


@pytest.fixture(scope="session")
def read_back() -> Callable[[Facts], Site]:
    """What hosts, tiers and blocks alone say of a site, in the order in which they were read."""
    return _read_back


@st.composite
def _faulty(draw: Draw) -> Site:
    site = simulate(draw(st.integers(1, 6)), draw(st.integers(2, 5)), draw(st.integers(0, 6)), name=draw(_NAMES))
    gone = draw(st.sets(st.sampled_from([node.name for node in site.nodes]), max_size=3))
    nodes = [node for node in site.nodes if node.name not in gone] or list(site.nodes)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(nodes) - 1))
        nodes[at] = _hurt(draw, nodes[at], site)
    pods = draw(st.integers(1, 3))
    tops = draw(st.sampled_from([(), ("core-1",), ("core-1", "core-2")]))
    racks = [rack.name for rack in site.racks]
    leaves = tuple(
        replace(leaf, spines=tuple(f"spine-{racks.index(leaf.rack) % pods}-{n}" for n in range(2)))
        for leaf in site.leaves
    )
    spines = tuple(Spine(f"spine-{pod}-{n}", above=tops) for pod in range(pods) for n in range(2))
    return replace(site, nodes=tuple(nodes), leaves=leaves, spines=(*spines, *(Spine(name) for name in tops)))


_NAMES = st.sampled_from(["lab", "Site One", "a" * 70, "x=[1]", "ümlaut"])


def _hurt(draw: Draw, node: Node, site: Site) -> Node:
    nics = list(node.nics)
    match draw(st.integers(0, 4)):
        case 0:
            nics[0], nics[1] = replace(nics[0], leaf=nics[1].leaf), replace(nics[1], leaf=nics[0].leaf)
        case 1:
            nics[0] = replace(nics[0], leaf=draw(st.sampled_from(site.leaves)).name)
        case 2:
            nics = nics[1:]
        case 3:
            nics = [replace(nic, leaf="", health=Health.DOWN) for nic in nics]
        case _:
            return replace(node, cordoned="fan")
    return replace(node, nics=tuple(nics))


@st.composite
def _odd(draw: Draw) -> Site:
    names = st.text(min_size=1, max_size=6) | st.sampled_from(["r01", "r02", "a" * 80, "core", "A", "a"])
    racks = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    leaves = draw(st.lists(names, max_size=4, unique=True))
    spines = draw(st.lists(names, max_size=4, unique=True))
    domains = st.sampled_from([DomainKey("u", 1), DomainKey("u", 2), DomainKey("12345678-a", 1), None])
    nodes = []
    for name in draw(
        st.lists(st.from_regex(r"[a-z]{1,2}[0-9]{0,4}", fullmatch=True), min_size=1, max_size=8, unique=True)
    ):
        ends = draw(st.lists(st.sampled_from(leaves), max_size=3)) if leaves else []
        nics = tuple(Nic(at, f"mlx5_{at}", at, 400, 0, "", leaf) for at, leaf in enumerate(ends))
        domain = draw(domains) or DomainKey(f"node:{name}", 0)
        nodes.append(Node(name, "unknown", draw(st.sampled_from(racks)), 1, domain, (), nics))
    above = st.lists(st.sampled_from(spines), max_size=3).map(tuple) if spines else st.just(())
    return Site(
        name=draw(names),
        simulated=True,
        racks=tuple(Rack(name) for name in racks),
        nodes=tuple(nodes),
        leaves=tuple(Leaf(name, 0, "", 2, draw(above)) for name in leaves),
        spines=tuple(Spine(name, above=draw(above)) for name in spines),
        provenance=Provenance("test", simulated=True),
    )


def _read_back(facts: Facts) -> Site:
    hosts: dict[str, HostFact] = {}
    for fact in facts.hosts:
        before = hosts.get(fact.node)
        if before is not None:
            fact = HostFact(
                node=fact.node, source=fact.source, tiers=before.tiers or fact.tiers, block=before.block or fact.block
            )
        hosts[fact.node] = fact
    nodes = []
    leaves: dict[str, Leaf] = {}
    spines: dict[str, Spine] = {}
    for fact in hosts.values():
        rack = fact.block or (fact.tiers[0] if fact.tiers else "all")
        nics = (Nic(0, "", 0, 0, -1, "", fact.tiers[0]),) if fact.tiers else ()
        nodes.append(Node(fact.node, "unknown", rack, 0, _domain(fact), (), nics))
        if fact.tiers:
            leaves[fact.tiers[0]] = Leaf(fact.tiers[0], -1, rack, 1, fact.tiers[1:2])
        for at, name in enumerate(fact.tiers[1:], 1):
            spines[name] = Spine(name, above=fact.tiers[at + 1 : at + 2])
    racks = tuple(Rack(name) for name in dict.fromkeys(node.rack for node in nodes))
    origin = Provenance("test")
    return Site("read back", False, racks, tuple(nodes), tuple(leaves.values()), tuple(spines.values()), origin)


def _domain(fact: HostFact) -> DomainKey:
    if fact.cluster_uuid is not None and fact.clique_id is not None:
        return DomainKey(fact.cluster_uuid, fact.clique_id)
    if fact.block is None:
        return DomainKey(f"node:{fact.node}", 0)
    cluster, dot, clique = fact.block.rpartition(".")
    return DomainKey(cluster, int(clique)) if dot and clique.isdecimal() else DomainKey(fact.block, 0)


@pytest.fixture
def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
