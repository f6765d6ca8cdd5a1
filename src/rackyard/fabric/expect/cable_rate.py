"""Cables that run narrower or slower than they could: against what both ends support, and against the other cables of
the same switch (to switches) or of the same HCA on other hosts.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from rackyard.fabric.expect.context import Context
from rackyard.fabric.expect.majority import Odd, by_count, split
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.facts import CableFact
from rackyard.fabric.readers.ibnames import LANE_GBPS
from rackyard.findings import Finding, Severity

_SPEEDS = tuple(LANE_GBPS)
"""Lane speeds, slowest first."""


@dataclass(frozen=True, slots=True)
class _Cable:
    fact: CableFact

    @property
    def key(self) -> tuple[str, str]:
        a = self.fact.a
        return a.owner, f"{a.device:>8} {a.port:>4}"


def _check(rule: Rule, ctx: Context) -> list[Finding]:
    up = [cable for cable in ctx.facts.cables if cable.b is not None and (cable.state or "active").lower() == "active"]
    told = _once(cable for cable in up if cable.width or cable.gbps or cable.speed)
    if not told:
        what = "no capture lists cables" if not up else f"{len(up)} cables, and no capture tells how fast they run"
        return [rule.unknown("site", what, "capture `ibnetdiscover` or `iblinkinfo`")]
    slow = {id(cable): text for cable in told if (text := _under_own(cable))}
    hosts = Counter(end.owner for cable in told for end in (cable.a, cable.b) if end and end.kind == "hca")
    peers = split((_group(cable, hosts), cable.gbps, _Cable(cable)) for cable in told if cable.gbps)
    odd = {id(one.part.fact): one for one in peers.odd if one.value < one.expected}
    findings = [
        _finding(rule, ctx, cable, slow.get(id(cable)), odd.get(id(cable)))
        for cable in told
        if id(cable) in slow or id(cable) in odd
    ]
    rates = Counter(f"{c.width}x {c.speed}" if c.width and c.speed else f"{c.gbps or 0:g} Gb/s" for c in told)
    return rule.close(findings, f"{len(told)} cables, none narrower or slower than it could be ({by_count(rates)})")


def _once(cables: Iterable[CableFact]) -> list[CableFact]:
    """Both ends report a cable: the report of the one that knows what the cable could do stands, else of the first by
    name.
    """
    both: dict[Hashable, list[CableFact]] = defaultdict(list)
    for cable in cables:
        ends = frozenset(
            (end.guid or end.owner, end.device if end.kind == "hca" or not end.port else "", end.port)
            for end in (cable.a, cable.b)
            if end is not None
        )
        both[ends].append(cable)
    found = [
        min(
            own,
            key=lambda c: (
                not _under_own(c),
                c.speed_max is None,
                c.width_max is None,
                _Cable(c).key,
                c.source.line or 0,
            ),
        )
        for own in both.values()
    ]
    return sorted(found, key=lambda cable: (_Cable(cable).key, cable.source.file, cable.source.line or 0))


def _rank(speed: str | None) -> int:
    return _SPEEDS.index(speed.upper()) if speed and speed.upper() in _SPEEDS else -1


def _under_own(cable: CableFact) -> str:
    """What the cable falls short of by its own report."""
    parts = []
    if cable.width and cable.width_max and cable.width < cable.width_max:
        parts.append(f"{cable.width} of {cable.width_max} lanes")
    if -1 < _rank(cable.speed) < _rank(cable.speed_max):
        parts.append(f"{cable.speed} where both ends can do {cable.speed_max}")
    return " and ".join(parts)


def _group(cable: CableFact, hosts: Counter[str]) -> Hashable:
    ends = [end for end in (cable.a, cable.b) if end is not None]
    hca = next((end for end in ends if end.kind == "hca"), None)
    if hca is not None:
        return "hca", hca.device, hosts[hca.owner]
    return "switch", ends[0].guid or ends[0].owner, tuple(sorted(end.kind for end in ends))


def _finding(rule: Rule, ctx: Context, cable: CableFact, own: str | None, odd: "Odd[float, _Cable] | None") -> Finding:
    far = cable.b
    assert far is not None
    parts = [f"runs with {own}"] if own else []
    proof = [cable.source]
    if odd:
        what = "cables of the same HCA on other hosts" if "hca" in (cable.a.kind, far.kind) else "cables of this switch"
        parts.append(f"{odd.value:g} Gb/s; {odd.others(what)} {odd.expected:g}")
        proof += [odd.peer.fact.source] if odd.peer else []
    ends = [cable.a, far]
    names = [
        ctx.at(end.owner, end.device) if end.kind == "hca" else f"switch {end.owner} port {end.port}" for end in ends
    ]
    return rule.fail(
        " to ".join(names),
        "; ".join(parts),
        proof,
        "reseat or replace cable and transceiver, then look at the error counters",
    )


RULES = (Rule("fabric/cable-rate", Severity.WARNING, "no cable runs narrower or slower than it could", _check),)
