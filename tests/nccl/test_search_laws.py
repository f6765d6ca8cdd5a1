"""Laws of the graph search on topologies of all kinds: the same every time, bandwidth in bounds, shortcuts harmless."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackyard.findings import Verdict
from rackyard.nccl.element import Element
from rackyard.nccl.graphs import PATTERN_NVLS, Graph
from rackyard.nccl.linktypes import GPU
from rackyard.nccl.paths_compute import compute, sized
from rackyard.nccl.predict import predict
from rackyard.nccl.search import Search
from rackyard.nccl.search_board import Board
from rackyard.nccl.search_graphs import Graphs, search_graphs
from rackyard.nccl.search_trace import Traces
from rackyard.nccl.search_walk import Walk
from rackyard.nccl.topology import System
from rackyard.nccl.version import Version
from rackyard.nccl.xmlrefused import TopologyRefused

VERSIONS = (Version(2, 29, 7), Version(2, 30, 7))
SPEEDS = ("2.5 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe")


@st.composite
def topologies(draw: st.DrawFn) -> Element:
    """One or two hosts, each with one or two CPUs and up to four GPUs; NVSwitch or none, some links missing."""
    hosts = draw(st.integers(1, 2))
    sm = draw(st.sampled_from((70, 80, 90, 100)))
    kinds: tuple[dict[str, str], ...] = (
        {"arch": "arm64"},
        {"arch": "x86_64", "vendor": "GenuineIntel", "familyid": "6", "modelid": "143"},
        {"arch": "x86_64", "vendor": "AuthenticAMD", "familyid": "25", "modelid": "1"},
    )
    kind = draw(st.sampled_from(kinds))
    system = Element("system", {"version": "1"})
    rank = 0
    for host in range(hosts):
        for numa in range(draw(st.integers(1, 2))):
            cpu = Element("cpu", {"host_hash": hex(16 + host), "numaid": str(numa), "affinity": "f", **kind})
            for slot in range(draw(st.integers(1, 2))):
                cpu.children.append(_bridge(draw, rank, numa * 4 + slot, sm))
                rank += 1
            system.children.append(cpu)
    return system


def _bridge(draw: st.DrawFn, rank: int, slot: int, sm: int) -> Element:
    """A bridge with a GPU and perhaps a NIC."""
    gpu = Element("gpu", {"dev": str(slot), "sm": str(sm), "rank": str(rank), "gdr": draw(st.sampled_from("01"))})
    links = draw(st.sampled_from((0, 1, 4, 18)))
    if links:
        gpu.children.append(Element("nvlink", {"target": "ff:00:00.0", "count": str(links), "tclass": "0x068000"}))
    if draw(st.booleans()):
        gpu.children.append(Element("c2c", {"bw": "44712", "count": "5"}))
    children = [_pci(draw, f"{slot:04x}:02:00.0", "0x030200", gpu)]
    if draw(st.booleans()):
        attrs = {"name": f"mlx5_{slot}", "dev": str(slot), "port": "1", "gdr": "1", "guid": hex(64 * slot + rank)}
        speed = draw(st.sampled_from(("10000", "100000", "200000", "400000", "800000")))
        net = Element("net", attrs | {"speed": speed, "coll": draw(st.sampled_from("01"))})
        children.append(_pci(draw, f"{slot:04x}:03:00.0", "0x020000", Element("nic", {}, [net])))
    return Element(
        "pci",
        {"busid": f"{slot:04x}:01:00.0", "class": "0x060400", "link_speed": SPEEDS[-1], "link_width": "16"},
        children,
    )


def _pci(draw: st.DrawFn, busid: str, pci_class: str, child: Element) -> Element:
    link = {"link_speed": draw(st.sampled_from(SPEEDS)), "link_width": draw(st.sampled_from(("4", "8", "16")))}
    return Element("pci", {"busid": busid, "class": pci_class, **link}, [child])


def systems(root: Element, version: Version) -> Iterator[System]:
    """The topology as communicators of both sizes see it; none where NCCL refuses it."""
    try:
        computed = compute(root, version)
    except TopologyRefused:
        return
    for factor in (1, 2):
        system = sized(computed, factor).system
        if system.count(GPU):
            yield system


def form(graphs: Graphs) -> object:
    """What must be the same: all but the number of steps really made."""
    return graphs.found, graphs.ended_at


@contextmanager
def every_step_made() -> Iterator[None]:
    """No shortcut: every attempt is made, and every step of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Walk, "_state", lambda _walk: None)
        patch.setattr(Traces, "known", lambda *_: None)
        patch.setattr(Search, "_course", lambda _search: object())
        yield


@given(root=topologies(), version=st.sampled_from(VERSIONS), collnet=st.booleans())
@settings(max_examples=15)
def test_shortcuts_change_nothing(root: Element, version: Version, collnet: bool) -> None:
    for short, long in zip(systems(root, version), systems(root, version), strict=True):
        ours = search_graphs(short, collnet=collnet, max_steps=100_000)
        if ours.out_of_steps:
            continue
        with every_step_made():
            theirs = search_graphs(long, collnet=collnet)
        assert form(ours) == form(theirs)
        assert ours.steps <= theirs.steps


@given(root=topologies(), version=st.sampled_from(VERSIONS))
@settings(max_examples=25)
def test_a_graph_is_made_of_all_gpus_once_and_takes_no_more_than_there_is(root: Element, version: Version) -> None:
    for system in systems(root, version):
        ranks = sorted(gpu.rank for gpu in system.gpus())
        graphs = search_graphs(system, max_steps=100_000)
        for graph in graphs.found.values():
            assert graph.n_channels <= graph.max_channels
            for channel in graph.channels:
                whole = [channel.ranks[0]] if graph.pattern == PATTERN_NVLS or graph.id == 3 else ranks
                assert sorted(channel.ranks) == whole
                assert (channel.nets is not None) == bool(system.inter)
            if graph.id == 0 and system.inter and not graph.fell_back:
                _check_nets(graph, system)


@given(root=topologies(), version=st.sampled_from(VERSIONS), max_steps=st.sampled_from((0, 300, 20_000)))
@settings(max_examples=15)
def test_a_prediction_always_has_a_verdict(root: Element, version: Version, max_steps: int) -> None:
    try:
        prediction = predict(root, version, max_steps=max_steps)
    except TopologyRefused:
        return
    verdicts = {finding.verdict for finding in prediction.findings}
    assert verdicts
    unknown = prediction.one.out_of_steps or prediction.two.out_of_steps
    assert (Verdict.UNKNOWN in verdicts) == unknown
    assert not (unknown and Verdict.PASS in verdicts)


def _check_nets(graph: Graph, system: System) -> None:
    """No net is entered by more channels than it has bandwidth for; NCCL counts whole GB/s."""
    bw = {net.id: net.bw for net in system.nets()}
    entered = Counter(channel.nets[0] for channel in graph.channels if channel.nets)
    for net, channels in entered.items():
        assert channels * math.floor(graph.bw_inter) <= bw[net] + 1e-3


@given(left=st.integers(0, 5_000_000), amount=st.integers(1, 96_000))
def test_what_is_taken_from_a_link_comes_back(left: int, amount: int) -> None:
    """In thousandths of a GB/s nothing is lost, up to 2,000 GB/s, where a 32-bit float holds them all."""
    board = Board(System(has_dev=True))
    before = board.remainder(0.0)[left / 2500]
    after = board.remainder(amount / 1000)[before]
    assert board.remainder(-amount / 1000)[after] == before


def test_the_same_search_twice_gives_the_same(simple: Any) -> None:
    one, two = (search_graphs(system) for system in (simple(), simple()))
    assert form(one) == form(two)
    assert one.steps == two.steps


@pytest.fixture
def simple() -> Any:
    """A maker of a small system."""
    gpus = [
        Element("gpu", {"dev": str(n), "sm": "90", "rank": str(n), "gdr": "1"},
                [Element("nvlink", {"target": "ff:00:00.0", "count": "18", "tclass": "0x068000"})])
        for n in range(3)
    ]  # fmt: skip
    pcis = [
        Element(
            "pci", {"busid": f"000{n}:02:00.0", "class": "0x030200", "link_speed": SPEEDS[3], "link_width": "16"}, [gpu]
        )
        for n, gpu in enumerate(gpus)
    ]
    cpu = Element("cpu", {"host_hash": "0x1", "numaid": "0", "affinity": "f", "arch": "arm64"}, pcis)
    root = Element("system", {"version": "1"}, [cpu])
    return lambda: sized(compute(root, VERSIONS[1])).system
