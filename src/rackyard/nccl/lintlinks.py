"""NVLink and C2C links in a file: what they hide, and what is wrong with them."""

from collections import Counter
from collections.abc import Iterator, Mapping

from rackyard.nccl.element import Element
from rackyard.nccl.lintcontext import GPU_CLASS, SWITCH_CLASS, Context, Problem, Rule, count_of, shown


def hidden_faults(ctx: Context) -> Iterator[Problem]:
    """With a link in the file NCCL asks the GPU no more."""
    pinned = [gpu for gpu in ctx.gpus if gpu.child("nvlink") or gpu.child("c2c")]
    if pinned:
        what = f"{len(pinned)} GPUs have their links in the file: NCCL no longer looks which links are up"
        fix = "drop nvlink and c2c; a link that goes down later then shows in NCCL's own topology"
        yield ctx.warn(pinned[0], what, fix)


def uneven(ctx: Context) -> Iterator[Problem]:
    """A GPU with fewer links than its peers slows down the whole communicator."""
    totals = {id(gpu): sum(max(0, count_of(link)) for link in gpu.children_named("nvlink")) for gpu in ctx.gpus}
    peers = Counter(total for total in totals.values() if total)
    most = max(peers, key=lambda total: (peers[total], total), default=0)
    for gpu in ctx.gpus:
        total = totals[id(gpu)]
        if total >= most or any("count" not in link.attrs for link in gpu.children_named("nvlink")):
            continue
        if total == 0 and (ctx.is_dump or gpu.child("nvlink")):
            what = f"no NVLink where its peers have {most}: no NVLS, one ring of 0.1 GB/s, and no word of it by NCCL"
            yield ctx.error(gpu, what, "take the node out and look at the GPU's NVLinks: nvidia-smi nvlink -s")
        elif total:
            what = f"{total} NVLinks, its peers have {most}: all ranks fall to a lower step of NCCL's speed list"
            yield ctx.warn(gpu, what, "look at the GPU's NVLinks: nvidia-smi nvlink -s")
        else:
            what = f"no nvlink here while its peers have {most}: NCCL asks this GPU only"
            yield ctx.warn(gpu, what, "drop nvlink from all GPUs")


def counts(ctx: Context) -> Iterator[Problem]:
    """A count of 0 is not the same as no element."""
    for gpu in ctx.gpus:
        for link in gpu.children:
            if "count" not in link.attrs or count_of(link) > 0:
                continue
            kind = "NVLink" if link.name == "nvlink" else "C2C"
            if count_of(link) < 0:
                what = f"count {shown(link.get('count'))}: a negative bandwidth"
            elif ctx.version.has_dev_nodes:
                what = f"count {shown(link.get('count'))}: a {kind} path of 0 GB/s that NCCL still chooses"
            else:
                what = f"count {shown(link.get('count'))}: as if there were no {kind}, and NCCL does not look"
            yield ctx.warn(link, what, "drop the element, then NCCL asks the GPU")


def direct_links(ctx: Context) -> Iterator[Problem]:
    """Links between two GPUs must stand on both sides."""
    for host in ctx.hosts():
        yield from _direct_links(ctx, [gpu for cpu in host for gpu in cpu.find_all("gpu")])


def _direct_links(ctx: Context, gpus: list[Element]) -> Iterator[Problem]:
    by_busid = {ctx.busid(gpu).lower(): gpu for gpu in gpus}
    shared = {busid for busid, count in Counter(ctx.busid(gpu).lower() for gpu in gpus).items() if count > 1}
    for gpu in gpus:
        own = ctx.busid(gpu).lower()
        if own in shared:
            continue
        for link in _direct(gpu, by_busid):
            target = (link.get("target") or "").lower()
            if target == own:
                yield ctx.error(link, "the GPU has an NVLink to itself: init fails", "drop the element")
            elif target not in by_busid:
                what = f"NVLink to {shown(target)}, which is no GPU of the file: not counted"
                yield ctx.warn(link, what, "write the bus id of the GPU at the other end")
            elif not any((back.get("target") or "").lower() == own for back in _direct(by_busid[target], by_busid)):
                what = f"{shown(target)} has no NVLink back: init fails while paths are computed"
                yield ctx.error(link, what, "write the link on both GPUs, or on none")


def islands(ctx: Context) -> Iterator[Problem]:
    """All switches of a file become one."""
    groups: list[tuple[set[str], Element]] = []
    for gpu in ctx.gpus:
        targets = {link.get("target") or "" for link in gpu.children_named("nvlink", tclass=SWITCH_CLASS)}
        if not targets:
            continue
        joined = [group for group in groups if group[0] & targets]
        first = joined[0][1] if joined else gpu
        merged = targets.union(*(group[0] for group in joined))
        groups = [group for group in groups if group not in joined] + [(merged, first)]
    if len(groups) > 1:
        what = f"{len(groups)} groups of GPUs at different NVSwitches: NCCL makes one switch of them all"
        fix = "describe one host in one file; drop nvlink if these are islands that don't reach each other"
        yield ctx.warn(groups[1][1], what, fix)


def tclass(ctx: Context) -> Iterator[Problem]:
    """The class at the other end decides what a link goes to; an unknown one is a switch."""
    for gpu in ctx.gpus:
        for link in gpu.children_named("nvlink"):
            text = link.get("tclass")
            if text is not None and not text.startswith((GPU_CLASS, SWITCH_CLASS, "0x068001")):
                what = f"tclass {shown(text)} is not known to NCCL: the link goes to a switch"
                yield ctx.warn(link, what, 'write "0x068000" for a switch, "0x030200" for a GPU')


def _direct(gpu: Element, gpus: Mapping[str, Element]) -> Iterator[Element]:
    """The links to GPUs; where the class is left out, the target tells."""
    for link in gpu.children_named("nvlink"):
        text, target = link.get("tclass"), link.get("target")
        if target is not None and (target.lower() in gpus if text is None else text.startswith(GPU_CLASS)):
            yield link


RULES: tuple[tuple[str, Rule], ...] = (
    ("links-in-file", hidden_faults),
    ("uneven-nvlinks", uneven),
    ("link-count", counts),
    ("direct-nvlink", direct_links),
    ("nvswitch-islands", islands),
    ("link-class", tclass),
)
