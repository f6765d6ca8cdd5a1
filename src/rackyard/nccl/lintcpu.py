"""Values of cpu elements that NCCL reads as something else than was meant."""

import re
from collections.abc import Iterator

from rackyard.nccl.cpus import VENDORS
from rackyard.nccl.element import Element
from rackyard.nccl.lintcontext import Context, Problem, Rule, shown
from rackyard.nccl.numbers import c_int, c_unsigned_long

_GROUPS = re.compile(r"[0-9a-fA-F]{1,8}(?:,[0-9a-fA-F]{1,8})*", re.ASCII)
_ARCHES = {"aarch64": "arm64", "arm": "arm64", "amd64": "x86_64", "x64": "x86_64", "i386": "x86_64"}
_KNOWN_ARCHES = ("x86_64", "arm64", "ppc64")
_VENDORS = tuple(VENDORS)
_SAPPHIRE_RAPIDS, _EMERALD_RAPIDS = 143, 207
_TOO_FAST = "5000 GB/s between CPUs, so that every path over two sockets looks free"


def affinity(ctx: Context) -> Iterator[Problem]:
    """CPU masks are 32-bit hexadecimal groups, highest first."""
    for cpu in ctx.cpus:
        text = cpu.get("affinity")
        if text is None:
            continue
        fix = "write it as /sys/devices/system/node/nodeN/cpumap does: 00000000,0000ffff"
        if text == "":
            what = "empty affinity: NCCL's threads are not bound to the GPU's NUMA node"
            yield ctx.warn(cpu, what, "drop the attribute, then NCCL reads it from sysfs")
        elif not _GROUPS.fullmatch(text):
            yield ctx.warn(cpu, f"affinity {shown(text)} is no list of 32-bit hexadecimal groups: misread", fix)
        elif not any(c_unsigned_long(group, 16) for group in text.split(",")):
            yield ctx.warn(cpu, "affinity has no CPU: NCCL's threads are not bound", fix)


def arch(ctx: Context) -> Iterator[Problem]:
    """Three architectures are known, by the start of their names."""
    for cpu in ctx.cpus:
        text = cpu.get("arch")
        if text is not None and not text.startswith(_KNOWN_ARCHES):
            known = _ARCHES.get(text.lower(), "x86_64, arm64 or ppc64")
            yield ctx.warn(cpu, f"arch {shown(text)} is not known to NCCL: {_TOO_FAST}", f'write arch="{known}"')


def vendor(ctx: Context) -> Iterator[Problem]:
    """Intel, AMD and Zhaoxin are known; Intel models of one generation count as an older one."""
    for cpu in ctx.cpus:
        text = cpu.get("vendor")
        if text is None or not (cpu.get("arch") or "x86_64").startswith("x86_64"):
            continue
        if not text.startswith(_VENDORS):
            yield ctx.warn(cpu, f"vendor {shown(text)} is not known to NCCL: {_TOO_FAST}", _vendor_fix(text))
        elif text.startswith("GenuineIntel") and c_int(cpu.get("familyid") or "6") == 6 and "modelid" in cpu.attrs:
            yield from _intel(ctx, cpu, c_int(cpu.attrs["modelid"]))


def _intel(ctx: Context, cpu: Element, model: int) -> Iterator[Problem]:
    # Granite Rapids (173, 174) came out after Emerald Rapids and has a smaller model number.
    if _SAPPHIRE_RAPIDS + 1 < model < _EMERALD_RAPIDS:
        what = f"Intel model {model} counts as Sapphire Rapids: 22 GB/s between sockets, not 40"
        yield ctx.info(
            cpu, what, "nothing to write: a limit of NCCL's table; expect lower predicted rates over sockets"
        )


def _vendor_fix(text: str) -> str:
    for known in _VENDORS[:2]:
        if known[-5:].lower() in text.lower() or known[-3:].lower() == text.lower()[-3:]:
            return f'write vendor="{known}"'
    return "write vendor as /proc/cpuinfo's vendor_id: GenuineIntel or AuthenticAMD"


def numaid(ctx: Context) -> Iterator[Problem]:
    """numaid is a number, and once per host."""
    seen: dict[tuple[str, int], Element] = {}
    for cpu in ctx.cpus:
        text = cpu.get("numaid")
        if text is None:
            continue
        if not re.fullmatch(r"-?\d+", text, re.ASCII):
            yield ctx.warn(cpu, f"numaid {shown(text)} is read as {c_int(text)}", "write the number of the NUMA node")
        elif c_int(text) < 0:
            what = "numaid -1 is a NUMA node that the kernel does not know"
            yield ctx.warn(cpu, what, "write 0 on a machine with one node; else look at the BIOS setting for NUMA")
        first = seen.setdefault((cpu.get("host_hash") or "", c_int(text)), cpu)
        if first is not cpu:
            what = f"numaid {c_int(text)} is there already in line {first.line}: two CPUs of one number"
            yield ctx.warn(cpu, what, "put the devices of one NUMA node below one cpu element")


def host_hash(ctx: Context) -> Iterator[Problem]:
    """host_hash is hexadecimal."""
    for cpu in ctx.cpus:
        text = cpu.get("host_hash")
        if text is not None and not re.fullmatch(r"(?:0[xX])?[0-9a-fA-F]{1,16}", text, re.ASCII):
            what = f"host_hash {shown(text)} is no hexadecimal number: read as {c_unsigned_long(text, 16):#x}"
            yield ctx.warn(cpu, f"{what}, and hosts of one value become one", "write 0x and 16 digits, or drop it")


def several_hosts(ctx: Context) -> Iterator[Problem]:
    """A loaded file is of the host that loads it."""
    hosts = ctx.hosts()
    if len(hosts) > 1 and ctx.version.overwrites_host_hash:
        what = f"the file is of {len(hosts)} hosts: loaded, they get the hash of the host that loads it, and become one"
        yield ctx.warn(hosts[1][0], what, "give every host a file of its own; NCCL fuses them within an NVLink domain")


RULES: tuple[tuple[str, Rule], ...] = (
    ("affinity", affinity),
    ("arch", arch),
    ("vendor", vendor),
    ("numaid", numaid),
    ("host-hash", host_hash),
    ("several-hosts", several_hosts),
)
