"""The machines the simulator and the short YAML form know: what is in one node of each, with where each figure is from.

Figures marked [facts] are in `shared/facts/topology.md` §3; what is marked [assumed] is a plausible value of ours that
nothing may rely on but the simulator. [public] figures come from vendors' public documents as remembered; they were not
checked against a stored copy.
"""

from dataclasses import dataclass

from rackyard.fabric.model import Cpu, NodeKind, PciDevice


@dataclass(frozen=True, slots=True)
class NodeShape:
    """One node of a kind; tuples are by GPU (or NIC) index."""

    kind: NodeKind
    gpu: str
    memory_gib: float
    nvlinks: int
    gpu_pci: tuple[str, ...]
    gpu_numa: tuple[int, ...]
    nic_names: tuple[str, ...]
    nic_pci: tuple[str, ...]
    nic_gbps: int
    cpus: tuple[Cpu, ...]
    pci: tuple[PciDevice, ...]


# [facts] topo -m dumps: GPU0,1 on node 0; GPU2,3 on node 1
_GRACE_CPUS = (Cpu(0, "0-71", "arm64"), Cpu(1, "72-143", "arm64"))
# [public] DGX H100: two 56-core Xeons of family 6, model 143 (Sapphire Rapids)
_XEON_CPUS = tuple(
    Cpu(numa, cpus, "x86_64", "GenuineIntel", 6, 143) for numa, cpus in ((0, "0-55,112-167"), (1, "56-111,168-223"))
)

_GPU_CLASS, _HCA_CLASS, _BRIDGE_CLASS = "0x030200", "0x020700", "0x060400"
_GEN4, _GEN5, _GEN6 = "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"


def _below_root(
    pci: tuple[str, ...], numa: tuple[int, ...], kind: str, vendor: str, speed: str
) -> tuple[PciDevice, ...]:
    """Devices right below a root port each, x16."""
    return tuple(
        PciDevice(bdf, "", node, kind, vendor, link_speed=speed, link_width=16)
        for bdf, node in zip(pci, numa, strict=True)
    )


def _below_connectx8(gpu: str, numa: int) -> tuple[PciDevice, ...]:
    """A GB300 GPU below the PCI switches of its ConnectX-8, whose uplink shows one lane of Gen4. Buses 01, 04 and 06
    are in the published dump [facts]; NCCL leaves out the ports above each, whose numbers are [assumed].
    """
    chain = (("00", _GEN4, 1), ("01", _GEN4, 1), ("03", _GEN6, 16), ("04", _GEN6, 16), ("05", _GEN6, 16))
    found, above = [], ""
    for bus, speed, width in chain:
        bdf = f"{gpu[:5]}{bus}:00.0"
        ids = ("", "") if bus == "00" else ("0x15b3", "0x197c")
        found.append(PciDevice(bdf, above, numa, _BRIDGE_CLASS, *ids, link_speed=speed, link_width=width))
        above = bdf
    return (*found, PciDevice(gpu, above, numa, _GPU_CLASS, "0x10de", "0x31c2", link_speed=_GEN6, link_width=16))


# Blackwell: 18 NVLink 5 links of 100 GB/s both ways [facts]; Hopper: 18 NVLink 4 links [public]
_LINKS = 18

_HGX_GPU_PCI = tuple(
    f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
)  # [public] DGX H100
_HGX_NICS = tuple(f"mlx5_{n}" for n in (0, 3, 4, 5, 6, 9, 10, 11))  # [public] the eight compute HCAs
_HGX_NIC_PCI = tuple(f"0000:{bus}:00.0" for bus in ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc"))  # [public]


def _hgx(gpu: str, memory_gib: float) -> NodeShape:
    numa = (0, 0, 0, 0, 1, 1, 1, 1)
    names, nics = _HGX_NICS, _HGX_NIC_PCI
    # [assumed] Gen5 x16 at root ports; the PCI switches that GPU and NIC share are left out
    tree = _below_root(_HGX_GPU_PCI, numa, _GPU_CLASS, "0x10de", _GEN5)
    tree += _below_root(nics, numa, _HCA_CLASS, "0x15b3", _GEN5)
    return NodeShape("hgx", gpu, memory_gib, _LINKS, _HGX_GPU_PCI, numa, names, nics, 400, _XEON_CPUS, tree)


_TRAY_NUMA = (0, 0, 1, 1)
_GB200_GPU_PCI = ("0008:01:00.0", "0009:01:00.0", "0018:01:00.0", "0019:01:00.0")  # [assumed]
_GB300_GPU_PCI = ("0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0")  # [facts] §2, GB300 dump
_TRAY_NIC_PCI = ("0000:03:00.0", "0002:03:00.0", "0010:03:00.0", "0012:03:00.0")  # [assumed]

SHAPES: dict[str, NodeShape] = {
    "GB200": NodeShape(
        kind="nvl72-tray",
        gpu="GB200",
        memory_gib=185.0,  # [facts] 189 471 MiB, MLPerf 5.1
        nvlinks=_LINKS,
        gpu_pci=_GB200_GPU_PCI,
        gpu_numa=_TRAY_NUMA,
        nic_names=("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"),  # [facts] DGX GB200, rails 0-3
        nic_pci=_TRAY_NIC_PCI,
        nic_gbps=400,  # [facts] four ConnectX-7
        cpus=_GRACE_CPUS,
        pci=_below_root(_GB200_GPU_PCI, _TRAY_NUMA, _GPU_CLASS, "0x10de", _GEN5)  # [assumed]
        + _below_root(_TRAY_NIC_PCI, _TRAY_NUMA, _HCA_CLASS, "0x15b3", _GEN5),
    ),
    "GB300": NodeShape(
        kind="nvl72-tray",
        gpu="GB300",
        memory_gib=268.2,  # [facts] nominal 288 GB = 268.2 GiB
        nvlinks=_LINKS,
        gpu_pci=_GB300_GPU_PCI,
        gpu_numa=_TRAY_NUMA,
        nic_names=("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"),  # [assumed] names differ by cloud
        nic_pci=_TRAY_NIC_PCI,
        nic_gbps=800,  # [facts] four ConnectX-8
        cpus=_GRACE_CPUS,
        pci=tuple(
            part for gpu, numa in zip(_GB300_GPU_PCI, _TRAY_NUMA, strict=True) for part in _below_connectx8(gpu, numa)
        )
        + _below_root(_TRAY_NIC_PCI, _TRAY_NUMA, _HCA_CLASS, "0x15b3", _GEN6),  # [assumed]
    ),
    "H100": _hgx("H100", 79.6),  # [public] 81 559 MiB in nvidia-smi
    "H200": _hgx("H200", 140.4),  # [public] 143 771 MiB in nvidia-smi
}

TRAYS_PER_RACK = 18  # [facts] DGX GB200 guide
SWITCH_TRAYS_PER_RACK = 9  # [facts] same
ASICS_PER_SWITCH_TRAY = 2  # [facts] same
LEAF_UPLINKS = 18  # [facts] public eight-rack fabric: 18 uplinks of each leaf
SPINES = 9  # [facts] ... to 9 spines
CORES = 4  # [assumed] a few, so that no single switch joins the blocks; every spine reaches all of them
HGX_PER_RACK = 4  # [public] DGX SuperPOD H100
