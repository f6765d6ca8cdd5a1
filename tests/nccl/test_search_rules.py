"""Single rules of the graph search, on systems small enough to follow by hand."""

import pytest

from rackyard.nccl.element import Element
from rackyard.nccl.linktypes import GPU, NET, PATH_PHB, PATH_SYS
from rackyard.nccl.numbers import as_float
from rackyard.nccl.paths_compute import compute, sized
from rackyard.nccl.search_arena import Arena
from rackyard.nccl.search_board import Board
from rackyard.nccl.search_graphs import search_graphs
from rackyard.nccl.speeds import speeds
from rackyard.nccl.topology import System
from rackyard.nccl.version import Version

NEW, OLD = Version(2, 30, 7), Version(2, 29, 7)
INTEL = {"arch": "x86_64", "vendor": "GenuineIntel", "familyid": "6", "modelid": "143"}
AMD = {"arch": "x86_64", "vendor": "AuthenticAMD", "familyid": "25", "modelid": "1"}


def pci(busid: str, pci_class: str, child: Element) -> Element:
    attrs = {"busid": busid, "class": pci_class, "link_speed": "16.0 GT/s PCIe", "link_width": "16"}
    return Element("pci", attrs, [child])


def gpu(number: int, sm: int = 90, links: int = 0) -> Element:
    inside = [Element("nvlink", {"target": "s", "count": str(links), "tclass": "0x068000"})] if links else []
    attrs = {"dev": str(number), "sm": str(sm), "rank": str(number), "gdr": "1"}
    return pci(f"000{number}:02:00.0", "0x030200", Element("gpu", attrs, inside))


def nic(number: int, speed: int = 100_000, latency: str = "0") -> Element:
    attrs = {"name": f"n{number}", "dev": str(number), "speed": str(speed), "port": "1", "gdr": "1", "latency": latency}
    net = Element("net", attrs | {"guid": hex(64 + number)})
    return pci(f"001{number}:03:00.0", "0x020000", Element("nic", {}, [net]))


def host(devices: list[Element], cpu: dict[str, str], version: Version = NEW, factor: int = 1) -> System:
    attrs = {"host_hash": "0x1", "numaid": "0", "affinity": "f", **cpu}
    root = Element("system", {"version": "1"}, [Element("cpu", attrs, devices)])
    return sized(compute(root, version), factor).system


def test_speeds_go_by_compute_capability_and_version() -> None:
    assert speeds(80, inter=False, has_dev=True)[0] == 40.0
    assert speeds(90, inter=False, has_dev=True)[0] == 60.0
    assert speeds(100, inter=True, has_dev=True)[:3] == (96.0, 86.0, 80.0)
    assert speeds(100, inter=True, has_dev=False)[:2] == (96.0, 80.0)
    assert all(speed == as_float(speed) for sm in (70, 90, 103) for speed in speeds(sm, inter=True, has_dev=True))


def test_an_intel_cpu_makes_gpu_to_gpu_traffic_dearer_on_pci() -> None:
    for cpu, paid in ((INTEL, 12.0), (AMD, 10.0)):
        system = host([gpu(0), gpu(1)], cpu)
        board = Board(system)
        route = board.route(GPU, 0, GPU, 1)
        assert route.type == PATH_PHB
        assert board.take(route, 10.0)
        spent = {before - after for before, after in zip(system.link_bw, board.left, strict=True)}
        assert max(spent) == paid
        board.give(route, 10.0)
        assert board.left == system.link_bw


def test_before_sm_80_what_comes_in_takes_an_eighth_of_the_way_out() -> None:
    system = host([gpu(0, sm=70), nic(0)], INTEL)
    board = Board(system)
    route = board.route(NET, 0, GPU, 0)
    assert route.hops is not None
    assert board.take(route, 8.0)
    dev = system.devs()[0]
    out = [link for link in system.links[dev] if board.left[link] == system.link_bw[link] - 1.0]
    assert len(out) == 1
    board.give(route, 8.0)
    assert board.left == system.link_bw


def test_nothing_is_taken_where_a_link_is_too_small() -> None:
    system = host([gpu(0), gpu(1)], AMD)
    board = Board(system)
    assert not board.take(board.route(GPU, 0, GPU, 1), 100.0)
    assert board.left == system.link_bw
    assert board.full


def test_four_gpus_spread_over_four_nets_with_their_bits_reversed() -> None:
    system = host([*(gpu(number) for number in range(4)), *(nic(number) for number in range(4))], AMD)
    nets = Arena(system).nets
    assert [nets.order(-1, place)[0] for place in range(4)] == [0, 2, 1, 3]
    assert nets.order(-1, None) == (0, 2, 1, 3)
    assert set(nets.order(PATH_SYS, 0)) == {0, 1, 2, 3}


def test_with_nvswitch_only_neighbours_are_tried() -> None:
    arena = Arena(host([gpu(number, links=18) for number in range(5)], AMD))
    assert arena.onward(0, 4) == [4, 1]
    assert arena.onward(0, 1) == [1, 4]
    assert arena.onward(0, 5) == [1]


def test_two_gpus_over_nvswitch_use_all_their_links() -> None:
    graphs = search_graphs(host([gpu(0, links=18), gpu(1, links=18)], AMD)).found
    # 18 links of 20.6 GB/s: 12 channels of 30; a tree takes only one direction of each pair, and so twice as much.
    assert graphs["ring"].brief() == "12@30/30 NVL/PIX"
    assert graphs["tree"].brief() == "12@60/60 NVL/PIX"
    assert graphs["nvls"].brief() == "2@60/60 NVL/PIX"


@pytest.mark.parametrize(("factor", "ring"), [(1, "1@24/24 PHB/PIX"), (2, "1@12/12 PHB/PHB")])
def test_one_gpu_without_nvlink_sends_all_over_pci(factor: int, ring: str) -> None:
    devices = [gpu(0, links=18), gpu(1, links=18), gpu(2), nic(0)]
    graphs = search_graphs(host(devices, {"arch": "arm64"}, NEW, factor)).found
    assert graphs["ring"].brief() == ring
    assert graphs["nvls"].n_channels == 0


def test_without_a_net_the_fallback_is_refused() -> None:
    """NCCL looks for a net even within one node when it falls back, and ends if there is none."""
    slow = [gpu(0), gpu(1)]
    for device in slow:
        device.attrs |= {"link_speed": "2.5 GT/s PCIe", "link_width": "1"}
    graphs = search_graphs(host(slow, AMD))
    assert graphs.ended_at == "ring"
    assert graphs.refused is not None
    assert graphs.refused.nccl_result == "ncclInternalError"
    with_net = search_graphs(host([*slow, nic(0)], AMD)).found["ring"]
    assert with_net.fell_back
    assert with_net.channels[0].ranks == (0, 1)


@pytest.mark.parametrize("version", [NEW, OLD])
def test_latency_is_that_of_the_net_taken(version: Version) -> None:
    system = host([gpu(0, links=18), gpu(1, links=18), nic(0, latency="2.5")], AMD, version, 2)
    ring = search_graphs(system).found["ring"]
    assert ring.latency_inter == 2.5
    assert ring.channels[0].nets == (0, 0)


def test_slower_nets_carry_fewer_channels() -> None:
    def rings(speed: int) -> float:
        system = host([gpu(0, links=18), gpu(1, links=18), nic(0, speed)], AMD, NEW, 2)
        return search_graphs(system).found["ring"].total_inter

    assert rings(25_000) == pytest.approx(3.0)
    assert rings(25_000) < rings(100_000) <= 12.5
