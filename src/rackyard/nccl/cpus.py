"""What NCCL makes of a cpu element: architecture, vendor, model, affinity, and how fast it talks to other sockets.

Source: NCCL 2.30.7, ``src/graph/topo.cc`` and ``topo.h``; Intel models are those of ``src/include/graph.h``.
"""

import re
from collections.abc import Callable, Sequence

from rackyard.nccl.element import Element
from rackyard.nccl.linktypes import LOC_BW, UNDEF
from rackyard.nccl.numbers import c_unsigned_long
from rackyard.nccl.topology import CpuNode

ARCH_X86, ARCH_POWER, ARCH_ARM = 1, 2, 3
VENDOR_INTEL, VENDOR_AMD, VENDOR_ZHAOXIN = 1, 2, 3
INTEL_BDW, INTEL_SKL, INTEL_SRP, INTEL_ERP = 1, 2, 3, 4
ZHAOXIN_YONGFENG = 1

_ARCHES = {"x86_64": ARCH_X86, "arm64": ARCH_ARM, "ppc64": ARCH_POWER}
VENDORS = {
    "GenuineIntel": VENDOR_INTEL,
    "AuthenticAMD": VENDOR_AMD,
    "CentaurHauls": VENDOR_ZHAOXIN,
    "  Shanghai  ": VENDOR_ZHAOXIN,
}
# First model of family 6 that counts as each Intel generation.
_INTEL_FROM = ((0xCF, INTEL_ERP), (0x8F, INTEL_SRP), (0x55, INTEL_SKL))
_INTEL_GBPS = {INTEL_ERP: 40.0, INTEL_SRP: 22.0, INTEL_SKL: 10.0, INTEL_BDW: 6.0}
_AFFINITY_BITS = 1024  # CPU_SETSIZE of glibc

Needed = Callable[[Element, str], str]
NeededInt = Callable[[Element, str], int]


def prefix_of(text: str, table: dict[str, int], default: int) -> int:
    """Value of the first key that the text starts with: NCCL compares no further than the key's length."""
    for key, value in table.items():
        if text.startswith(key):
            return value
    return default


def identify(cpu: CpuNode, element: Element, need: Needed, need_int: NeededInt, *, amd_family: bool) -> None:
    """Set arch, vendor, model and affinity of a CPU node from its element; ``need`` raises for a missing attribute."""
    cpu.affinity = affinity(element.get("affinity") or "")
    cpu.arch = prefix_of(need(element, "arch"), _ARCHES, 0)
    if cpu.arch != ARCH_X86:
        return
    cpu.vendor = prefix_of(need(element, "vendor"), VENDORS, 0)
    if cpu.vendor == VENDOR_AMD and not amd_family:
        return
    if cpu.vendor in (VENDOR_INTEL, VENDOR_AMD, VENDOR_ZHAOXIN):
        cpu.model = _model(cpu.vendor, need_int(element, "familyid"), need_int(element, "modelid"))


def _model(vendor: int, family: int, model: int) -> int:
    if vendor == VENDOR_INTEL:
        if family == 6:
            return next((name for first, name in _INTEL_FROM if model >= first), INTEL_BDW)
        return INTEL_BDW
    if vendor == VENDOR_ZHAOXIN and family == 7 and model == 0x5B:
        return ZHAOXIN_YONGFENG
    return UNDEF


def inter_cpu_bw(cpu: CpuNode) -> float:
    """GB/s from this CPU to another of its host; the way back has the other CPU's figure."""
    if cpu.arch == ARCH_POWER:
        return 32.0
    if cpu.arch == ARCH_ARM:
        return 6.0
    if cpu.arch != ARCH_X86:
        return LOC_BW
    if cpu.vendor == VENDOR_INTEL:
        return _INTEL_GBPS[cpu.model]
    if cpu.vendor == VENDOR_AMD:
        return 16.0
    if cpu.vendor == VENDOR_ZHAOXIN:
        return 9.0 if cpu.model == ZHAOXIN_YONGFENG else 6.0
    return LOC_BW


def is_amd(cpus: Sequence[CpuNode]) -> bool:
    """Whether the first CPU, which stands for all, is AMD's."""
    return bool(cpus) and cpus[0].arch == ARCH_X86 and cpus[0].vendor == VENDOR_AMD


def affinity(text: str) -> int:
    """The bit mask of a list of 32-bit hexadecimal groups, highest group first; groups beyond 1024 bits are dropped."""
    groups = [group for group in re.split(",+", text) if group][: _AFFINITY_BITS // 32]
    mask = 0
    for group in groups:
        mask = mask << 32 | c_unsigned_long(group, 16) & 0xFFFFFFFF
    return mask


def ranges(mask: int) -> str:
    """A bit mask as CPU ranges: 0-71,144."""
    parts: list[str] = []
    start: int | None = None
    for cpu in range(mask.bit_length() + 1):
        if mask >> cpu & 1:
            start = cpu if start is None else start
        elif start is not None:
            parts.append(str(start) if start == cpu - 1 else f"{start}-{cpu - 1}")
            start = None
    return ",".join(parts)
