"""As designed against as found. `diff` compares two sites, wherever they come from: racks, nodes, GPUs, NICs and the
leaves they end on, NVLink domains, uplinks, health. What the found site does not say is no difference; it is told as
unknown.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from rackyard.fabric.expect.design_domains import domains
from rackyard.fabric.expect.design_tell import MANY, RULE, Teller, unknown
from rackyard.fabric.expect.words import listed
from rackyard.fabric.model import Gpu, Health, Leaf, Nic, Node, Rack, Site
from rackyard.findings import Finding, Severity, Verdict


def diff(found: Site, design: Site) -> tuple[Finding, ...]:
    """What differs, a finding for each part, racks first; one PASS where nothing does."""
    findings = [
        *_racks(found, design),
        *_nodes(found, design),
        *_extra_nics(found, design),
        *domains(found, design),
        *_leaves(found, design),
        *_unsaid(found, design),
    ]
    if findings:
        return tuple(findings)
    counts = f"{len(design.racks)} racks, {len(design.nodes)} nodes, {design.gpus()} GPUs, {len(design.leaves)} leaves"
    return (Finding(RULE, Verdict.PASS, Severity.INFO, "site", f"found as designed: {counts}"),)


T = TypeVar("T")


def _by(parts: tuple[T, ...], key: Callable[[T], object]) -> dict[object, T]:
    return {key(part): part for part in parts}


def _racks(found: Site, design: Site) -> Iterator[Finding]:
    tell = Teller(found, design)
    here, planned = _by(found.racks, lambda rack: rack.name), _by(design.racks, lambda rack: rack.name)
    trays = Counter(node.rack for node in design.nodes)
    for name, rack in planned.items():
        if name not in here:
            yield tell(
                f"rack {name}",
                f"the rack was not found; it has {trays[rack.name]} nodes by design",
                _CAPTURE,
                (f"rack {name}", ""),
            )
            continue
        yield from _switch_trays(tell, here[name], rack)
    for name in here.keys() - planned.keys():
        summary = "the rack is not in the design"
        yield tell(f"rack {name}", summary, _DESIGN, ("", f"rack {name}"), Severity.WARNING)


_CAPTURE = "capture it, or take it out of the design"
_DESIGN = "add it to the design, or find out why it answers here"


def _switch_trays(tell: Teller, found: Rack, design: Rack) -> Iterator[Finding]:
    if not found.switch_trays:
        return
    lack = {tray.slot for tray in design.switch_trays} - {tray.slot for tray in found.switch_trays}
    if lack:
        slots = ", ".join(map(str, sorted(lack)))
        pair = (f"{len(design.switch_trays)} switch trays", f"{len(found.switch_trays)} switch trays")
        yield tell(
            f"rack {design.name}, switch tray in slot {slots}",
            f"switch trays are missing in slot {slots}",
            _POWER,
            pair,
        )
    if found.nvlink in (Health.DEGRADED, Health.DOWN) and design.nvlink is Health.HEALTHY:
        yield tell(f"rack {design.name}", f"NVLink of the rack is {found.nvlink}", _POWER, ("healthy", found.nvlink))


_POWER = "look at power and the tray's own management; every GPU of the domain loses the links that lead there"


def _nodes(found: Site, design: Site) -> Iterator[Finding]:
    tell = Teller(found, design)
    seen = {rack.name for rack in found.racks}
    for node in design.nodes:
        if not found.has_node(node.name):
            if node.rack in seen:
                where = f"rack {node.rack}, slot {node.slot}, node {node.name}"
                yield tell(where, "the node was not found", _CAPTURE, (f"node {node.name}", ""))
            continue
        yield from _node(tell, found.node(node.name), node)
    extra = [node.name for node in found.nodes if not design.has_node(node.name)]
    if extra:
        summary = f"{len(extra)} nodes are not in the design: {listed(extra, MANY)}"
        yield tell("site", summary, _DESIGN, ("", listed(extra, MANY)), Severity.WARNING)


def _node(tell: Teller, found: Node, design: Node) -> Iterator[Finding]:
    where = f"rack {found.rack}, node {found.name}"
    if found.rack != design.rack:
        yield tell(
            where, f"the node is in rack {found.rack}, by design in {design.rack}", _MOVED, (design.rack, found.rack)
        )
    elif found.slot > 0 and design.slot > 0 and found.slot != design.slot:
        pair = (f"slot {design.slot}", f"slot {found.slot}")
        yield tell(where, f"the node is in slot {found.slot}, by design in {design.slot}", _MOVED, pair)
    if found.health in (Health.DEGRADED, Health.DOWN) and design.health is Health.HEALTHY:
        yield tell(where, f"the node is {found.health}", "look at the findings of its parts", ("healthy", found.health))
    yield from _gpus(tell, where, found, design)
    yield from _nics(tell, where, found, design)


_MOVED = "the tray was moved or its record is old: correct whichever is wrong"


def _gpus(tell: Teller, where: str, found: Node, design: Node) -> Iterator[Finding]:
    if not found.gpus:
        if design.gpus:
            yield unknown(where, f"{len(design.gpus)} GPUs by design, and no capture lists them")
        return
    here = _by(found.gpus, lambda gpu: gpu.index)
    for gpu in design.gpus:
        own = here.get(gpu.index)
        part = f"{where}, GPU {gpu.index}"
        if own is None:
            pair = (f"{len(design.gpus)} GPUs", f"{len(found.gpus)} GPUs")
            yield tell(
                part, "the GPU was not found", "look for an Xid 79 in the kernel log; power-cycle the tray", pair
            )
        else:
            yield from _gpu(tell, part, own, gpu)
    if extra := sorted({gpu.index for gpu in found.gpus} - {gpu.index for gpu in design.gpus}):
        pair = (f"{len(design.gpus)} GPUs", f"{len(found.gpus)} GPUs")
        yield tell(where, f"GPU {', '.join(map(str, extra))} is not in the design", _DESIGN, pair, Severity.WARNING)


def _gpu(tell: Teller, part: str, found: Gpu, design: Gpu) -> Iterator[Finding]:
    if "unknown" not in (found.kind, design.kind) and found.kind != design.kind:
        yield tell(part, f"it is a {found.kind}, by design a {design.kind}", _MOVED, (design.kind, found.kind))
    if 0 <= found.nvlinks < design.nvlinks:
        pair = (f"{design.nvlinks} NVLinks", f"{found.nvlinks} NVLinks")
        yield tell(part, f"{found.nvlinks} of {design.nvlinks} NVLinks are up", "see fabric/gpu-links", pair)
    elif found.health in (Health.DEGRADED, Health.DOWN) and design.health is Health.HEALTHY:
        yield tell(
            part, f"the GPU is {found.health}", "see the fabric rules of `topo audit`", ("healthy", found.health)
        )


def _nics(tell: Teller, where: str, found: Node, design: Node) -> Iterator[Finding]:
    if not found.nics:
        if design.nics:
            yield unknown(where, f"{len(design.nics)} NICs by design, and no capture lists them")
        return
    here = _by(found.nics, lambda nic: nic.name)
    named = any(nic.name in here for nic in design.nics)
    if not named:
        # Nothing goes by its designed name, so names differ and rails are what is left to compare by.
        here = _by(found.nics, lambda nic: nic.rail)
    for nic in design.nics:
        own = here.get(nic.name if named else nic.rail)
        part = f"{where}, NIC {nic.name}"
        if own is None:
            pair = (f"{len(design.nics)} NICs", f"{len(found.nics)} NICs")
            yield tell(part, "the NIC was not found", "look for it with `lspci -d 15b3:`; reseat or replace it", pair)
        else:
            yield from _nic(tell, part, own, nic)


def _extra_nics(found: Site, design: Site) -> Iterator[Finding]:
    """NICs that the design lacks: one finding for each name, or for each node where names are others than designed."""
    tell = Teller(found, design)
    nodes = [(found.node(node.name), node) for node in design.nodes if node.nics and found.has_node(node.name)]
    named: dict[str, list[Node]] = {}
    for here, node in nodes:
        planned = {nic.name for nic in node.nics}
        extra = [nic.name for nic in here.nics if nic.name not in planned]
        if len(extra) < len(here.nics):
            for name in extra:
                named.setdefault(name, []).append(here)
        elif len(here.nics) > len(node.nics):
            pair = (f"{len(node.nics)} NICs", f"{len(here.nics)} NICs")
            summary = f"{len(here.nics)} NICs; the design has {len(node.nics)}, under other names"
            yield tell(f"rack {here.rack}, node {here.name}", summary, _DESIGN, pair, Severity.WARNING)
    for name, own in sorted(named.items()):
        where = f"rack {listed(node.rack for node in own)}, node {listed(node.name for node in own)}, NIC {name}"
        count = f" ({len(own)} nodes)" if len(own) > 1 else ""
        yield tell(where, f"the NIC is not in the design{count}", _DESIGN, ("", f"NIC {name}"), Severity.WARNING)


def _nic(tell: Teller, part: str, found: Nic, design: Nic) -> Iterator[Finding]:
    if found.leaf and design.leaf and found.leaf != design.leaf:
        summary = f"it ends on leaf {found.leaf}, by design on {design.leaf}"
        yield tell(part, summary, "move the cable to its leaf", (f"leaf {design.leaf}", f"leaf {found.leaf}"))
    elif found.rail >= 0 and design.rail >= 0 and found.rail != design.rail:
        summary = f"it is on rail {found.rail}, by design on rail {design.rail}"
        yield tell(part, summary, "move the cable to its rail", (f"rail {design.rail}", f"rail {found.rail}"))
    if found.health in (Health.DEGRADED, Health.DOWN) and design.health is Health.HEALTHY:
        yield tell(
            part, f"the NIC is {found.health}", "look at cable, transceiver and switch port", ("healthy", found.health)
        )
    elif 0 < found.gbps < design.gbps:
        pair = (f"{design.gbps} Gb/s", f"{found.gbps} Gb/s")
        yield tell(part, f"{found.gbps} Gb/s, by design {design.gbps}", "reseat or replace cable and transceiver", pair)
    if found.numa >= 0 and design.numa >= 0 and found.numa != design.numa:
        pair = (f"NUMA node {design.numa}", f"NUMA node {found.numa}")
        yield tell(part, f"on NUMA node {found.numa}, by design on {design.numa}", "the card is in another slot", pair)


def _unsaid(found: Site, design: Site) -> Iterator[Finding]:
    """Parts that are there, and of which nobody said how they are: they are not as designed for all that is known."""
    shared = [node for node in found.nodes if design.has_node(node.name)]
    for what, unsaid in (
        ("GPUs", [(node.name, gpu) for node in shared for gpu in node.gpus if gpu.health is Health.UNKNOWN]),
        ("NICs", [(node.name, nic) for node in shared for nic in node.nics if nic.health is Health.UNKNOWN]),
    ):
        if unsaid:
            names = listed((name for name, _ in unsaid), MANY)
            yield unknown("site", f"no capture tells the health of {len(unsaid)} {what}: {names}")


def _leaves(found: Site, design: Site) -> Iterator[Finding]:
    if not found.leaves:
        if design.leaves:
            yield unknown("site", f"{len(design.leaves)} leaves by design, and no capture lists switches")
        return
    tell = Teller(found, design)
    here: Mapping[object, Leaf] = _by(found.leaves, lambda leaf: leaf.name)
    for leaf in design.leaves:
        own = here.get(leaf.name)
        part = f"rack {leaf.rack}, rail {leaf.rail}, leaf {leaf.name}"
        if own is None:
            yield tell(part, "the leaf was not found", "look whether it is powered and in this subnet", (leaf.name, ""))
        elif 0 < own.uplinks < leaf.uplinks:
            spines = sorted(set(leaf.spines) - set(own.spines)) if own.spines else []
            text = f"{own.uplinks} of {leaf.uplinks} uplinks" + (f"; none to {listed(spines, MANY)}" if spines else "")
            pair = (f"{leaf.uplinks} uplinks", f"{own.uplinks} uplinks")
            yield tell(part, text, "look at the missing ports on leaf and spine", pair)
    lack = sorted({spine.name for spine in design.spines} - {spine.name for spine in found.spines})
    if found.spines and lack:
        pair = (f"{len(design.spines)} spines", f"{len(found.spines)} spines")
        yield tell("site", f"spines were not found: {listed(lack, MANY)}", _CAPTURE, pair)
