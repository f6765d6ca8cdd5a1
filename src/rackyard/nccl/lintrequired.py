"""Attributes without which communicator init fails, or a file is neither complete nor bare."""

from collections import Counter
from collections.abc import Iterator

from rackyard.nccl.element import Element
from rackyard.nccl.lintcontext import GPU_CLASS, Context, Problem, Rule
from rackyard.nccl.version import Version

_IDS = ("familyid", "modelid")
_PCI_NEEDS = ("class", "link_speed", "link_width")


def identity(ctx: Context) -> Iterator[Problem]:
    """A cpu without numaid, a pci without busid."""
    for cpu in ctx.cpus:
        if "numaid" not in cpu.attrs:
            yield ctx.error(cpu, "no numaid: init fails", 'write numaid="N", the number of the NUMA node')
    for pci in ctx.pcis:
        if "busid" not in pci.attrs:
            yield ctx.error(pci, "no busid: init fails", 'write busid="dddd:bb:dd.f" as in /sys/bus/pci/devices')


def pci_class(ctx: Context) -> Iterator[Problem]:
    """A bridge without class is only completed where the host's sysfs has that bus id."""
    for pci in ctx.pcis:
        if "class" in pci.attrs or not pci.child("pci"):
            continue
        made_up = (pci.get("busid") or "").startswith("ffff:")
        if made_up:
            yield ctx.error(pci, "made-up bridge without class: init fails", 'write class="0x060400"')
        else:
            text = "no class: init fails on a host whose sysfs lacks this bus id"
            yield ctx.warn(pci, text, 'write class="0x060400"')


def cpu_model(ctx: Context) -> Iterator[Problem]:
    """familyid without modelid is not completed: NCCL looks for familyid only."""
    for cpu in ctx.cpus:
        if not (cpu.get("arch") or "x86_64").startswith("x86_64"):
            continue
        if "familyid" in cpu.attrs and "modelid" not in cpu.attrs and _needs_ids(cpu, ctx.version):
            text = f"familyid without modelid: init fails (NCCL {ctx.version})"
            yield ctx.error(cpu, text, "write both, or neither, then NCCL reads them from the CPU")


def links(ctx: Context) -> Iterator[Problem]:
    """What nvlink, c2c and pcilink can't do without."""
    for gpu in ctx.gpus:
        for link in gpu.children:
            needs = ("count", "target", "tclass") if link.name == "nvlink" else ("bw", "count")
            for key in needs:
                if key not in link.attrs:
                    yield from _missing_on_link(ctx, link, key)
    for link in ctx.root.find_all("pcilink"):
        if "target" not in link.attrs:
            yield ctx.error(link, "pcilink without target: init fails", 'write target="dddd:bb:dd.f"')


def _missing_on_link(ctx: Context, link: Element, key: str) -> Iterator[Problem]:
    if key == "tclass" and ctx.version.fills_tclass:
        text = "nvlink without tclass: filled in by NCCL up to 2.30, init fails from 2.31 on"
        yield ctx.warn(link, text, 'write tclass="0x068000" for a switch, "0x030200" for a GPU')
    elif key != "target":
        yield ctx.error(link, f"{link.name} without {key}: init fails", f"write {key}, or drop the element")
    elif link.attrs.get("tclass", GPU_CLASS).startswith(GPU_CLASS):
        text = "nvlink without target: NCCL crashes or init fails"
        yield ctx.error(link, text, 'write target="dddd:bb:dd.f"')


def complete_or_bare(ctx: Context) -> Iterator[Problem]:
    """Above a net of the file NCCL completes nothing, except on the way up from a rank's own GPU."""
    gpus = [pci for pci in ctx.pcis if pci.child("gpu") or (pci.get("class") or "").startswith(GPU_CLASS)]
    below: Counter[int] = Counter(id(above) for gpu in gpus for above in (gpu, *ctx.above(gpu)))
    done: set[int] = set()
    for net in ctx.nets:
        for element in ctx.above(net):
            if id(element) in done or element.name not in ("cpu", "pci") or below[id(element)] == len(gpus):
                continue
            done.add(id(element))
            missing = [key for key in _needs(element, ctx.version) if key not in element.attrs]
            what = f"the file has nets below, but no {', '.join(missing)} here"
            fix = "write what is missing, or drop the nets: then NCCL finds the NICs and completes the way up to them"
            if missing == ["affinity"]:
                if below[id(element)]:
                    effect = "the ranks' trees don't merge, this part is there twice and half of its NICs serve no GPU"
                    yield ctx.warn(element, f"{what}: {effect}", fix)
            elif missing:
                yield ctx.error(element, f"{what}: init fails for a rank whose GPU is elsewhere", fix)


def _needs(element: Element, version: Version) -> tuple[str, ...]:
    if element.name == "pci":
        return _PCI_NEEDS
    if not (element.get("arch") or "").startswith("x86_64"):
        return ("affinity", "arch")
    return ("affinity", "arch", "vendor", *(_IDS if _needs_ids(element, version) else ()))


def _needs_ids(cpu: Element, version: Version) -> bool:
    vendor = cpu.get("vendor") or ""
    if vendor.startswith("AuthenticAMD"):
        return version.needs_amd_family
    return vendor.startswith(("GenuineIntel", "CentaurHauls", "  Shanghai  "))


RULES: tuple[tuple[str, Rule], ...] = (
    ("missing-id", identity),
    ("missing-class", pci_class),
    ("missing-model", cpu_model),
    ("missing-on-link", links),
    ("complete-or-bare", complete_or_bare),
)
