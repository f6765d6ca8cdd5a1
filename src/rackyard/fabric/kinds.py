"""The machines the simulator and the short YAML form know: what is in one node of each, with where each figure is from.

Figures marked [facts] are in `shared/facts/topology.md` §3; what is marked [assumed] is a plausible value of ours that
nothing may rely on but the simulator. [public] figures come from vendors' public documents as remembered; they were not
checked against a stored copy.
"""

from dataclasses import dataclass

from rackyard.fabric.model import NodeKind


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
    cpus: tuple[tuple[int, str], ...]
    """(NUMA node, its CPUs)."""


_GRACE_CPUS = ((0, "0-71"), (1, "72-143"))  # [facts] topo -m dumps: GPU0,1 on node 0; GPU2,3 on node 1
_XEON_CPUS = ((0, "0-55,112-167"), (1, "56-111,168-223"))  # [public] DGX H100: two 56-core Xeons

# Blackwell: 18 NVLink 5 links of 100 GB/s both ways [facts]; Hopper: 18 NVLink 4 links [public]
_LINKS = 18

_HGX_GPU_PCI = tuple(
    f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
)  # [public] DGX H100
_HGX_NICS = tuple(f"mlx5_{n}" for n in (0, 3, 4, 5, 6, 9, 10, 11))  # [public] the eight compute HCAs
_HGX_NIC_PCI = tuple(f"0000:{bus}:00.0" for bus in ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc"))  # [public]


def _hgx(gpu: str, memory_gib: float) -> NodeShape:
    numa = (0, 0, 0, 0, 1, 1, 1, 1)
    names, pci = _HGX_NICS, _HGX_NIC_PCI
    return NodeShape("hgx", gpu, memory_gib, _LINKS, _HGX_GPU_PCI, numa, names, pci, 400, _XEON_CPUS)


SHAPES: dict[str, NodeShape] = {
    "GB200": NodeShape(
        kind="nvl72-tray",
        gpu="GB200",
        memory_gib=185.0,  # [facts] 189 471 MiB, MLPerf 5.1
        nvlinks=_LINKS,
        gpu_pci=("0008:01:00.0", "0009:01:00.0", "0018:01:00.0", "0019:01:00.0"),  # [assumed]
        gpu_numa=(0, 0, 1, 1),
        nic_names=("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"),  # [facts] DGX GB200, rails 0-3
        nic_pci=("0000:03:00.0", "0002:03:00.0", "0010:03:00.0", "0012:03:00.0"),  # [assumed]
        nic_gbps=400,  # [facts] four ConnectX-7
        cpus=_GRACE_CPUS,
    ),
    "GB300": NodeShape(
        kind="nvl72-tray",
        gpu="GB300",
        memory_gib=268.2,  # [facts] nominal 288 GB = 268.2 GiB
        nvlinks=_LINKS,
        gpu_pci=("0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0"),  # [facts] §2, GB300 dump
        gpu_numa=(0, 0, 1, 1),
        nic_names=("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"),  # [assumed] names differ by cloud
        nic_pci=("0000:03:00.0", "0002:03:00.0", "0010:03:00.0", "0012:03:00.0"),  # [assumed]
        nic_gbps=800,  # [facts] four ConnectX-8
        cpus=_GRACE_CPUS,
    ),
    "H100": _hgx("H100", 79.6),  # [public] 81 559 MiB in nvidia-smi
    "H200": _hgx("H200", 140.4),  # [public] 143 771 MiB in nvidia-smi
}

TRAYS_PER_RACK = 18  # [facts] DGX GB200 guide
SWITCH_TRAYS_PER_RACK = 9  # [facts] same
ASICS_PER_SWITCH_TRAY = 2  # [facts] same
LEAF_UPLINKS = 18  # [facts] public eight-rack fabric: 18 uplinks of each leaf
SPINES = 9  # [facts] ... to 9 spines
HGX_PER_RACK = 4  # [public] DGX SuperPOD H100
