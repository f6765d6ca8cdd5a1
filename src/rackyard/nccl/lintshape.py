"""The shape of the tree: limits, things given twice, things without effect, what versions treat differently."""

from collections.abc import Iterator

from rackyard.nccl.element import Element
from rackyard.nccl.lintcontext import GPU_CLASS, NET_CLASS, Context, Problem, Rule, shown
from rackyard.nccl.numbers import c_int
from rackyard.nccl.version import Version
from rackyard.nccl.xmldepth import FITTING, overdeep
from rackyard.nccl.xmltoken import SLOTS

_GPU_ADDS, _NIC_ADDS = 3, 2
_CX8 = ("0x1023", "0x2100")
_ADDED = {
    "gpu": ["dev", "sm", "keep", "rank", "gdr", "mlopart"],
    "net": ["keep", "dev", "latency", "speed", "port", "guid", "maxconn", "gdr", "net"],
    "cpu": ["host_hash", "affinity", "arch", "vendor", "familyid", "modelid"],
    "pci": ["class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed", "link_width"],
}
"""Attributes that NCCL adds when it loads the file, where they are missing (2.30.7)."""


def room(ctx: Context) -> Iterator[Problem]:
    """NCCL adds a gpu, its links, and each NIC to the tree that it has read."""
    bare = sum(1 for pci in ctx.pcis if (pci.get("class") or "").startswith(NET_CLASS) and not pci.child("nic"))
    limit = ctx.version.file_nodes
    if ctx.nodes < limit <= ctx.nodes + _GPU_ADDS + _NIC_ADDS * bare:
        what = f"{ctx.nodes} elements of {limit}: no room for the GPU and the NICs that NCCL adds; init may fail"
        yield ctx.warn(ctx.root, what, "drop branches without GPU and NIC, and bridges that no path needs")


def empty(ctx: Context) -> Iterator[Problem]:
    """A file without a cpu."""
    if not ctx.cpus:
        yield ctx.info(
            ctx.root, "the file says nothing: NCCL detects all by itself", "drop the file and NCCL_TOPO_FILE"
        )


def depth(ctx: Context) -> Iterator[Problem]:
    """NCCL prints the tree into a buffer of fixed size, even when nothing is shown."""
    bridge = overdeep(ctx.root)
    if bridge is not None:
        what = f"more than {FITTING} PCI bridges in a chain: NCCL writes past a buffer and crashes"
        yield ctx.error(bridge, what, "drop bridges that have one way up and one way down")


def attributes(ctx: Context) -> Iterator[Problem]:
    """What NCCL adds has room for one attribute more than 16, and that is not checked."""
    for element in ctx.root.walk():
        written = len(element.attrs) + len(element.repeats)
        missing = [key for key in _ADDED.get(element.name, ()) if key not in element.attrs]
        if missing and written + len(missing) > SLOTS + 1:
            extra = [key for key in element.attrs if key not in KNOWN_ATTRIBUTES[element.name]]
            what = f"{written} attributes leave no room for {', '.join(missing)}: NCCL writes past its array"
            yield ctx.error(element, what, f"drop {', '.join(extra[:4]) or 'repeated attributes'}")


def twice(ctx: Context) -> Iterator[Problem]:
    """Two devices of one bus id, two nets of one name, two GPUs of one NVML number, within a host."""
    for host in ctx.hosts():
        pcis = [pci for cpu in host for pci in cpu.find_all("pci")]
        nets = [net for cpu in host for net in cpu.find_all("net")]
        gpus = [gpu for cpu in host for gpu in cpu.find_all("gpu")]
        yield from _twice(ctx, pcis, "busid", "only the first is ever found")
        yield from _twice(ctx, nets, "name", "only the first is ever a device")
        yield from _twice(ctx, gpus, "dev", "NCCL keeps what the file says, so two ranks go by one GPU")
        if ctx.is_dump:
            yield from _twice(ctx, nets, "dev", "two network devices of one number")


def useless(ctx: Context) -> Iterator[Problem]:
    """Elements that never become a device."""
    for nic in ctx.root.find_all("nic"):
        if not nic.child("net"):
            yield ctx.warn(nic, "nic without net: no network device by itself", "drop it: NCCL adds nic and net")
        elif next(ctx.above(nic)).name == "cpu":
            what = "nic right below a cpu: all such NICs of a NUMA node are one, with no PCI limit"
            yield ctx.info(nic, what, "put it below its pci element")
    for net in ctx.nets:
        if "name" not in net.attrs:
            yield ctx.warn(net, "net without name: NCCL finds no device for it and cuts it", 'write name="mlx5_0"')
        elif ctx.is_dump and "dev" not in net.attrs:
            yield ctx.warn(net, "net without dev: not a device in this tree", "write dev, its number")


def keep(ctx: Context) -> Iterator[Problem]:
    """keep is NCCL's own mark."""
    for element in ctx.root.walk():
        if "keep" in element.attrs:
            holds = element.get("keep") == "1"
            what = (
                "keep holds this branch although no GPU or NIC in use is below" if holds else "keep is NCCL's own mark"
            )
            yield ctx.warn(element, what, "drop keep")


def cx8(ctx: Context) -> Iterator[Problem]:
    """From 2.31 on a ConnectX-8 is told by its ids, and chosen differently."""
    if ctx.version < Version(2, 31):
        return
    for pci in ctx.pcis:
        if pci.get("vendor") == "0x15b3" and pci.get("device") in _CX8:
            what = f"ConnectX-8: NCCL {ctx.version} chooses NICs otherwise when vendor and device say so"
            yield ctx.info(pci, what, "compare the NIC of each GPU before and after an upgrade from 2.30")
            return


def gpu_class_leaf(ctx: Context) -> Iterator[Problem]:
    """A class that NCCL does not know is a bridge."""
    for pci in ctx.pcis:
        text = pci.get("class")
        known = ("0x060400", "0x080100", "0x068000", "0x068001", GPU_CLASS, NET_CLASS)
        if text is not None and not text.startswith(known) and not pci.child("gpu"):
            what = f"class {shown(text)} is not known to NCCL: taken for a bridge"
            yield ctx.info(pci, what, "nothing to do if no GPU or NIC is below: the branch is cut")


def version_text(ctx: Context) -> Iterator[Problem]:
    """version is read as a C number."""
    text = ctx.root.get("version") or ""
    if text != "1" and c_int(text) == 1:
        yield ctx.info(ctx.root, f"version {shown(text)} is read as 1", 'write version="1"')


def _twice(ctx: Context, elements: list[Element], key: str, effect: str) -> Iterator[Problem]:
    seen: dict[str, Element] = {}
    for element in elements:
        text = element.get(key)
        if text is None:
            continue
        first = seen.setdefault(text, element)
        if first is not element:
            what = f"{key} {shown(text)} is there already in line {first.line}: {effect}"
            yield ctx.warn(element, what, f"give each its own {key}, or drop one")


KNOWN_ATTRIBUTES: dict[str, frozenset[str]] = {
    "system": frozenset({"version", "name"}),
    "cpu": frozenset({"numaid", "affinity", "arch", "vendor", "familyid", "modelid", "host_hash"}),
    "pci": frozenset(
        ["busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed", "link_width"],
    ),
    "pcilink": frozenset({"target"}),
    "gpu": frozenset({"dev", "sm", "rank", "gdr", "mlopart"}),
    "nvlink": frozenset({"target", "count", "tclass"}),
    "c2c": frozenset({"bw", "count"}),
    "nic": frozenset(),
    "net": frozenset(
        {"name", "dev", "speed", "port", "guid", "latency", "maxconn", "gdr", "coll", "net", "gin", "rma"}
        | {"rail", "plane"}
    ),
}
"""The attributes that NCCL reads, besides its own mark `keep`."""

RULES: tuple[tuple[str, Rule], ...] = (
    ("room", room),
    ("empty", empty),
    ("bridge-depth", depth),
    ("attribute-room", attributes),
    ("twice", twice),
    ("no-device", useless),
    ("keep", keep),
    ("connectx-8", cx8),
    ("unknown-class", gpu_class_leaf),
    ("version-text", version_text),
)
