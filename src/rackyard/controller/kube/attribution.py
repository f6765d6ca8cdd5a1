"""From signals of nodes to faults with one root each: a tray, a switch tray, or a rack's NVLink domain. Pure.

The rules (facts: faults §5): links down on one tray and echoes elsewhere are that tray's fault; on two trays and more,
or where a signal names a switch tray or the domain, it is the domain's, and the domain is out of use as a whole. A
tray that goes away, or whose GPU fails, takes its links with it, so that what its peers see about then is an echo.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rackyard.controller.kube.signals import Kind, Signal
from rackyard.fabric import DomainKey, Site
from rackyard.faults import Cause, Fault

LINKS = (Kind.NVLINK, Kind.FABRIC, Kind.SWITCH)
_DOWN = r"(?:down|lost|failed|dead|gone|missing|unhealthy|not operational)"
_SWITCH = re.compile(rf"\b(?:NV)?switch[ -]?tray\s+(\S+)\s+(?:is |has |was )?{_DOWN}\b", re.IGNORECASE)
_WHOLE = re.compile(rf"\b(?:NVLink domain|whole (?:rack|domain)|all trays)\b[^.;]*\b{_DOWN}\b", re.IGNORECASE)
TOGETHER = 3600.0
"""Seconds within which links of two trays go down for one reason. A tray that waits for its repair for days, and then
another, are two faults.
"""
_SHOWN = 8
"""Lines of evidence that a fault keeps."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands where on the site, by name; made once."""

    site: Site
    racks: Mapping[str, tuple[str, ...]]
    """Trays of each rack."""
    domains: Mapping[DomainKey, tuple[str, ...]]
    switches: Mapping[str, str]
    """Rack of each switch tray."""

    @classmethod
    def of(cls, site: Site) -> "Layout":
        """The layout of a site."""
        racks: dict[str, list[str]] = {}
        domains: dict[DomainKey, list[str]] = {}
        for node in site.nodes:
            racks.setdefault(node.rack, []).append(node.name)
            domains.setdefault(node.domain, []).append(node.name)
        return cls(
            site,
            {rack: tuple(nodes) for rack, nodes in racks.items()},
            {key: tuple(nodes) for key, nodes in domains.items()},
            {tray.name: rack.name for rack in site.racks for tray in rack.switch_trays},
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """A signal, since when it is seen (seconds of the caller's clock), and whether it counts: `mute` ones are kept as
    evidence only.
    """

    signal: Signal
    at: float
    mute: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """What attribution looks at; all times are seconds of the caller's clock."""

    layout: Layout
    seen: Mapping[str, tuple[Seen, ...]]
    """By node; only nodes with signals."""
    away: Mapping[str, float]
    """Nodes that are lost, rebooting, or worked on, and since when."""
    lost: frozenset[str]
    """Those of them that are lost for too long."""
    settle: float
    """How long links are watched before a verdict, so that trays that report one after another become one fault."""
    root_wait: float
    """How long a degraded fabric alone waits for its root: a dead tray shows only when Kubernetes misses it."""


def attribute(view: View, now: float) -> tuple[tuple[Fault, ...], float]:
    """The faults at `now`, those of domains first, and when to look again though nothing happened (inf: never)."""
    faults: list[Fault] = []
    again = float("inf")
    alone: dict[str, list[Signal]] = {}
    echoes: dict[str, tuple[str, ...]] = {}
    touched = dict.fromkeys(view.layout.site.node(name).domain for name in view.seen)
    for key in touched:
        found = _domain(view, key, now)
        faults += [found.fault] if found.fault else []
        again = min(again, found.again)
        for signal in found.alone:
            alone.setdefault(signal.node, []).append(signal)
            echoes[signal.node] = found.echoes
    faults += _lost(view)
    for name, seen in view.seen.items():
        rest = [s.signal for s in seen if not s.mute and s.signal.kind not in (*LINKS, Kind.LOST)]
        rest += alone.get(name, [])
        if rest and name not in view.lost:
            faults.append(tray(name, rest, echoes.get(name, ())))
    return tuple(faults), again


@dataclass(frozen=True, slots=True)
class _Found:
    fault: Fault | None = None
    alone: tuple[Signal, ...] = ()
    """Signals of links that are their own tray's fault."""
    echoes: tuple[str, ...] = ()
    again: float = float("inf")


def _domain(view: View, key: DomainKey, now: float) -> _Found:
    """What the links of one domain's trays say together."""
    members = view.layout.domains[key]
    links = [s for name in members for s in view.seen.get(name, ()) if s.signal.kind in LINKS]
    gone = [name for name in members if name in view.away]
    loud = [s for s in links if not s.mute and not _names_any(s.signal.text, gone)]
    if key.is_own:
        return _settled(loud, (), view.settle, now)
    named = [s for s in loud if s.signal.kind is Kind.SWITCH or names_more(s.signal.text)]
    down = [s for s in loud if s.signal.kind is Kind.NVLINK]
    if named or down:
        roots, wait = list(dict.fromkeys((*named, *down))), view.settle
    else:
        about = _roots_elsewhere(view, members)
        roots = [s for s in loud if not any(abs(s.at - at) <= view.root_wait for at in about)]
        wait = max(view.settle, view.root_wait)
    echoes = tuple(s.signal.line for s in links if s not in roots)[:_SHOWN]
    firsts = _joint(roots)
    if named or len(firsts) > 1:
        due = (min(s.at for s in named) if named else firsts[1]) + wait
        if now < due:
            return _Found(again=due)
        return _Found(_of_domain(view.layout, key, [s.signal for s in roots], echoes))
    return _settled(roots, echoes, wait, now)


def _roots_elsewhere(view: View, members: Iterable[str]) -> list[float]:
    """When trays of the domain went away, or lost a GPU: their peers see a degraded fabric then."""
    found = [view.away[name] for name in members if name in view.away]
    for name in members:
        found += [s.at for s in view.seen.get(name, ()) if not s.mute and s.signal.kind in (Kind.GPU, Kind.OUT)]
    return found


def _settled(links: list[Seen], echoes: tuple[str, ...], wait: float, now: float) -> _Found:
    """Links of single trays, once it is clear that no other tray follows."""
    due = [s.at + wait for s in links if now < s.at + wait]
    ripe = tuple(s.signal for s in links if now >= s.at + wait)
    return _Found(None, ripe, echoes, min(due, default=float("inf")))


def _joint(links: Iterable[Seen]) -> list[float]:
    """When the first signal was seen of each tray that another one joined within TOGETHER; in order."""
    firsts: dict[str, Seen] = {}
    for link in links:
        known = firsts.setdefault(link.signal.node, link)
        firsts[link.signal.node] = min(known, link, key=lambda seen: seen.at)
    began = {node: seen.signal.since for node, seen in firsts.items()}

    def joined(node: str) -> bool:
        mine = began[node]
        others = [at for name, at in began.items() if name != node]
        return any(mine is None or at is None or abs(mine - at) <= TOGETHER for at in others)

    return sorted(seen.at for node, seen in firsts.items() if joined(node))


def _of_domain(layout: Layout, key: DomainKey, signals: list[Signal], echoes: tuple[str, ...]) -> Fault:
    nodes = layout.domains[key]
    racks = tuple(dict.fromkeys(layout.site.node(name).rack for name in nodes))
    on = len({signal.node for signal in signals})
    switch = _switch(layout, signals)
    if switch or any(signal.kind is Kind.SWITCH for signal in signals):
        cause, subject = Cause.SWITCH_TRAY, switch or racks[0]
        summary = f"rack {racks[0]}: switch tray {switch} is down" if switch else f"rack {racks[0]}: an NVSwitch failed"
    else:
        cause, subject = Cause.RACK_NVLINK, racks[0]
        summary = f"rack {racks[0]}: NVLink domain is down"
    if all(signal.kind is Kind.FABRIC for signal in signals) and not switch:
        summary = f"rack {racks[0]}: NVLink domain is degraded"
    summary += f", as {on} of its {len(nodes)} trays say"
    lines = shown(signal.line for signal in signals)
    return Fault(cause, subject, summary, f"{cause} {subject}", lines, echoes, nodes, racks)


def _switch(layout: Layout, signals: list[Signal]) -> str:
    """The switch tray that a signal says is down, or that all of several trays' signals name; empty for none."""
    for signal in signals:
        if found := _SWITCH.search(signal.text):
            return found[1].strip(".,:;'\"")
    if len({signal.node for signal in signals}) < 2:
        return ""
    words = [set(re.findall(r"[\w.-]+", signal.text)) for signal in signals]
    return next(iter(sorted(set.intersection(*words) & layout.switches.keys())), "")


def _lost(view: View) -> Iterator[Fault]:
    """Trays without a heartbeat; where all of a rack are, it is one subject: its power, or its management network."""
    by_rack: dict[str, list[str]] = {}
    for name in sorted(view.lost):
        by_rack.setdefault(view.layout.site.node(name).rack, []).append(name)
    for rack, names in by_rack.items():
        trays = view.layout.racks[rack]
        told = {name: [s.signal for s in view.seen[name]] for name in names}
        if len(names) > 1 and view.away.keys() >= set(trays):
            summary = f"rack {rack}: all trays that were in use are lost ({len(names)}): power or management network"
            lines = shown(signal.line for signals in told.values() for signal in signals)
            yield Fault(Cause.TRAY, rack, summary, f"tray {rack}", lines, (), tuple(names), (rack,))
        else:
            yield from (tray(name, signals, ()) for name, signals in told.items())


def tray(name: str, signals: list[Signal], echoes: tuple[str, ...]) -> Fault:
    """The fault of one tray."""
    first = signals[0]
    what = f"{first.origin}: {first.text}" if first.text else first.origin
    summary = f"compute tray {name}: {what}"[:300]
    return Fault(Cause.TRAY, name, summary, f"tray {name}", shown(s.line for s in signals), echoes, (name,))


def shown(lines: Iterable[str]) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    every = tuple(lines)
    more = len(every) - _SHOWN
    return every if more <= 0 else (*every[:_SHOWN], f"and {more} more like these")


def names_more(text: str) -> bool:
    """Whether a signal says that more than its own tray is down."""
    return bool(_SWITCH.search(text) or _WHOLE.search(text))


def _names_any(text: str, nodes: Iterable[str]) -> bool:
    words = set(re.findall(r"[\w.-]+", text))
    return any(node in words for node in nodes)
