"""sysfs: the compact table, a tree of files, and lspci."""

from pathlib import Path

import pytest
from tests.conftest import Fuzz

from rackyard.errors import SpecError
from rackyard.fabric.facts import Facts
from rackyard.fabric.readers import bundle, sysfs_lspci, sysfs_table, sysfs_tree
from rackyard.fabric.readers import sysfs_values as values
from rackyard.fabric.readers.reader import Capture, head_of

TABLE = """\
#rackyard-sysfs 1
host\t6.8.0-1030-nvidia-64k\tGB300 NVL\taarch64\t\t\t
cpu\t0\t0-71
cpu\t1\t72-143
pci\t0002:00:00.0\t\t0\t0x060400\t0x10de\t0x22b8\t0x10de\t0x0000\t32.0 GT/s PCIe\t64.0 GT/s PCIe\t16\t16
pci\t0002:03:00.0\t0002:00:00.0\t0\t0x020700\t0x15b3\t0x1023\t0x15b3\t0x0001\t64.0 GT/s PCIe\tUnknown\t0\t255
pci\t000A:01:00.0\t\t-1\t0x030200\t0x10de\t0x31c2\t\t\t\t\t\t
net\tibp3s0\t0002:03:00.0\t0
net\tibp3s0d1\t0002:03:00.0\t1
ib\tmlx5_0\t1\t0002:03:00.0\t0\t946d:ae03:00f1:2a44\tNVD0000000049\tMT4131\t40.45.1020\t800 Gb/sec (4X XDR)\t\
4: ACTIVE\t5: LinkUp\tInfiniBand
ib\tmlx5_0\t2\t0002:03:00.0\t0\t0000:0000:0000:0000\t\t\t\t10 Gb/sec (4X SDR)\t1: DOWN\t2: Polling\tEthernet
later\tkind of row
"""

ROOT = "devices/pci0002:00/0002:00:00.0"
TREE = {
    f"{ROOT}/class": "0x060400\n",
    f"{ROOT}/vendor": "0x10de\n",
    f"{ROOT}/device": "0x22b8\n",
    f"{ROOT}/numa_node": "0\n",
    f"{ROOT}/max_link_speed": "64.0 GT/s PCIe\n",
    f"{ROOT}/max_link_width": "16\n",
    f"{ROOT}/0002:03:00.0/class": "0x020700\n",
    f"{ROOT}/0002:03:00.0/numa_node": "0\n",
    f"{ROOT}/0002:03:00.0/net/ibp3s0/dev_port": "0\n",
    f"{ROOT}/0002:03:00.0/infiniband/mlx5_0/node_guid": "946d:ae03:00f1:2a44\n",
    f"{ROOT}/0002:03:00.0/infiniband/mlx5_0/fw_ver": "40.45.1020\n",
    f"{ROOT}/0002:03:00.0/infiniband/mlx5_0/ports/1/rate": "800 Gb/sec (4X XDR)\n",
    f"{ROOT}/0002:03:00.0/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    f"{ROOT}/0002:03:00.0/infiniband/mlx5_0/ports/1/phys_state": "5: LinkUp\n",
    f"{ROOT}/0002:03:00.0/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
    "devices/system/node/node0/cpulist": "0-71\n",
    "devices/system/node/node2/cpulist": "\n",
    "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: X\n\n"
    "processor\t: 1\nmodel\t: 9\n",
}


def read_table(text: str) -> Facts:
    return sysfs_table.read(Capture("sysfs.tsv", text.encode(), "n1"))


def test_table() -> None:
    facts = read_table(TABLE)
    assert [(host.kernel, host.product) for host in facts.hosts] == [("6.8.0-1030-nvidia-64k", "GB300 NVL")]
    assert [(cpu.numa, cpu.cpus, cpu.arch, cpu.vendor) for cpu in facts.cpus] == [
        (0, "0-71", "arm64", None),
        (1, "72-143", "arm64", None),
    ]
    bridge, hca, gpu = facts.devices()
    assert (bridge.bdf, bridge.parent, bridge.numa, bridge.pci_class) == ("0002:00:00.0", "", 0, "0x060400")
    assert (bridge.speed, bridge.speed_max, bridge.width_max) == ("32.0 GT/s PCIe", "64.0 GT/s PCIe", 16)
    assert (hca.parent, hca.speed_max, hca.width, hca.width_max) == ("0002:00:00.0", None, None, None)
    assert (gpu.bdf, gpu.numa, gpu.subsystem_vendor) == ("000a:01:00.0", None, None)
    assert gpu.source.line == 7


def test_ports_of_the_table() -> None:
    up, down = read_table(TABLE).nics
    assert (up.name, up.port, up.netdev, up.pci, up.numa) == ("mlx5_0", 1, "ibp3s0", "0002:03:00.0", 0)
    assert (up.guid, up.gbps, up.state, up.phys_state) == ("946dae0300f12a44", 800.0, "ACTIVE", "LinkUp")
    assert (up.link_layer, up.firmware, up.board_id, up.hca_type) == (
        "InfiniBand",
        "40.45.1020",
        "NVD0000000049",
        "MT4131",
    )
    assert (down.netdev, down.guid, down.state, down.firmware) == ("ibp3s0d1", None, "DOWN", None)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("pci\t0002:00:00.0\t\t0\t0x06", "5 columns"),
        ("pci\tnonsense" + "\t" * 11, "no PCI address"),
        ("ib\tmlx5_0\tone" + "\t" * 10, "invalid literal"),
        ("cpu\tx\t0-3", "invalid literal"),
        ("ib\t\t1" + "\t" * 10, "no name"),
    ],
)
def test_a_damaged_row_says_where(row: str, why: str) -> None:
    with pytest.raises(SpecError, match=why) as caught:
        read_table(f"{sysfs_table.FIRST}\n{row}\n")
    assert str(caught.value.where) == "sysfs.tsv:2:1"


def test_tree_by_real_paths() -> None:
    facts = sysfs_tree.facts_of("n1", TREE)
    assert [(pci.bdf, pci.parent, pci.numa, pci.width_max) for pci in facts.pci] == [
        ("0002:00:00.0", "", 0, 16),
        ("0002:03:00.0", "0002:00:00.0", 0, None),
    ]
    (nic,) = facts.nics
    assert (nic.name, nic.pci, nic.numa, nic.netdev, nic.gbps) == ("mlx5_0", "0002:03:00.0", 0, "ibp3s0", 800.0)
    assert (nic.guid, nic.state, nic.firmware) == ("946dae0300f12a44", "ACTIVE", "40.45.1020")
    assert nic.source.file == f"/sys/{ROOT}/0002:03:00.0/infiniband/mlx5_0/ports/1/rate"
    assert [(cpu.numa, cpu.cpus, cpu.arch, cpu.vendor, cpu.family, cpu.model) for cpu in facts.cpus] == [
        (0, "0-71", "x86_64", "GenuineIntel", 6, 143)
    ]


def test_tree_by_class_paths_takes_places_from_links() -> None:
    port = "class/infiniband/mlx5_0/ports/1"
    files = {
        "bus/pci/devices/0002:03:00.0/class": "0x020700",
        "bus/pci/devices/0002:03:00.0/numa_node": "1",
        f"{port}/state": "2: INIT",
    }
    links = {
        "bus/pci/devices/0002:03:00.0": f"../../../{ROOT}/0002:03:00.0",
        "class/infiniband/mlx5_0": f"../../{ROOT}/0002:03:00.0/infiniband/mlx5_0",
        "class/net/ibp3s0": f"../../{ROOT}/0002:03:00.0/net/ibp3s0",
        "class/net/lo": "../../devices/virtual/net/lo",
    }
    facts = sysfs_tree.facts_of("n1", files, links)
    assert [(pci.bdf, pci.parent) for pci in facts.pci] == [("0002:03:00.0", "0002:00:00.0")]
    assert [(nic.pci, nic.numa, nic.netdev, nic.state) for nic in facts.nics] == [
        ("0002:03:00.0", 1, "ibp3s0", "INIT"),
    ]


def test_a_tree_as_a_capture_reads_the_same() -> None:
    data = sysfs_tree.flat_tree(((path, text.encode()) for path, text in TREE.items()), {})
    capture = Capture("tree", data, "n1")
    assert sysfs_tree.READER.knows(head_of(capture), "")
    flat, walked = sysfs_tree.read(capture), sysfs_tree.facts_of("n1", TREE)
    assert [nic.guid for nic in flat.nics] == [nic.guid for nic in walked.nics]
    assert [cpu.model for cpu in flat.cpus] == [143]
    assert [pci.bdf for pci in flat.pci] == [pci.bdf for pci in walked.pci]
    assert flat.pci[0].source.line == 2


def test_arm_processors_have_no_x86_numbers() -> None:
    assert sysfs_tree.processor("processor\t: 0\nCPU implementer\t: 0x41\n") == ("arm64", None, None, None)
    assert sysfs_tree.processor("") == (None, None, None, None)


def test_values() -> None:
    assert values.gbps_of("2.5 Gb/sec (1X SDR)") == 2.5
    assert values.gbps_of("") is None
    assert values.state_of("3: ARMED") == "ARMED"
    assert values.cpus_of("") is None
    assert values.cpus_of("0-3,8") == "0-3,8"
    assert values.netdev_of(1, [(0, "a"), (0, "b")]) is None
    assert values.netdev_of(2, [(0, "a")]) == "a"


def test_lspci_with_and_without_domains() -> None:
    text = (
        "00:00.0 Host bridge [0600]: Intel Corporation Device [8086:09a2] (rev 04)\n"
        "0009:06:00.0 3D controller [0302]: NVIDIA Corporation GB300 [x] [10de:31c2]\n\tKernel driver in use: nvidia\n"
    )
    assert sysfs_lspci.READER.knows(text, "")
    facts = sysfs_lspci.read(Capture("lspci.txt", text.encode(), "n1"))
    assert [(pci.bdf, pci.pci_class, pci.vendor, pci.device) for pci in facts.pci] == [
        ("0000:00:00.0", "0x060000", "0x8086", "0x09a2"),
        ("0009:06:00.0", "0x030200", "0x10de", "0x31c2"),
    ]


@pytest.mark.parametrize("reader", [sysfs_table.READER, sysfs_tree.READER, sysfs_lspci.READER])
def test_other_files_are_not_taken(reader: sysfs_table.Reader) -> None:
    assert not reader.knows("", "") and not reader.knows("GPU 0: x\n", "")


def test_fuzz_table(fuzz: Fuzz) -> None:
    fuzz(lambda data: sysfs_table.read(Capture("f", data)), [TABLE.encode()])


def test_fuzz_tree(fuzz: Fuzz) -> None:
    data = sysfs_tree.flat_tree(((path, text.encode()) for path, text in TREE.items()), {"class/net/x": ROOT})
    fuzz(lambda data: sysfs_tree.read(Capture("f", data)), [data])


def test_fuzz_lspci(fuzz: Fuzz) -> None:
    seed = b"0009:06:00.0 3D controller [0302]: NVIDIA Corporation GB300 [10de:31c2]\n"
    fuzz(lambda data: sysfs_lspci.read(Capture("f", data)), [seed * 5])


@pytest.mark.corpus
def test_an_h100_server(corpus: Path) -> None:
    path = corpus / "topology/sysfs/gpud-sys-class-infiniband-h100.tar.gz"
    (capture,) = bundle.unpack(Capture(path.name, path.read_bytes(), "h100"))
    assert sysfs_tree.READER.knows(head_of(capture), "")
    nics = sysfs_tree.read(capture).nics
    assert [nic.name for nic in nics] == [*(f"mlx5_{number}" for number in (0, 1, 4, 5, 6, 7, 8, 9)), "mlx5_bond_0"]
    assert {(nic.gbps, nic.link_layer, nic.hca_type, nic.firmware) for nic in nics[:8]} == {
        (400.0, "InfiniBand", "MT4129", "28.41.1000")
    }
    assert (nics[8].gbps, nics[8].link_layer, nics[8].firmware) == (200.0, "Ethernet", "32.38.3056")
    assert {(nic.state, nic.phys_state, nic.guid) for nic in nics} == {("ACTIVE", "LinkUp", None)}


@pytest.mark.corpus
def test_lspci_of_an_a100_server(corpus: Path) -> None:
    path = corpus / "topology/topo_m/gpud-lspci-a100.txt"
    pci = sysfs_lspci.read(Capture(path.name, path.read_bytes(), "a100")).pci
    counts = {kind: sum(one.pci_class == kind for one in pci) for kind in ("0x030200", "0x068000", "0x020700")}
    assert counts == {"0x030200": 8, "0x068000": 6, "0x020700": 8}
    assert (pci[-1].bdf, pci[-1].vendor, pci[-1].device) == ("f392:00:00.0", "0x1414", "0xb111")
