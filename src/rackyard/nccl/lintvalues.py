"""Values of pci and net elements that NCCL reads as something else than was meant."""

import re
from collections.abc import Iterator

from rackyard.nccl.element import Element
from rackyard.nccl.lintcontext import GPU_CLASS, Context, Problem, Rule, shown
from rackyard.nccl.numbers import c_float, c_int

_BUSID = re.compile(r"(?:[0-9a-f]{4}|[1-9a-f][0-9a-f]{4,7}):[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
# By what the text starts with; anything else counts as 8 GT/s (topo.cc, kvDictPciGen).
_SPEEDS = ("2.5 GT/s", "5 GT/s", "8 GT/s", "16 GT/s", "32 GT/s")
_PCIE_SPEEDS = tuple(f"{speed} GT/s PCIe" for speed in ("5.0", "8.0", "16.0", "32.0", "64.0"))
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)
_LEAST_NET_MBPS = 1000


def busid(ctx: Context) -> Iterator[Problem]:
    """Bus ids are compared letter by letter with the machine's, which are lower case."""
    for pci in ctx.pcis:
        text = pci.get("busid")
        if text is None or _BUSID.fullmatch(text):
            continue
        if _BUSID.fullmatch(text.lower()):
            yield ctx.warn(
                pci,
                "upper-case bus id: it matches no device, which NCCL then adds again below an unknown cpu",
                f'write busid="{text.lower()}"',
            )
        else:
            what = f"bus id {shown(text)} is not of the form dddd:bb:dd.f: it matches no device"
            yield ctx.warn(pci, what, "write it as /sys/bus/pci/devices does: domain:bus:device.function")


def link_speed(ctx: Context) -> Iterator[Problem]:
    """PCI speeds are looked up by their text."""
    for pci in ctx.pcis:
        text = pci.get("link_speed")
        if text is None or text.startswith(_SPEEDS + _PCIE_SPEEDS):
            continue
        meant = c_float(text)
        known = next((each for each in _PCIE_SPEEDS if meant and float(each.split()[0]) == meant), None)
        fix = f'write link_speed="{known}"' if known else f"write one of: {', '.join(_PCIE_SPEEDS)}"
        yield ctx.warn(pci, f"link_speed {shown(text)} is not known to NCCL: counts as 8 GT/s (Gen3)", fix)


def link_width(ctx: Context) -> Iterator[Problem]:
    """Widths are C numbers; 0 counts as 16."""
    for pci in ctx.pcis:
        text = pci.get("link_width")
        if text is None:
            continue
        width = c_int(text)
        if width == 0:
            why = "is octal and so 0" if re.match(r"\s*0\d", text) else "is 0"
            yield ctx.warn(pci, f"link_width {shown(text)} {why}: counts as x16", "write 1, 2, 4, 8 or 16")
        elif width not in _WIDTHS:
            what = "gives a negative bandwidth" if width < 0 else f"is read as x{width}"
            yield ctx.warn(pci, f"link_width {shown(text)} {what}", "write 1, 2, 4, 8 or 16")


def idle_gpu(ctx: Context) -> Iterator[Problem]:
    """A GPU link of Gen1 is that of an idle GPU."""
    for pci in ctx.pcis:
        if _is_gpu(pci) and (pci.get("link_speed") or "").startswith("2.5 GT/s"):
            what = "the GPU's link is written down as Gen1, as an idle GPU reports it: NCCL counts 3 GB/s at x16"
            yield ctx.warn(pci, what, "write the speed under load, or drop link_speed and link_width")


def gpu_class(ctx: Context) -> Iterator[Problem]:
    """A gpu child below a class that is not a display controller's."""
    for gpu in ctx.gpus:
        pci = next(ctx.above(gpu))
        text = pci.get("class")
        if text is None or text.startswith(GPU_CLASS):
            continue
        what = f"class {shown(text)} above a gpu"
        fix = 'write class="0x030200"'
        if ctx.version.has_dev_nodes:
            yield ctx.error(pci, f"{what}: NCCL takes it for a bridge and init fails (2.30 and later)", fix)
        else:
            yield ctx.warn(pci, f"{what}: works with NCCL {ctx.version}, init fails from 2.30 on", fix)


def gpu_function(ctx: Context) -> Iterator[Problem]:
    """The two lowest bits of a GPU's bus id belong to its parts (2.30)."""
    for pci in ctx.pcis:
        found = re.search(r"\.([0-7])$", pci.get("busid") or "", re.ASCII)
        if not (_is_gpu(pci) and found and int(found[1]) & 3):
            continue
        what = f"GPU at PCI function {found[1]}"
        if ctx.version.knows_mlopart:
            yield ctx.error(pci, f"{what}: init fails (2.30.7)", "give the GPU function 0 or 4 in the virtual machine")
        else:
            yield ctx.info(pci, f"{what}: init fails with NCCL 2.30.7 and later", "give the GPU function 0 or 4")


def net_speed(ctx: Context) -> Iterator[Problem]:
    """Speeds of nets are Mb/s."""
    for net in ctx.nets:
        text = net.get("speed")
        if text is None:
            continue
        speed = c_int(text)
        if speed <= 0:
            yield ctx.warn(net, f"speed {shown(text)}: counts as 10 Gb/s", 'write Mb/s, such as speed="400000"')
        elif speed < _LEAST_NET_MBPS:
            fix = f'write speed="{speed * 1000}" if Gb/s were meant'
            yield ctx.warn(net, f"speed {shown(text)} is Mb/s: {speed / 8000:g} GB/s", fix)


def stale(ctx: Context) -> Iterator[Problem]:
    """What the file says of a device, it says whatever the device says."""
    for elements, keys in ((ctx.gpus, ("sm", "dev")), (ctx.nets, ("speed", "port", "guid", "gdr"))):
        for element in elements:
            given = ", ".join(key for key in keys if key in element.attrs)
            if given:
                what = f"{given} in the file win over what the device says, here and on all other {element.name}s"
                yield ctx.info(element, what, "drop them, unless the file is written anew after every change")
                break


def _is_gpu(pci: Element) -> bool:
    return pci.child("gpu") is not None or (pci.get("class") or "").startswith(GPU_CLASS)


RULES: tuple[tuple[str, Rule], ...] = (
    ("busid", busid),
    ("link-speed", link_speed),
    ("link-width", link_width),
    ("idle-gpu", idle_gpu),
    ("gpu-class", gpu_class),
    ("gpu-function", gpu_function),
    ("net-speed", net_speed),
    ("stale-values", stale),
)
