"""GB300 compute trays as topology files, made up: the structure is that of a published dump, the numbers are ours.

A tray has two Grace CPUs, four GPUs with 18 NVLinks to the switches and C2C to their CPU, and four 800G NICs.
"""

from rackyard.nccl.element import Element

GPUS_PER_TRAY = 4
NVLINKS = 18


def rack(trays: int, *, dark: frozenset[int] = frozenset()) -> Element:
    """The fused topology of a number of trays; the GPUs with ranks in ``dark`` have no NVLinks."""
    system = Element("system", {"version": "1"})
    for tray in range(trays):
        for socket in range(2):
            system.children.append(_cpu(tray, socket, dark))
    return system


def _cpu(tray: int, socket: int, dark: frozenset[int]) -> Element:
    first = 72 * socket
    mask = f"{((1 << 72) - 1) << first:040x}"
    affinity = ",".join(mask[at : at + 8] for at in range(0, 40, 8))
    cpu = Element(
        "cpu", {"host_hash": f"0x{0xC0DE + tray:x}", "numaid": str(socket), "affinity": affinity, "arch": "arm64"}
    )
    for half in range(2):
        dev = 2 * socket + half
        cpu.children.append(_gpu(tray, socket, dev, dark))
        cpu.children.append(_nic(tray, socket, dev))
    return cpu


def _pci(busid: str, pci_class: str, *children: Element) -> Element:
    link = {"link_speed": "64.0 GT/s PCIe", "link_width": "16"}
    return Element("pci", {"busid": busid, "class": pci_class, **link}, list(children))


def _gpu(tray: int, socket: int, dev: int, dark: frozenset[int]) -> Element:
    rank = GPUS_PER_TRAY * tray + dev
    domain = f"{16 * socket + 8 + dev % 2:04x}"
    gpu = Element("gpu", {"dev": str(dev), "sm": "103", "rank": str(rank), "gdr": "1"})
    if rank not in dark:
        gpu.children.append(
            Element("nvlink", {"target": "fffffff:ff:ff.0", "count": str(NVLINKS), "tclass": "0x068000"})
        )
    gpu.children.append(Element("c2c", {"bw": "44712", "count": "5"}))
    return _pci(f"{domain}:00:00.0", "0x060400", _pci(f"{domain}:06:00.0", "0x030200", gpu))


def _nic(tray: int, socket: int, dev: int) -> Element:
    net = Element(
        "net",
        {
            "name": f"mlx5_{dev}",
            "dev": str(dev),
            "speed": "800000",
            "port": "1",
            "latency": "0.000000",
            "guid": f"0x{0xFAB000 + GPUS_PER_TRAY * tray + dev:x}",
            "maxconn": "131072",
            "gdr": "1",
        },
    )
    return _pci(f"{16 * socket + 2 * (dev % 2):04x}:03:00.0", "0x020700", Element("nic", {}, [net]))
