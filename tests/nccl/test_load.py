"""Loading a topology file on a host: what each rank fills in, and what the fused tree is."""

import pytest

from rackyard.errors import UsageError
from rackyard.nccl.element import Element
from rackyard.nccl.hardware import Hardware, HostCpu, HostGpu, HostNet
from rackyard.nccl.load import load, load_clique
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import parse
from rackyard.nccl.xmlrefused import TopologyRefused

V = Version(2, 30, 7)
CPU = HostCpu("x86_64", "AuthenticAMD", 25, 17, {"0": "000000ff", "1": "0000ff00"})
FILE = b"""<system version="1">
  <cpu numaid="0">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
      <pci busid="0000:03:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16"/>
    </pci>
    <pci busid="0000:09:00.0" class="0x010802"/>
  </cpu>
  <cpu numaid="1">
    <pci busid="0000:82:00.0" class="0x030200"/>
  </cpu>
</system>
"""
HOST = Hardware(
    (HostGpu("0000:02:00.0", 90, 18), HostGpu("0000:82:00.0", 90, 18, pci_generation=5, pci_width=16)),
    (HostNet("mlx5_0", "0000:03:00.0", 400000, guid=0x1234),),
    CPU,
    host_hash=0xABC,
)


def root(text: bytes = FILE) -> Element:
    parsed = parse(text, "f", V).root
    assert parsed is not None
    return parsed


def test_fills_what_the_file_leaves_out() -> None:
    before = root()
    tree = load(before, HOST, V)
    assert [cpu.attrs for cpu in before.children] == [{"numaid": "0"}, {"numaid": "1"}]
    cpu = tree.find("cpu", numaid="1")
    assert cpu is not None
    assert cpu.attrs == {
        "numaid": "1",
        "host_hash": "0xabc",
        "affinity": "0000ff00",
        "arch": "x86_64",
        "vendor": "AuthenticAMD",
        "familyid": "25",
        "modelid": "17",
    }
    gpus = list(tree.find_all("gpu"))
    assert [gpu.get("rank") for gpu in gpus] == ["0", "1"]
    assert all(gpu.attrs.keys() == {"dev", "sm", "rank", "gdr", "mlopart"} for gpu in gpus)
    pci = tree.find("pci", busid="0000:82:00.0")
    assert pci is not None
    assert (pci.get("link_speed"), pci.get("link_width")) == ("32.0 GT/s PCIe", "16")
    net = tree.find("net")
    assert net is not None
    assert net.get("guid") == "0x1234"
    assert tree.find("pci", busid="0000:09:00.0") is None


def test_links_in_the_file_hide_the_hardware() -> None:
    text = FILE.replace(
        b'link_width="16"/>\n      <pci busid="0000:03',
        b'link_width="16"><gpu><nvlink target="fffffff:ffff:ff" count="2" tclass="0x068000"/></gpu></pci>'
        b'\n      <pci busid="0000:03',
    )
    assert [link.get("count") for link in load(root(text), HOST, V).find_all("nvlink")] == ["2", "18"]


def test_upper_case_bus_id_is_not_matched() -> None:
    host = Hardware((HostGpu("0000:0a:00.0", 90, 18),), (), CPU)
    text = b'<system version="1"><cpu numaid="0"><pci busid="0000:0A:00.0" class="0x030200"/></cpu></system>'
    tree = load(root(text), host, V)
    assert [cpu.get("numaid") for cpu in tree.children] == ["-1"]
    pci = tree.find("pci")
    assert pci is not None
    assert pci.attrs == {"busid": "0000:0a:00.0", "class": "0x03", "link_speed": "16.0 GT/s", "link_width": "16"}


def test_nets_in_the_file_need_a_complete_file() -> None:
    nets = FILE.replace(
        b'0x020700" link_speed="32.0 GT/s PCIe" link_width="16"/>',
        b'0x020700" link_speed="32.0 GT/s PCIe" link_width="16"><nic><net name="mlx5_0"/></nic></pci>',
    )
    bare = load(root(), HOST, V)
    assert len(list(bare.find_all("net"))) == 1
    assert len(list(load(root(nets), HOST, V).find_all("net"))) == 2


def test_no_file_and_virtual_nic() -> None:
    tree = load(None, Hardware(HOST.gpus, (HostNet("eth0", None, 100000),), CPU), V)
    assert [cpu.get("numaid") for cpu in tree.children] == ["-1"]
    assert tree.children[0].child("nic") is not None


def test_direct_links_and_c2c() -> None:
    gpu = HostGpu("0000:02:00.0", 100, 6, "0000:82:00.0", c2c_links=5, c2c_mbps=44712)
    tree = load(root(), Hardware((gpu,), (), CPU, pci_classes={"0000:82:00.0": "0x030200"}), V)
    link, c2c = tree.find("nvlink"), tree.find("c2c")
    assert link is not None
    assert c2c is not None
    assert link.attrs == {"target": "0000:82:00.0", "count": "6", "tclass": "0x030200"}
    assert c2c.attrs == {"bw": "44712", "count": "5"}


def test_before_fusion_every_rank_saw_all() -> None:
    assert len(list(load(root(), HOST, Version(2, 18, 1)).find_all("gpu"))) == 2


def test_clique_counts_ranks_through() -> None:
    other = Hardware(HOST.gpus, HOST.nets, CPU, host_hash=0xDEF)
    tree = load_clique([(root(), HOST), (root(), other)], V)
    assert [gpu.get("rank") for gpu in tree.find_all("gpu")] == ["0", "1", "2", "3"]
    assert [cpu.get("host_hash") for cpu in tree.children] == ["0xabc", "0xabc", "0xdef", "0xdef"]


def test_too_many_attributes_crash() -> None:
    extra = b" ".join(b'x%d="1"' % number for number in range(16))
    text = FILE.replace(b'link_width="16"/>', b'link_width="16"><gpu ' + extra + b"/></pci>", 1)
    with pytest.raises(TopologyRefused) as caught:
        load(root(text), HOST, V)
    assert caught.value.crashes


def test_no_room_for_what_is_added() -> None:
    text = b'<system version="1"><cpu numaid="0">' + b'<pci busid="x" class="0x060400"/>' * 253 + b"</cpu></system>"
    with pytest.raises(TopologyRefused, match="refuses"):
        load(root(text), HOST, V)


def test_cpu_without_numaid() -> None:
    with pytest.raises(TopologyRefused) as caught:
        load(root(FILE.replace(b' numaid="0"', b"")), HOST, V)
    assert caught.value.nccl_message == "GetXmlFromCpu : could not find CPU numa ID."


def test_no_gpu() -> None:
    with pytest.raises(UsageError):
        load(root(), Hardware((), (), CPU), V)
