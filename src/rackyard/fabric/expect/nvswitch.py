"""The switch side of NVLink, as the fabric manager (NMX) reports it: ports and connections that are missing, down or
not expected; GPUs and NVSwitch ASICs that it calls ill; whole switch trays that are dark.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rackyard.fabric.discover.nvswitch import is_up
from rackyard.fabric.expect.context import Context
from rackyard.fabric.expect.majority import by_count, split
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.expect.words import listed
from rackyard.fabric.facts import NvEnd, NvPortFact, Source
from rackyard.fabric.healthmask import letters
from rackyard.findings import Finding, Severity

_ASK = "give the fabric manager's topology and connection lists (NMX-C or NMX-M)"
_WELL = frozenset({"", "healthy", "unknown"})
_GPU_WORDS = {
    "nonvlink": "no NVLink of it works",
    "degradedbw": "some of its NVLinks are down or slow",
    "degradedbandwidth": "some of its NVLinks are down or slow",
    "missingnvlink": "NVLinks that should be there are missing",
}


@dataclass(frozen=True, slots=True)
class _Device:
    """A GPU or ASIC with the ports that were reported of it."""

    end: NvEnd
    domain: str
    up: int
    ports: int
    source: Source

    @property
    def key(self) -> tuple[str, str]:
        end = self.end
        return end.node or end.chassis, f"{end.kind} {end.slot:>3} {end.tray:>3} {end.device:>3} {end.uid}"

    @property
    def name(self) -> str:
        """Where it is: `chassis 1825…, slot 11, tray 2, GPU 3`."""
        end = self.end
        what = "GPU" if end.kind == "gpu" else "NVSwitch ASIC"
        places = [f"node {end.node}"] if end.node else []
        places += [f"chassis {end.chassis}"] if end.chassis else []
        places += [f"{name} {number}" for name, number in (("slot", end.slot), ("tray", end.tray)) if number >= 0]
        return ", ".join([*places, f"{what} {end.device if end.device >= 0 else end.uid}"])


def _devices(ctx: Context) -> list[_Device]:
    ports: dict[str, dict[int, NvPortFact]] = defaultdict(dict)
    for port in sorted(ctx.facts.nvports, key=lambda port: (port.expectation != "discovered", _line(port))):
        if port.expectation in ("discovered", "unexpected"):
            ports[port.end.uid].setdefault(port.port, port)
    return [_device(list(own.values())) for _, own in sorted(ports.items())]


def _device(own: Sequence[NvPortFact]) -> _Device:
    down = next((port for port in own if not is_up(port)), own[0])
    return _Device(own[0].end, own[0].domain, sum(map(is_up, own)), len(own), down.source)


def _line(port: NvPortFact) -> tuple[str, int, str, int]:
    return port.source.file, port.source.line or 0, port.end.uid, port.port


def _links(rule: Rule, ctx: Context) -> list[Finding]:
    """Links that work, counted at GPUs and ASICs, and switch trays none of whose ports is up."""
    if not ctx.facts.nvports:
        return [_none(rule, ctx)]
    devices = _devices(ctx)
    if not devices:
        return [rule.unknown("site", "no discovered NVLink port: expected connections only", _ASK)]
    dark = {(d.end.chassis, d.end.slot) for d in devices if d.end.kind == "switch"} - {
        (d.end.chassis, d.end.slot) for d in devices if d.end.kind == "switch" and d.up
    }
    findings = [_dark(rule, devices, chassis, slot) for chassis, slot in sorted(dark)]
    silent = {d.domain for d in devices} - {d.domain for d in devices if d.up or d.end.kind == "switch"}
    findings += [_silent(rule, devices, domain) for domain in sorted(silent)]
    found = split(((d.end.kind, d.domain if d.end.kind == "switch" else ""), d.up, d) for d in devices)
    lost = [
        odd for odd in found.odd if odd.value < odd.expected and (odd.part.end.chassis, odd.part.end.slot) not in dark
    ]
    lost = [odd for odd in lost if odd.part.domain not in silent]
    dead = {d.end.uid for d in devices if d.end.kind == "switch" and not d.up}
    gpu_short = _down_towards(ctx, "gpu", dead)
    lost = [odd for odd in lost if odd.part.end.kind != "gpu" or gpu_short[odd.part.end.uid] < odd.expected - odd.value]
    broken = {odd.part.end.uid for odd in lost if odd.part.end.kind == "gpu"}
    asic_short = _down_from(ctx, broken)
    for odd in lost:
        device = odd.part
        # One broken link is one finding, told at the GPU.
        if device.end.kind == "switch" and asic_short[device.end.uid] >= odd.expected - odd.value:
            continue
        others = odd.others("GPUs" if device.end.kind == "gpu" else "ASICs of the domain")
        proof = [device.source, *([odd.peer.source] if odd.peer else [])]
        findings.append(
            rule.fail(device.name, f"{device.up} NVLink ports are up; {others} {odd.expected}", proof, _LOST)
        )
    if found.tied and not findings:
        summary = (
            f"NVLink ports that are up differ and no number prevails: {by_count(Counter(up for up, _ in found.tied))}"
        )
        findings.append(rule.unknown(listed(d.name for _, d in found.tied), summary, "capture more of the domain"))
    gpus = sum(device.end.kind == "gpu" for device in devices)
    up = sum(device.up for device in devices)
    return rule.close(
        findings, f"{up} NVLink ports up on {gpus} GPUs and {len(devices) - gpus} ASICs: none has fewer than its peers"
    )


_LOST = "compare with `nvidia-smi nvlink -s` on the node; reset the GPU, reseat the compute tray, then the switch tray"


def _down_towards(ctx: Context, kind: str, dead: set[str]) -> Counter[str]:
    """How many ports of each device of a kind are down because the ASIC at the other end is dead."""
    ports = ctx.facts.nvports if dead else []
    return Counter(p.end.uid for p in ports if p.peer_uid in dead and p.end.kind == kind and not is_up(p))


def _down_from(ctx: Context, broken: set[str]) -> Counter[str]:
    """How many ports of each ASIC are down because of the GPU at the other end."""
    ports = ctx.facts.nvports if broken else []
    return Counter(p.peer_uid for p in ports if p.peer_uid and p.end.uid in broken and not is_up(p))


def _dark(rule: Rule, devices: Sequence[_Device], chassis: str, slot: int) -> Finding:
    own = [d for d in devices if d.end.kind == "switch" and (d.end.chassis, d.end.slot) == (chassis, slot)]
    trays = {(d.end.chassis, d.end.slot) for d in devices if d.end.kind == "switch" and d.end.chassis == chassis}
    ports = sum(device.ports for device in own)
    share = (
        f"{1 / len(trays):.1%} of the rack's NVLink bandwidth is gone" if len(trays) > 1 else "the rack has no NVLink"
    )
    return rule.fail(
        f"chassis {chassis}, switch tray in slot {slot}",
        f"all {ports} NVLink ports of its {len(own)} ASICs are down: {share}",
        [device.source for device in own],
        "look at the tray's power and its NVOS; every GPU of the domain loses the same links, so drain the rack"
        " before the swap",
    )


def _silent(rule: Rule, devices: Sequence[_Device], domain: str) -> Finding:
    """A domain of which GPUs only were listed, and none of them has a link: all being alike is no health."""
    own = [device for device in devices if device.domain == domain]
    ports = sum(device.ports for device in own)
    return rule.fail(
        f"NVLink domain {domain}" if domain else "site",
        f"all {ports} NVLink ports of its {len(own)} GPUs are down",
        [device.source for device in own],
        "look at the switch trays: their power, their NVOS, and whether the NVLink controller runs",
    )


def _connections(rule: Rule, ctx: Context) -> list[Finding]:
    ports = ctx.facts.nvports
    if not ports:
        return [_none(rule, ctx)]
    seen = {(port.end.uid, port.port) for port in ports if port.expectation in ("discovered", "unexpected")}
    domains = {port.domain for port in ports if port.expectation == "discovered"}
    kinds: dict[str, dict[frozenset[tuple[str, int]], NvPortFact]] = defaultdict(dict)
    unsure = 0
    for port in sorted(ports, key=_line):
        if port.expectation == "discovered" or (port.expectation == "expected" and (port.end.uid, port.port) in seen):
            continue
        if port.expectation == "expected" and port.domain not in domains:
            unsure += 1
            continue
        ends = frozenset(
            {(port.end.uid, port.port), (port.peer_uid or port.end.uid, port.peer_port if port.peer_uid else port.port)}
        )
        kinds[port.expectation].setdefault(ends, port)
    findings = [
        finding for what, text, advice in _KINDS for finding in _listed(rule, kinds[what].values(), text, advice)
    ]
    if unsure:
        findings.append(
            rule.unknown("site", f"{unsure} connections are expected, and what was found of them is not given", _ASK)
        )
    return rule.close(
        findings, f"{len(seen)} NVLink ports discovered: no connection is missing, inactive or unexpected"
    )


_KINDS = (
    ("expected", "expected and not found", "reseat the compute tray or the cable cartridge that carries it"),
    ("expected-inactive", "expected and inactive", "look at the port's state on both ends; reset the GPU"),
    ("unexpected", "not expected", "a cable leads elsewhere than planned: compare with the rack's cable plan"),
)


def _listed(rule: Rule, ports: Iterable[NvPortFact], text: str, advice: str) -> Iterator[Finding]:
    devices: dict[str, list[NvPortFact]] = defaultdict(list)
    for port in ports:
        devices[port.end.uid].append(port)
    for _, own in sorted(devices.items()):
        numbers = ", ".join(str(port.port) for port in sorted(own, key=lambda port: port.port)[:18])
        count = f"{len(own)} NVLink connections are" if len(own) > 1 else "NVLink connection is"
        yield rule.fail(
            f"{_device(own).name}, port {numbers}", f"{count} {text}", [port.source for port in own], advice
        )


def _health(rule: Rule, ctx: Context) -> list[Finding]:
    if not ctx.facts.nvports:
        return [_none(rule, ctx)]
    words: dict[str, NvPortFact] = {}
    drained: dict[str, list[NvPortFact]] = defaultdict(list)
    told = set()
    for port in sorted(ctx.facts.nvports, key=_line):
        if port.end.health:
            told.add(port.end.uid)
        if letters(port.end.health) not in _WELL:
            words.setdefault(port.end.uid, port)
        if any("drain" in letters(text or "") for text in (port.logical, port.physical)):
            drained[port.end.uid].append(port)
    findings = []
    for _, port in sorted(words.items()):
        means = _GPU_WORDS.get(letters(port.end.health), "")
        summary = f"the fabric manager calls it {port.end.health}" + (f": {means}" if means else "")
        findings.append(rule.fail(_device([port]).name, summary, [port.source], _LOST))
    for _, own in sorted(drained.items()):
        numbers = ", ".join(str(port.port) for port in own)
        summary = f"port {numbers} is in contain and drain: traffic is kept off it after an error"
        findings.append(
            rule.fail(
                _device(own).name, summary, [port.source for port in own], "reset the GPU at the far end; " + _LOST
            )
        )
    if not told and not findings:
        return [rule.unknown("site", "the fabric manager's lists carry no health", _ASK)]
    return rule.close(findings, f"health of {len(told)} GPUs and ASICs by the fabric manager: none is ill")


def _none(rule: Rule, ctx: Context) -> Finding:
    if any(node.domain for node in ctx.nodes.values()):
        return rule.unknown("site", "nothing was read from a fabric manager", _ASK)
    return rule.not_applicable("no NVLink domain beyond a node is known, and nothing was read from a fabric manager")


RULES = (
    Rule("fabric/nvlink-ports", Severity.ERROR, "every GPU and NVSwitch ASIC has its NVLink ports up", _links),
    Rule("fabric/nvlink-connections", Severity.ERROR, "NVLink connections are the expected ones", _connections),
    Rule("fabric/nvlink-health", Severity.ERROR, "the fabric manager calls no GPU or ASIC ill", _health),
)
