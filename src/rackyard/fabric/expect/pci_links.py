"""PCI links of GPUs and HCAs that are narrower or slower than they could be.

An idle GPU lowers its link generation, so a GPU is judged by the width and by the highest generation it may use; an
HCA also by the current speed. What most devices of a kind have is what the machine gives them (a wide card in a
narrow slot).
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from rackyard.fabric.expect.context import Context, NodeView
from rackyard.fabric.expect.majority import Odd, split
from rackyard.fabric.expect.parts import GpuView, NicView
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.facts import Source
from rackyard.fabric.readers.sysfs_values import generation
from rackyard.findings import Finding, Severity

_ADVICE = (
    "reseat the card or tray; a link that stays narrow or slow is a bad connector or lane. Copies from the host and"
    " GPUDirect run at its pace"
)


class _Pace(NamedTuple):
    """Lanes and generations of a link, None where nobody said; `gen` stays None for GPUs."""

    width: int | None
    width_max: int | None
    gen: int | None
    gen_max: int | None

    @property
    def short(self) -> str:
        """What the link falls short of by its own word; empty when it does not."""
        parts = []
        if self.width and self.width_max and self.width < self.width_max:
            parts.append(f"x{self.width} of x{self.width_max}")
        if self.gen and self.gen_max and self.gen < self.gen_max:
            parts.append(f"Gen{self.gen} of Gen{self.gen_max}")
        return " and ".join(parts)


class _Link(NamedTuple):
    group: Hashable
    pace: _Pace
    part: GpuView | NicView

    @property
    def key(self) -> tuple[str, str]:
        return self.part.key


def _check(rule: Rule, ctx: Context) -> list[Finding]:
    links = [link for link in _links(ctx) if any(link.pace)]
    if not links:
        return [rule.unknown("site", "no capture tells PCI links", "run `rackyard topo collect` on the nodes")]
    paces = Counter([(link.group, link.pace) for link in links])
    size: Counter[Hashable] = Counter()
    for (group, _), count in paces.items():
        size[group] += count
    # Groups that are all alike and reach what they can are the rule, and need no closer look.
    suspect = {group for group, pace in paces if pace.short or paces[group, pace] < size[group]}
    near = [link for link in links if link.group in suspect]
    wrong = dict(_under_own(near, size))
    slower = {odd.part.key: (text, odd) for text, odd in _slower(near) if odd.part.key not in wrong}
    findings = []
    for link in sorted(near, key=lambda link: link.key):
        if link.key not in wrong and link.key not in slower:
            continue
        text, odd = slower.get(link.key, (wrong.get(link.key, ""), None))
        proof = [_source(ctx, link), _source(ctx, odd.peer) if odd and odd.peer else None]
        label = link.part.label if isinstance(link.part, GpuView) else link.part.fact.name
        findings.append(rule.fail(ctx.at(link.part.node, label), f"PCI link: {text}", proof, _ADVICE))
    return rule.close(
        findings,
        f"PCI links of {len(links)} GPUs and HCAs: width and highest generation as on their peers (an idle GPU's"
        " current generation says nothing)",
    )


def _links(ctx: Context) -> Iterator[_Link]:
    for node, gpu in ctx.gpus():
        yield _Link(node.family, _gpu_pace(ctx, gpu), gpu)
    if not ctx.pci:
        return
    for node in ctx.nodes.values():
        addresses = set()
        for nic in node.nics:
            if nic.fact.pci not in addresses:
                addresses.add(nic.fact.pci)
                yield from _nic_link(ctx, node, nic)


def _gpu_pace(ctx: Context, gpu: GpuView) -> _Pace:
    fact = gpu.fact
    pci = ctx.pci.get((gpu.node, fact.pci or "")) if ctx.pci else None
    if pci is None:
        return _Pace(fact.pci_width, fact.pci_width_max, None, fact.pci_gen_max)
    return _Pace(
        fact.pci_width or pci.width,
        fact.pci_width_max or pci.width_max,
        None,
        fact.pci_gen_max or generation(pci.speed_max),
    )


def _nic_link(ctx: Context, node: NodeView, nic: NicView) -> Iterator[_Link]:
    pci = ctx.pci.get((node.name, nic.fact.pci or ""))
    if pci is not None:
        pace = _Pace(pci.width, pci.width_max, generation(pci.speed), generation(pci.speed_max))
        yield _Link((id(node.kind), nic.slot), pace, nic)


def _under_own(links: Sequence[_Link], size: Counter[Hashable]) -> Iterator[tuple[tuple[str, str], str]]:
    """Links below their own maximum, but for those whose peers mostly run the same way."""
    short = [(link, text) for link in links if (text := link.pace.short)]
    same = Counter((link.group, text) for link, text in short)
    for link, text in short:
        like, all_of = same[link.group, text], size[link.group]
        if all_of == 1:
            yield link.key, text
        elif 2 * like <= all_of:
            yield link.key, f"{text}; {like} of {all_of} devices of this kind run so"


def _slower(links: Sequence[_Link]) -> Iterator[tuple[str, Odd[int, _Link]]]:
    for name, unit in (("gen_max", "at most Gen"), ("gen", "Gen"), ("width", "x")):
        found = split((link.group, value, link) for link in links if (value := getattr(link.pace, name)))
        for odd in found.odd:
            if odd.value < odd.expected:
                yield f"{unit}{odd.value}; {odd.others('devices of this kind')} {unit}{odd.expected}", odd


def _source(ctx: Context, link: _Link) -> Source:
    part = link.part
    if isinstance(part, GpuView) and (part.fact.pci_width or part.fact.pci_gen_max):
        return part.source("pci_width" if part.fact.pci_width else "pci_gen_max")
    return ctx.pci.source((part.node, part.fact.pci or "")) or part.facts[0].source


RULES = (Rule("fabric/pci-link", Severity.WARNING, "PCI links are as wide and fast as they could be", _check),)
