"""Paths between GPUs, CPUs and networks, and the rules that change them."""

from dataclasses import replace

import pytest

from rackyard.errors import UsageError
from rackyard.nccl.comm import CommOptions
from rackyard.nccl.linktypes import CPU, GPU, NET, NVS, PATH_TYPES
from rackyard.nccl.numbers import as_float
from rackyard.nccl.paths_compute import Computed, compute, sized
from rackyard.nccl.paths_gdr import GDR_DEFAULT, GDR_PCI
from rackyard.nccl.paths_local import mirror_bits
from rackyard.nccl.paths_summary import (
    all_direct_nvlink,
    all_nvlink,
    gdr_modes,
    local_nets,
    p2p_channels_per_peer,
    split_nvlink,
)
from rackyard.nccl.system_print import printed
from rackyard.nccl.topology import System
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import parse
from rackyard.nccl.xmlrefused import TopologyRefused

NEW, OLD = Version(2, 30, 7), Version(2, 29, 7)
BOTH = pytest.mark.parametrize("version", [NEW, OLD], ids=str)
AMD = 'arch="x86_64" vendor="AuthenticAMD"'
INTEL = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"'
SWITCHED = '<nvlink target="0000:c0:00.0" count="18" tclass="0x068000"/>'
C2C = '<c2c bw="44712" count="5"/>'


def pci(bus: int, kind: str, inside: str, speed: str = "32.0") -> str:
    return (
        f'<pci busid="{bus >> 8:04x}:{bus & 255:02x}:00.0" class="{kind}" link_speed="{speed} GT/s PCIe"'
        f' link_width="16">\n{inside}</pci>\n'
    )


def gpu(bus: int, rank: int, inside: str = SWITCHED, sm: int = 90, dev: int | None = None) -> str:
    return pci(
        bus, "0x030200", f'<gpu dev="{rank if dev is None else dev}" sm="{sm}" rank="{rank}" gdr="1">{inside}</gpu>'
    )


def nic(bus: int, dev: int, mbps: int = 400000, gdr: int = 1) -> str:
    return pci(
        bus, "0x020000", f'<nic><net name="n{dev}" dev="{dev}" speed="{mbps}" guid="{dev + 1}" gdr="{gdr}"/></nic>'
    )


def switch(bus: int, inside: str) -> str:
    return pci(bus, "0x060400", inside)


def cpu(inside: str, numa: int = 0, what: str = INTEL, host: int = 1) -> str:
    return f'<cpu host_hash="{host}" numaid="{numa}" {what}>\n{inside}</cpu>\n'


def direct(*buses: int) -> str:
    return "".join(f'<nvlink target="0000:{bus:02x}:00.0" count="4" tclass="0x030200"/>' for bus in buses)


def tray(host: int, rank: int, nets: int = 4, dark: int | None = None) -> str:
    """Two Grace CPUs with two GPUs each; a NIC per GPU at its own root port."""
    text = ""
    for numa in (0, 1):
        inside = ""
        for dev in (2 * numa, 2 * numa + 1):
            links = C2C if dev == dark else SWITCHED + C2C
            inside += switch(0x101 + 0x100 * dev, gpu(0x106 + 0x100 * dev, rank + dev, links, 100, dev))
            inside += nic(0x901 + 0x100 * dev, dev) if dev < nets else ""
        text += cpu(inside, numa, 'arch="arm64"', host)
    return text


def computed(inside: str, version: Version = NEW, options: CommOptions | None = None) -> Computed:
    text = f'<system version="1">\n{inside}</system>\n'
    root = parse(text.encode(), "made.xml", version).root
    return compute(root, version, options, "made.xml")


def cell(system: System, source: tuple[int, int], target: tuple[int, int]) -> tuple[str, float, int]:
    path = system.path(system.of_type[source[0]][source[1]], *target)
    assert path is not None
    return PATH_TYPES[path.type], path.bw, path.hops


@BOTH
def test_gpus_behind_a_switch_reach_each_other_by_nvlink(version: Version) -> None:
    system = computed(cpu(gpu(0x10, 0) + gpu(0x20, 1)), version).system
    hops = 4 if version == NEW else 2
    assert cell(system, (GPU, 0), (GPU, 1)) == ("NVL", as_float(18 * as_float(20.6)), hops)
    assert cell(system, (GPU, 0), (GPU, 0)) == ("LOC", 5000.0, 0)
    assert cell(system, (GPU, 0), (NVS, 0))[2] == hops // 2
    assert all_direct_nvlink(system)


@BOTH
def test_a_gpu_between_two_relays_and_a_chain_of_three_goes_no_further(version: Version) -> None:
    buses = (0x10, 0x20, 0x30, 0x40)
    text = "".join(
        gpu(bus, rank, direct(*(buses[n] for n in (rank - 1, rank + 1) if 0 <= n < 4)), 80)
        for rank, bus in enumerate(buses)
    )
    system = computed(cpu(text), version).system
    assert cell(system, (GPU, 0), (GPU, 1))[:2] == ("NVL", 80.0)
    assert cell(system, (GPU, 0), (GPU, 2))[:2] == ("NVB", 80.0)
    assert cell(system, (GPU, 0), (GPU, 3))[0] == "PHB"
    assert not all_nvlink(system)
    assert not all_direct_nvlink(system)


@BOTH
def test_a_link_declared_on_one_side_ends_in_the_paths_with_its_line(version: Version) -> None:
    with pytest.raises(TopologyRefused) as caught:
        computed(cpu(gpu(0x10, 0, direct(0x20)) + gpu(0x20, 1, "")), version)
    kind = 8 if version == NEW else 0
    links = 2 if version == NEW else 1
    assert caught.value.nccl_message == (
        f"Failed to find reverse path from remNode {kind}/20000 nlinks {links} to node {kind}/10000"
    )
    assert caught.value.stage == "paths"
    assert caught.value.nccl_result == "ncclInternalError"
    assert str(caught.value.where) in ("made.xml:5", "made.xml:6")


@pytest.mark.parametrize(("what", "numas", "kind"), [(AMD, 2, "SYS"), (AMD, 1, "PHB"), (INTEL, 1, "PHB")])
def test_pairs_without_nvlink_go_over_the_cpu(what: str, numas: int, kind: str) -> None:
    sockets = [gpu(0x10, 0, ""), gpu(0x20, 1, "")]
    text = cpu(sockets[0], 0, what) + cpu(sockets[1], 1, what) if numas == 2 else cpu("".join(sockets), 0, what)
    system = computed(text).system
    assert cell(system, (GPU, 0), (GPU, 1))[0] == kind
    assert system.count(GPU) == 2


def test_below_one_switch_gpus_do_not_visit_the_cpu() -> None:
    system = computed(cpu(switch(1, gpu(0x10, 0, "") + gpu(0x20, 1, "")))).system
    assert cell(system, (GPU, 0), (GPU, 1)) == ("PIX", 48.0, 4)


def test_a_faster_network_takes_gpus_apart() -> None:
    """Each GPU reaches its NIC with 48 GB/s and the other GPU with 22: what the network serves better is trimmed."""
    text = cpu(switch(1, gpu(0x10, 0, "") + nic(0x11, 0)), 0) + cpu(switch(2, gpu(0x20, 1, "") + nic(0x21, 1)), 1)
    result = computed(text)
    assert cell(result.before_trim, (GPU, 0), (GPU, 1))[:2] == ("NET", 22.0)
    assert [node.rank for node in result.removed] == [1]
    assert [node.rank for node in result.system.gpus()] == [0]
    assert result.system.count(NET) == 2
    assert sized(result, 1).system.inter == 1


def test_a_slower_network_does_not() -> None:
    text = cpu(switch(1, gpu(0x10, 0, "") + nic(0x11, 0, 100000)), 0) + cpu(switch(2, gpu(0x20, 1, "")), 1)
    result = computed(text)
    assert cell(result.system, (GPU, 0), (GPU, 1))[:2] == ("SYS", 22.0)
    assert result.system is result.before_trim


@BOTH
def test_a_grace_tray_reaches_near_nics_over_c2c_and_far_ones_by_relay(version: Version) -> None:
    system = computed(tray(1, 0), version).system
    assert cell(system, (GPU, 0), (CPU, 0))[:2] == ("C2C", as_float(223.56))
    assert [cell(system, (GPU, 0), (NET, net))[:2] for net in range(4)] == [
        ("P2C", 48.0),
        ("P2C", 48.0),
        ("PXN", 48.0),
        ("PXN", 48.0),
    ]
    assert cell(system, (NET, 3), (GPU, 0))[:2] == ("SYS", 6.0)
    assert [net.local_gpu for net in system.nets()] == [0, 1, 2, 3]
    assert local_nets(system) == [[0], [1], [2], [3]]
    assert {mode[2:] for mode in gdr_modes(system)} == {(GDR_DEFAULT, GDR_DEFAULT)}


def test_a_nic_below_the_switch_of_its_gpu_maps_gpu_memory_over_pci() -> None:
    inside = switch(0x101, gpu(0x106, 0, SWITCHED + C2C, 100) + nic(0x107, 0))
    system = computed(cpu(inside, what='arch="arm64"')).system
    assert cell(system, (GPU, 0), (NET, 0)) == ("PIX", 48.0, 4)
    assert gdr_modes(system) == [(0, 0, GDR_PCI, GDR_PCI)]


def test_without_gpudirect_the_way_is_over_the_cpu() -> None:
    with_gdr, without = (computed(cpu(switch(1, gpu(0x10, 0) + nic(0x11, 0, gdr=on)))).system for on in (1, 0))
    assert cell(with_gdr, (GPU, 0), (NET, 0))[0] == "PIX"
    assert cell(without, (GPU, 0), (NET, 0)) == ("PHB", 48.0, 6)
    assert gdr_modes(without) == []


def test_gpus_before_ampere_send_directly_only_beside_nvlink() -> None:
    linked = cpu(switch(1, gpu(0x10, 0, direct(0x20), 70) + nic(0x11, 0)) + gpu(0x20, 1, direct(0x10), 70))
    alone = cpu(switch(1, gpu(0x10, 0, "", 70) + nic(0x11, 0)) + gpu(0x20, 1, "", 70))
    assert (0, 0, GDR_DEFAULT, GDR_DEFAULT) in gdr_modes(computed(linked).system)
    assert gdr_modes(computed(alone).system) == [(0, 0, GDR_DEFAULT, 0)]


def test_three_nics_for_four_gpus() -> None:
    text = "".join(gpu(0x10 + n, n) for n in range(4)) + "".join(nic(0x20 + n, n) for n in range(3))
    assert local_nets(computed(cpu(text)).system) == [[0], [1], [2], [0]]
    assert [mirror_bits(n, 4) for n in range(4)] == [0, 2, 1, 3]


def test_nics_are_shared_with_mirrored_bits() -> None:
    text = "".join(gpu(0x10 + n, n) for n in range(2)) + "".join(nic(0x20 + n, n) for n in range(4))
    assert local_nets(computed(cpu(text)).system) == [[0, 1], [2, 3]]


@BOTH
def test_two_trays_are_one_system_if_their_clique_is_one(version: Version) -> None:
    result = computed(tray(1, 0) + tray(2, 4), version)
    assert (result.comm.mnnvl, result.comm.hosts_with_gpus, result.removed) == (True, 2, ())
    assert cell(result.system, (GPU, 0), (GPU, 7))[0] == "NVL"
    assert cell(result.system, (GPU, 0), (NET, 4))[0] == "DIS"
    assert [net.local_gpu for net in result.system.nets()] == list(range(8))


@pytest.mark.parametrize(
    "options",
    [
        CommOptions(mnnvl=False),
        CommOptions(cliques={0: 1, 1: 2}),
        CommOptions(uuids={0: 5, 1: 6}),
        CommOptions(uuids={0: 0, 1: 0}),
    ],
    ids=["off", "cliques", "fabrics", "no fabric"],
)
@pytest.mark.parametrize("rank", [0, 5])
def test_other_cliques_and_fabrics_are_trimmed(options: CommOptions, rank: int) -> None:
    result = computed(tray(1, 0) + tray(2, 4), NEW, replace(options, rank=rank))
    first = rank // 4 * 4
    assert [node.rank for node in result.system.gpus()] == [first, first + 1, first + 2, first + 3]
    assert result.system.system_id == rank // 4
    assert len(result.removed) == 4
    view = sized(result, 1)
    assert (view.system.inter, view.comm.n_ranks) == (1, 8)


@BOTH
def test_a_tray_without_nvlink_is_lost_to_the_others(version: Version) -> None:
    dark = tray(2, 4).replace(SWITCHED, "")
    assert [node.rank for node in computed(tray(1, 0) + dark, version).removed] == [4, 5, 6, 7]


@BOTH
def test_one_dark_gpu_stays_and_slows_its_tray(version: Version) -> None:
    result = computed(tray(1, 0, dark=1), version)
    assert result.removed == ()
    assert cell(result.system, (GPU, 0), (GPU, 1))[0] == "C2C"
    assert cell(result.system, (GPU, 2), (GPU, 1))[:2] == ("SYS", 6.0)


def test_no_links_and_zero_links_are_not_the_same_from_2_30_on() -> None:
    text = cpu(gpu(0x10, 0, direct(0x20)) + gpu(0x20, 1, direct(0x10)), what=AMD).replace('count="4"', 'count="0"')
    assert cell(computed(text).system, (GPU, 0), (GPU, 1))[:2] == ("NVL", 0.0)
    assert cell(computed(text, OLD).system, (GPU, 0), (GPU, 1))[:2] == ("PHB", 48.0)


def test_sizes_set_the_limits_of_the_search() -> None:
    result = computed(tray(1, 0))
    alone, two = sized(result, 1), sized(result, 2)
    assert (alone.system.inter, alone.system.max_bw) == (0, as_float(18 * as_float(40.1)))
    assert (two.system.inter, two.system.max_bw, two.comm.n_ranks) == (1, 48.0, 8)
    assert alone.system.total_bw == two.system.total_bw == as_float(18 * as_float(40.1))
    two.system.link_bw[0] = 0.0
    assert alone.system.link_bw[0] == result.system.link_bw[0] != 0.0
    one_gpu = sized(computed(cpu(gpu(0x10, 0)))).system
    assert (one_gpu.max_bw, one_gpu.total_bw) == (5000.0, 5000.0)


def test_p2p_channels_follow_nvlink_and_nics() -> None:
    result = computed(tray(1, 0))
    assert p2p_channels_per_peer(result.system, sized(result, 1).comm) == 36
    assert p2p_channels_per_peer(result.system, sized(result, 2).comm) == 4
    pair = computed(cpu(gpu(0x10, 0, "") + gpu(0x20, 1, "")))
    assert p2p_channels_per_peer(pair.system, pair.comm) == 2


def test_two_nvlink_islands_are_a_split() -> None:
    near = gpu(0x10, 0, direct(0x11)) + gpu(0x11, 1, direct(0x10))
    far = gpu(0x20, 2, direct(0x21)) + gpu(0x21, 3, direct(0x20))
    assert split_nvlink(computed(cpu(near, 0) + cpu(far, 1)).system)
    assert not split_nvlink(computed(cpu(near)).system)


def test_systems_without_gpus_and_without_nets() -> None:
    assert computed(cpu(nic(0x10, 0))).comm.n_ranks == 0
    nothing = computed(cpu(gpu(0x10, 0))).system
    with pytest.raises(TopologyRefused, match="refuses"):
        local_nets(nothing)


@BOTH
def test_a_tray_without_nics_beside_one_with_nics_kills_nccl(version: Version) -> None:
    with pytest.raises(TopologyRefused) as caught:
        computed(tray(1, 0) + tray(2, 4, nets=0), version)
    assert (caught.value.crashes, caught.value.stage) == (True, "paths")
    assert caught.value.fix is not None
    assert "GPU/1-106000 has no path to any NET" in caught.value.fix
    assert computed(tray(1, 0, nets=0) + tray(2, 4, nets=0), version).system.count(GPU) == 8
    assert computed(tray(1, 0) + tray(2, 4, nets=1), version).system.count(GPU) == 8


def test_ranks_are_checked() -> None:
    with pytest.raises(UsageError):
        computed(cpu(gpu(0x10, 0)), NEW, CommOptions(rank=3))
    with pytest.raises(TopologyRefused) as caught:
        computed(cpu(gpu(0x10, 70000)))
    assert (caught.value.stage, str(caught.value.where)) == ("communicator", "made.xml:4")


def test_two_gpus_with_one_bus_id_share_a_device_and_everything_else() -> None:
    system = computed(cpu(gpu(0x10, 0) + gpu(0x10, 1))).system
    assert cell(system, (GPU, 0), (GPU, 1)) == ("LOC", 5000.0, 2)


def test_what_is_printed() -> None:
    lines = list(printed(sized(computed(cpu(switch(1, gpu(0x10, 0) + nic(0x11, 0))))).system))
    assert lines == [
        "=== System : maxBw 5000.0 totalBw 5000.0 ===",
        "CPU/0-0 (1/1/3)",
        "+ PCI[48.0] - PCI/0-1000 (0)",
        "              + PCI[48.0] - DEV/0-10000 (0)",
        "                            + LOC[5000.0] - GPU/0-10000",
        "                            + NVL[370.8] - NVS/0-0",
        "              + PCI[48.0] - NIC/0-11000",
        "                            + NET[50.0] - NET/0-0 (0/1/0/50.000000)",
        "==========================================",
        "GPU/0-10000 :GPU/0-10000 (0/5000.0/LOC) NVS/0-0 (2/370.8/NVL) CPU/0-0 (3/48.0/PHB) NET/0-0 (4/48.0/PIX)"
        " DEV/0-10000 (1/5000.0/LOC) ",
        "NET/0-0 :GPU/0-10000 (4/48.0/PIX) CPU/0-0 (3/48.0/PHB) NET/0-0 (0/5000.0/LOC) DEV/0-10000 (3/48.0/PIX) ",
    ]


@pytest.mark.parametrize(("depth", "crashes"), [(70, False), (72, True)])
def test_too_many_bridges_in_a_row_overrun_nccls_print_buffer(depth: int, crashes: bool) -> None:
    inside = gpu(0xF0, 0)
    for bus in range(depth):
        inside = switch(bus, inside)
    if not crashes:
        assert computed(cpu(inside)).system.count(GPU) == 1
        return
    with pytest.raises(TopologyRefused) as caught:
        computed(cpu(inside))
    assert caught.value.crashes
