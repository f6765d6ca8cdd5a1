"""Generated topology files: what is in them, that reader and lint are content, and what ranks make of them."""

from dataclasses import replace

import pytest

from rackyard.errors import UsageError
from rackyard.fabric.model import Cpu, DomainKey, Gpu, Nic, Node, PciDevice
from rackyard.fabric.simulate import simulate
from rackyard.nccl.generate import generate
from rackyard.nccl.generatehost import affinity, hardware_of
from rackyard.nccl.lint import lint
from rackyard.nccl.load import load
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import parse

VERSIONS = [Version.parse(text) for text in ("2.18.1", "2.21.5", "2.26.6", "2.29.7", "2.30.7", "2.31", "2.32")]


def bridge(bdf: str, parent: str, numa: int, speed: str = "32.0 GT/s PCIe", width: int = 16) -> PciDevice:
    return PciDevice(bdf, parent, numa, "0x060400", "0x15b3", "0x197c", "0x0000", "0x0000", speed, width)


TREE = (
    bridge("0008:00:00.0", "", 0, "64.0 GT/s PCIe"),
    bridge("0008:01:00.0", "0008:00:00.0", 0, "64.0 GT/s PCIe"),
    bridge("0008:02:00.0", "0008:01:00.0", 0, "16.0 GT/s PCIe", 1),
    PciDevice("0008:06:00.0", "0008:02:00.0", 0, "0x030200", "0x10de", "0x31c2", "", "", "64.0 GT/s PCIe", 16),
    bridge("0018:00:00.0", "", 1),
    PciDevice("0018:06:00.0", "0018:00:00.0", 1, "0x030200", "0x10de", "0x31c2", "", "", "64.0 GT/s PCIe", 16),
    PciDevice("0018:07:00.0", "0018:00:00.0", 1, "0x020700", "0x15b3", "0x1023", "", "", "Unknown", 63),
    PciDevice("0018:08:00.0", "0018:00:00.0", 1, "0x010802"),
)
TRAY = Node(
    "tray-1",
    "nvl72-tray",
    "r1",
    1,
    DomainKey("uuid", 1),
    (
        Gpu(0, "GB300", "GPU-0", "00000008:06:00.0", 0, 18, 268.2),
        Gpu(1, "GB300", "GPU-1", "0018:06:00.0", 1, 17, 268.2),
    ),
    (Nic(0, "mlx5_0", 0, 800, 1, "0018:07:00.0", "leaf", guid="0x9a70500003ae6d94"),),
    (Cpu(0, "0-71", "aarch64"), Cpu(1, "72-143", "aarch64"), Cpu(2, "")),
    pci=TREE,
)
SERVER = Node(
    "server-1",
    "hgx",
    "r1",
    1,
    DomainKey("node:server-1", 0),
    (Gpu(0, "H100", "GPU-0", "0000:1B:00.0", 0, 18, 79.6),),
    (Nic(0, "mlx5_0", 0, 400, 0, "", "leaf"),),
    (Cpu(0, "0-31,64-95", "x86_64", "AuthenticAMD", 25, 17),),
)


def test_a_tray() -> None:
    root = parse(generate(TRAY).encode(), "f", VERSIONS[0]).root
    assert root is not None
    assert [cpu.attrs for cpu in root.children] == [
        {"numaid": "0", "affinity": "000000ff,ffffffff,ffffffff", "arch": "arm64"},
        {"numaid": "1", "affinity": "0000ffff,ffffffff,ffffff00,00000000,00000000", "arch": "arm64"},
    ]
    assert [pci.get("busid") for pci in root.find_all("pci")] == [
        "0008:01:00.0", "0008:06:00.0", "0018:06:00.0", "0018:07:00.0",  # NCCL passes the port above each device
    ]  # fmt: skip
    gpu = root.find("pci", busid="0008:06:00.0")
    assert gpu is not None
    assert gpu.attrs == {
        "busid": "0008:06:00.0",
        "class": "0x030200",
        "vendor": "0x10de",
        "device": "0x31c2",
        "link_speed": "16.0 GT/s PCIe",  # the lesser end of the link
        "link_width": "1",
    }
    nic = root.find("pci", busid="0018:07:00.0")
    assert nic is not None
    assert "link_speed" not in nic.attrs
    assert root.find("gpu") is None
    assert root.find("net") is None


def test_pinned_links() -> None:
    text = generate(TRAY, pin_links=True)
    root = parse(text.encode(), "f", VERSIONS[-1]).root
    assert root is not None
    gpus = list(root.find_all("gpu"))
    assert [gpu.attrs for gpu in gpus] == [{"dev": "0", "sm": "103"}, {"dev": "1", "sm": "103"}]
    assert [link.attrs for link in gpus[1].children] == [
        {"target": "fffffff:ffff:ff", "count": "17", "tclass": "0x068000"},
        {"bw": "44712", "count": "5"},
    ]


def test_without_a_pci_tree() -> None:
    text = generate(SERVER)
    assert text.startswith("<!-- No PCI tree was known")
    root = parse(text.encode(), "f", VERSIONS[0]).root
    assert root is not None
    assert [(element.name, element.attrs) for element in root.walk()][1:] == [
        (
            "cpu",
            {
                "numaid": "0",
                "affinity": "ffffffff,00000000,ffffffff",
                "arch": "x86_64",
                "vendor": "AuthenticAMD",
                "familyid": "25",
                "modelid": "17",
            },
        ),
        ("pci", {"busid": "0000:1b:00.0", "class": "0x030200"}),
    ]


@pytest.mark.parametrize("node", [TRAY, SERVER, *simulate(racks=1, trays=1, hgx=1).nodes], ids=lambda node: node.name)
@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_our_own_lint_is_silent(node: Node, version: Version) -> None:
    quiet = [
        finding for finding in lint(generate(node).encode(), "f", version) if finding.rule != "nccl-xml/connectx-8"
    ]
    assert quiet == []
    pinned = {finding.rule for finding in lint(generate(node, pin_links=True).encode(), "f", version)}
    assert pinned <= {
        "nccl-xml/links-in-file",
        "nccl-xml/stale-values",
        "nccl-xml/uneven-nvlinks",
        "nccl-xml/newer-element",
        "nccl-xml/connectx-8",
    }


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_ranks_make_one_tree_of_it(version: Version) -> None:
    root = parse(generate(TRAY).encode(), "f", version).root
    tree = load(root, hardware_of(TRAY), version)
    assert [cpu.get("numaid") for cpu in tree.children] == ["0", "1"]
    assert [gpu.get("rank") for gpu in tree.find_all("gpu")] == ["0", "1"]
    assert [link.get("count") for link in tree.find_all("nvlink")] == ["18", "17"]
    net = tree.find("net")
    assert net is not None
    assert (net.get("speed"), net.get("guid")) == ("800000", "0x9a70500003ae6d94")


def test_affinity() -> None:
    assert affinity("") == ""
    assert affinity("0") == "00000001"
    assert affinity("31-32, 64") == "00000001,00000001,80000000"
    assert affinity("nonsense") == ""
    huge = replace(SERVER, cpus=(Cpu(0, "0-1023"),))
    assert "affinity" not in generate(huge)


def test_what_can_not_be_generated() -> None:
    for broken in (
        replace(SERVER, gpus=()),
        replace(SERVER, gpus=(replace(SERVER.gpus[0], pci=""),)),
        replace(SERVER, gpus=(replace(SERVER.gpus[0], pci="GPU0"),)),
        replace(SERVER, nics=tuple(replace(TRAY.nics[0], pci=f"{n:04x}:01:00.0") for n in range(120))),
    ):
        with pytest.raises(UsageError):
            generate(broken)
    for unknown in (replace(SERVER, cpus=()), replace(SERVER, gpus=(replace(SERVER.gpus[0], kind="X1"),))):
        with pytest.raises(UsageError):
            hardware_of(unknown)


def test_a_loop_in_the_tree_ends() -> None:
    loop = (bridge("0000:01:00.0", "0000:02:00.0", 0), bridge("0000:02:00.0", "0000:01:00.0", 0))
    gpu = PciDevice("0000:1b:00.0", "0000:02:00.0", 0, "0x030200")
    assert generate(replace(SERVER, pci=(*loop, gpu))).count("<pci") == 2
