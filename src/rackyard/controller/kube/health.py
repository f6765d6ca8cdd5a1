"""From signals, memory and clock to what is done with nodes: cordon, mark, uncordon, or nothing, and why. Pure.

What must outlive the controller stands on the nodes: the mark and its time. Memory is timers only: whoever starts
anew waits once more before it cordons or uncordons, and does neither too early.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from rackyard.controller.kube.attribution import LINKS, Layout, Seen, View, attribute
from rackyard.controller.kube.objects import Mark
from rackyard.controller.kube.signals import Kind, Reading, Tables, instant, stamp
from rackyard.errors import UsageError
from rackyard.faults import Cause, Fault

AGAIN = 60.0
"""Seconds after which an open circuit breaker is looked at again, though nothing happened."""
MOST_DOUBLED = 6
"""To about an hour: a fault that comes and goes costs the gangs on the node more than the node is worth."""
HELD = "the circuit breaker is open"
"""Why a node is left alone that would be cordoned else."""
_WHOLE = (Cause.RACK_NVLINK, Cause.SWITCH_TRAY)


class Now(NamedTuple):
    """Two clocks: `mono`, seconds, for durations; `wall`, seconds since the epoch, for what stands on objects."""

    mono: float
    wall: float


@dataclass(frozen=True, slots=True)
class Options:
    """How health is judged; times in seconds. `share` is of the site's nodes that may be taken out of use within
    `window`; `limit` says how many that is at least.
    """

    mode: Literal["observe", "act"] = "observe"
    lost_after: float = 10.0
    """Beyond what Kubernetes waits itself before it calls a node's heartbeat lost."""
    settle: float = 2.0
    """For links: so that trays that report one after another, or come back from a reboot, are judged once."""
    root_wait: float = 60.0
    """For a degraded fabric without a root: longer than Kubernetes takes to miss a tray (50 s by default)."""
    heal_after: float = 60.0
    """Doubled each time that a node is marked again within `window` of its last mark, up to `MOST_DOUBLED` times."""
    share: float = 0.2
    window: float = 86400.0
    tables: Tables = field(default_factory=Tables)

    def __post_init__(self) -> None:
        """UsageError for what is out of range."""
        if self.mode not in ("observe", "act"):
            raise UsageError(f"there is no mode {self.mode!r}", fix="observe or act")
        if not 0 <= self.share <= 1:
            raise UsageError(f"a share of {self.share:g} of the nodes is none", fix="a number from 0 to 1")
        for name in ("lost_after", "settle", "root_wait", "heal_after", "window"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name)}", fix="a number of seconds, 0 or more")

    def limit(self, layout: Layout) -> int:
        """Nodes that may be out of use through us: `share`, but at least two, and of a small site as many as its
        largest NVLink domain and two more, up to half of it, so that a whole domain may fail.
        """
        nodes = len(layout.site.nodes)
        largest = max((len(names) for names in layout.domains.values()), default=0)
        return max(2, int(self.share * nodes), min(largest + 2, nodes // 2))


@dataclass(frozen=True, slots=True)
class Memory:
    """Timers, in `Now.mono`: when each signal was first seen, since when nodes are away, when they came back, and
    since when a marked node is well. `open` is the circuit breaker.
    """

    seen: Mapping[tuple[str, str], float] = field(default_factory=dict)
    away: Mapping[str, float] = field(default_factory=dict)
    back: Mapping[str, float] = field(default_factory=dict)
    well: Mapping[str, float] = field(default_factory=dict)
    open: bool = False


class Do(StrEnum):
    """What is done with a node."""

    CORDON = "cordon"
    MARK = "mark"
    """It is out of use already, and its mark says less than is known now."""
    UNCORDON = "uncordon"
    OVERRULE = "overrule"
    """Somebody lifted our cordon: the mark goes, and the fault is remembered as overruled."""
    FORGET = "forget"
    """What was overruled is gone."""


@dataclass(frozen=True, slots=True)
class Step:
    """One decision about one node, with its evidence; `mark` is what the node is to bear."""

    do: Do
    on: Reading
    mark: Mark | None
    why: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong and what is done about it. `kept` says of nodes why nothing is done with them though they are at
    fault; `breaker` why nothing is cordoned at all; `again` is when to look again though nothing happens (inf: never).
    """

    faults: tuple[Fault, ...]
    steps: tuple[Step, ...]
    kept: Mapping[str, str]
    breaker: str
    again: float
    memory: Memory


def decide(readings: Mapping[str, Reading], layout: Layout, memory: Memory, options: Options, now: Now) -> Verdict:
    """What to do with the site's nodes, of which `readings` has all that the cluster knows."""
    busy = {name: reading for name, reading in readings.items() if not reading.quiet}
    memory = _remember(busy, memory, options, now)
    view, due = _view(busy, layout, memory, options, now)
    faults, again = attribute(view, now.mono)
    steps, kept, at_fault = _about_faults(faults, readings, options, now)
    fresh = [step for step in steps if step.do is Do.CORDON]
    breaker = _breaker(fresh, busy, layout, options, now)
    if breaker:
        steps = [step for step in steps if step.do is not Do.CORDON]
        kept |= {step.on.node: HELD for step in fresh}
    healed, well, next_well = _heal(busy, at_fault, memory, options, now)
    overruled = [
        Step(Do.OVERRULE, r, r.mark, "somebody lifted the cordon: this fault does not cordon the node again")
        for r in busy.values()
        if r.mark and not r.cordoned
    ]
    memory = Memory(memory.seen, memory.away, memory.back, well, bool(breaker))
    soonest = min(again, due, next_well, now.mono + AGAIN if breaker else math.inf)
    return Verdict(faults, (*steps, *overruled, *healed), kept, breaker, soonest, memory)


def planned(reading: Reading, now: Now) -> bool:
    """Whether somebody works on the node, or took it out of use before it showed anything."""
    return reading.maintenance > now.wall or _taken(reading)


def _taken(reading: Reading) -> bool:
    if not reading.cordoned or reading.mark:
        return False
    at = reading.cordoned_at
    return at is None or not any(s.since is not None and s.since < at for s in reading.signals)


def _lost(reading: Reading) -> bool:
    return any(signal.kind is Kind.LOST for signal in reading.signals)


def _remember(readings: Mapping[str, Reading], old: Memory, options: Options, now: Now) -> Memory:
    """The timers, with what is new and without what is over."""
    seen = {
        (signal.node, signal.origin): old.seen.get((signal.node, signal.origin), now.mono)
        for reading in readings.values()
        for signal in reading.signals
    }
    out = [name for name, r in readings.items() if _lost(r) or planned(r, now)]
    away = {name: old.away.get(name, now.mono) for name in out}
    back = {name: now.mono for name in old.away if name not in away}
    back = {
        name: at for name, at in {**old.back, **back}.items() if name not in away and now.mono < at + options.settle
    }
    return Memory(seen, away, back, old.well, old.open)


def _view(
    readings: Mapping[str, Reading], layout: Layout, memory: Memory, options: Options, now: Now
) -> tuple[View, float]:
    """What counts, and when something that is waited for is due."""
    seen: dict[str, tuple[Seen, ...]] = {}
    lost: set[str] = set()
    due = [at + options.settle for at in memory.back.values()]
    due += [_mono(r.maintenance, now) for r in readings.values() if now.wall < r.maintenance < math.inf]
    for name, reading in readings.items():
        if not reading.signals or not layout.site.has_node(name) or reading.maintenance > now.wall:
            continue
        silent = [memory.seen[name, s.origin] for s in reading.signals if s.kind is Kind.LOST]
        if silent and not planned(reading, now):
            if now.mono >= min(silent) + options.lost_after:
                lost.add(name)
            else:
                due.append(min(silent) + options.lost_after)
        taken = planned(reading, now)
        mute = {*(LINKS if taken or silent or name in memory.back else ())}
        mute |= {Kind.GPU, Kind.NIC, Kind.SYSTEM} if silent else set()
        seen[name] = tuple(Seen(s, memory.seen[name, s.origin], s.kind in mute) for s in reading.signals)
    away = {**memory.back, **memory.away}
    view = View(layout, seen, away, frozenset(lost), options.settle, options.root_wait)
    return view, min(due, default=math.inf)


def _about_faults(
    faults: Iterable[Fault], readings: Mapping[str, Reading], options: Options, now: Now
) -> tuple[list[Step], dict[str, str], set[str]]:
    """Cordons and marks; why other nodes of the faults are left alone; and all nodes that are at fault."""
    steps: list[Step] = []
    kept: dict[str, str] = {}
    at_fault: set[str] = set()
    for fault in faults:
        mark = Mark(str(fault.cause), fault.subject, fault.summary, stamp(now.wall))
        for name in fault.nodes:
            first = name not in at_fault
            at_fault.add(name)
            reading = readings.get(name)
            if not first or reading is None:
                continue
            if reading.maintenance > now.wall:
                kept[name] = "somebody works on it"
            elif reading.mark:
                if reading.cordoned and fault.cause in _WHOLE and reading.mark.cause not in _WHOLE:
                    counted = msgspec.structs.replace(mark, times=reading.mark.times)
                    steps.append(Step(Do.MARK, reading, counted, fault.summary, fault.evidence))
            elif reading.cordoned:
                kept[name] = "somebody else cordoned it"
            elif any(_same(each, fault) for each in reading.overruled):
                kept[name] = "somebody overruled this"
            else:
                counted = msgspec.structs.replace(mark, times=_times(reading.before, options, now))
                steps.append(Step(Do.CORDON, reading, counted, fault.summary, fault.evidence))
    return steps, kept, at_fault


def _same(mark: Mark, fault: Fault) -> bool:
    return (mark.cause, mark.subject) == (fault.cause, fault.subject)


def _times(before: Mark | None, options: Options, now: Now) -> int:
    at = instant(before.at) if before else None
    return before.times + 1 if before and at is not None and now.wall < at + options.window else 1


def _breaker(fresh: list[Step], readings: Mapping[str, Reading], layout: Layout, options: Options, now: Now) -> str:
    """Why nothing is cordoned: too much of the site would be out of use through us; empty when it would not."""
    if not fresh:
        return ""
    since = now.wall - options.window
    out = 0
    for reading in readings.values():
        if reading.mark and reading.cordoned:
            at = instant(reading.mark.at)
            out += at is None or at >= since
    limit = options.limit(layout)
    if out + len(fresh) <= limit:
        return ""
    return (
        f"{len(fresh)} more nodes would be cordoned, {out} are: {out + len(fresh)} of {len(layout.site.nodes)} is over "
        f"the limit of {limit}; nothing more is cordoned until it falls below, or the limit is raised"
    )


def _heal(
    readings: Mapping[str, Reading], at_fault: set[str], memory: Memory, options: Options, now: Now
) -> tuple[list[Step], dict[str, float], float]:
    """What goes back into use; since when marked nodes are well; and when the next one is due."""
    steps: list[Step] = []
    well: dict[str, float] = {}
    again = math.inf
    for name, reading in readings.items():
        ours = (reading.mark and reading.cordoned) or (reading.overruled and not reading.mark)
        ill = reading.signals or _doubted(reading) or not reading.ready or reading.maintenance > now.wall
        if not ours or ill or name in at_fault:
            continue
        well[name] = memory.well.get(name, now.mono)
        wait = options.heal_after * 2 ** min(reading.mark.times - 1 if reading.mark else 0, MOST_DOUBLED)
        due = well[name] + wait
        if now.mono < due:
            again = min(again, due)
            continue
        why = f"Ready and without a signal for {wait:g} s"
        if reading.mark:
            steps.append(Step(Do.UNCORDON, reading, None, f"{why}; it was out of use for: {reading.mark.summary}"))
        else:
            steps.append(Step(Do.FORGET, reading, None, why))
    return steps, well, again


def _doubted(reading: Reading) -> bool:
    """Whether something is not known that was when the node was marked: what nobody could tell before is no reason."""
    at = instant(reading.mark.at if reading.mark else None)
    return any(at is None or doubt.since is None or doubt.since >= at for doubt in reading.doubts)


def _mono(wall: float, now: Now) -> float:
    return now.mono + (wall - now.wall)
