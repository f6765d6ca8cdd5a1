"""What NCCL finds on a host when it loads a topology file there: GPUs by NVML, NICs by the network plugin, the CPU."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HostCpu:
    """What NCCL writes on a cpu element that lacks it. Family and model are x86 only; None is not answered."""

    arch: str
    vendor: str | None = None
    family: int | None = None
    model: int | None = None
    affinity: Mapping[str, str] = field(default_factory=dict)
    """CPU masks as in sysfs' cpumap, by numaid."""


@dataclass(frozen=True, slots=True)
class HostGpu:
    """One GPU. Its position in `Hardware.gpus` is NVML's index and the rank's place on the host.

    `nvlinks` live links go to `target`, a bus id, or to switches that can't be seen if it is None. `c2c_mbps` is MB/s
    per C2C link. `pci_generation` and `pci_width` are those of the moment; 0 is not answered.
    """

    busid: str
    sm: int
    nvlinks: int = 0
    target: str | None = None
    c2c_links: int = 0
    c2c_mbps: int = 0
    pci_generation: int = 0
    pci_width: int = 0
    gdr: bool = True


@dataclass(frozen=True, slots=True)
class HostNet:
    """One device of the network plugin; its position in `Hardware.nets` is `dev`. No busid: a virtual device."""

    name: str
    busid: str | None
    speed_mbps: int
    port: int = 1
    guid: int = 0
    gdr: bool = True
    max_connections: int = 131072
    latency: int = 0


@dataclass(frozen=True, slots=True)
class Hardware:
    """A host without sysfs: what is not in the file and not here stays unknown, as in a bare container.

    `pci_classes` gives the class of a bus id where sysfs would: it tells a direct NVLink from one to a switch.
    """

    gpus: tuple[HostGpu, ...]
    nets: tuple[HostNet, ...]
    cpu: HostCpu
    host_hash: int = 1
    pci_classes: Mapping[str, str] = field(default_factory=dict)
