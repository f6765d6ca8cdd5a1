"""What the cluster says of a node, as signals of trouble that carry where they come from and since when. Pure.

A condition that says something is bad is True for it, by custom; one that nobody knows (Unknown) is a doubt: no
reason to take a node out of use, and none to call it healthy. Ready is the other way round.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType

import msgspec

from rackyard.controller.kube.objects import FAULT, Condition, Mark, Node

MAINTENANCE = "rackyard.io/maintenance"
"""Annotation: somebody works on the node. Any value; an RFC 3339 time is until when."""
OVERRULED = "rackyard.io/fault-overruled"
BEFORE = "rackyard.io/fault-before"
"""Annotation of a node that is well again: its last mark."""
"""Annotation: somebody lifted our cordon; the `Mark` that it had. The same fault does not cordon the node again."""


class Kind(StrEnum):
    """What a signal is about."""

    LOST = "lost"
    """No heartbeat, or a kubelet that says it isn't ready."""
    OUT = "out"
    """Somebody says that the machine is shut down."""
    NVLINK = "nvlink"
    """NVLinks of this tray are down."""
    FABRIC = "fabric"
    """The tray sees its NVLink domain degraded: often an echo of what happened to another tray."""
    SWITCH = "switch"
    """An NVSwitch failed."""
    GPU = "gpu"
    NIC = "nic"
    SYSTEM = "system"
    """The kernel or a file system gave up."""


CONDITIONS: Mapping[str, Kind] = MappingProxyType(
    {
        # our agent's
        "rackyard.io/NVLinkDown": Kind.NVLINK,
        "rackyard.io/FabricDegraded": Kind.FABRIC,
        "rackyard.io/GPUFault": Kind.GPU,
        "rackyard.io/NICDown": Kind.NIC,
        # NVSentinel's, which are set for what it calls fatal (NVIDIA/NVSentinel docs/INTEGRATIONS.md, monitors' checks)
        "GpuNvlinkWatch": Kind.NVLINK,
        "GpuNvswitchFatalWatch": Kind.SWITCH,
        "NVSwitchFatalError": Kind.SWITCH,
        "NVSwitchDown": Kind.SWITCH,
        "SysLogsSXIDError": Kind.SWITCH,
        "GpuXidError": Kind.GPU,
        "SysLogsXIDError": Kind.GPU,
        "SysLogsGPUFallenOff": Kind.GPU,
        "GpuMemWatch": Kind.GPU,
        "GpuThermalWatch": Kind.GPU,
        "GpuPcieWatch": Kind.GPU,
        "GpuPowerWatch": Kind.GPU,
        "GpuInforomWatch": Kind.GPU,
        "GpuSmWatch": Kind.GPU,
        "GpuMcuWatch": Kind.GPU,
        "GpuPmuWatch": Kind.GPU,
        "GpuDriverWatch": Kind.GPU,
        "InfiniBandStateCheck": Kind.NIC,
        "EthernetStateCheck": Kind.NIC,
        "SysLogsNICDriverError": Kind.NIC,
        # node-problem-detector's (kubernetes/node-problem-detector config/kernel-monitor.json)
        "KernelDeadlock": Kind.SYSTEM,
        "ReadonlyFilesystem": Kind.SYSTEM,
        "XfsShutdown": Kind.SYSTEM,
    }
)
"""Conditions that are a fault of hardware when True. Pressure of memory, disk or PIDs is none, nor is a network that
was not set up yet.
"""

TAINTS: Mapping[str, Kind] = MappingProxyType(
    {
        "node.kubernetes.io/unreachable": Kind.LOST,
        "node.kubernetes.io/not-ready": Kind.LOST,
        "node.kubernetes.io/out-of-service": Kind.OUT,
        # the examples of NVSentinel's documentation; it sets none unless it is told to
        "nvidia.com/gpu-nvlink-error": Kind.NVLINK,
        "nvidia.com/gpu-xid-error": Kind.GPU,
        "nvidia.com/syslog-xid-error": Kind.GPU,
        "nvidia.com/gpu-error": Kind.GPU,
    }
)
_CORDONED = "node.kubernetes.io/unschedulable"
_NVLINK_XIDS, _ECHO_XIDS, _USER_XIDS = frozenset({149}), frozenset({145}), frozenset({13, 31, 43, 45})
"""149: a link of this GPU is down; 145: what its peers then log; the last: errors of the application
(facts: faults §1, §5).
"""
_XID = re.compile(r"\bErrorCode:(\d{1,3})\b|\bXid(?: \(PCI:[^)]*\))?:? ?(\d{1,3})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Signal:
    """One sign of trouble. `origin` is the condition or taint; `since`, seconds since the epoch, where it says so."""

    node: str
    kind: Kind
    origin: str
    text: str = ""
    since: float | None = None

    @property
    def line(self) -> str:
        """For people."""
        since = f" since {stamp(self.since)}" if self.since is not None else ""
        return f"{self.node}: {self.origin}{since}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that nobody knows of a node, and since when, in seconds since the epoch, where that is said."""

    text: str
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A node as health needs it. `cordoned_at` is when, where that is known; `maintenance` until when somebody works
    on it; both in seconds since the epoch.
    """

    node: str
    uid: str = ""
    version: str = ""
    signals: tuple[Signal, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    ready: bool = True
    cordoned: bool = False
    cordoned_at: float | None = None
    mark: Mark | None = None
    """Ours; with empty fields where it can't be read."""
    overruled: tuple[Mark, ...] = ()
    before: Mark | None = None
    """The mark that it bore last, if it is well again."""
    maintenance: float = -math.inf

    @property
    def quiet(self) -> bool:
        """Whether there is nothing to decide about it, for what it says itself."""
        return not (self.signals or self.mark or self.overruled or self.maintenance > -math.inf or self.cordoned)


@dataclass(frozen=True, slots=True)
class Tables:
    """Which conditions and taints mean what; given ones come on top of those above."""

    conditions: Mapping[str, Kind] = field(default_factory=lambda: CONDITIONS)
    taints: Mapping[str, Kind] = field(default_factory=lambda: TAINTS)


def read(node: Node, tables: Tables) -> Reading:
    """What a node says."""
    name, notes = node.metadata.name, node.metadata.annotations
    ready = next((c for c in node.status.conditions if c.type == "Ready"), None)
    signals, doubts = _of_conditions(node, tables.conditions)
    up = ready is not None and ready.status == "True"
    if ready is None:
        doubts.append(Doubt("Ready: nobody has said so yet"))
    elif not up:
        told = ": ".join(filter(None, (ready.reason, ready.message)))
        signals.append(Signal(name, Kind.LOST, f"Ready={ready.status}", told, instant(ready.last_transition_time)))
    for taint in node.spec.taints:
        kind = tables.taints.get(taint.key)
        if kind is Kind.LOST and up:
            doubts.append(Doubt(f"taint {taint.key}, though Ready"))
        elif kind is not None:
            signals.append(Signal(name, kind, f"taint {taint.key}", taint.value, instant(taint.time_added)))
    cordon = next((taint for taint in node.spec.taints if taint.key == _CORDONED), None)
    return Reading(
        node=name,
        uid=node.metadata.uid,
        version=node.metadata.resource_version,
        signals=tuple(signals),
        doubts=tuple(doubts),
        ready=up,
        cordoned=node.spec.unschedulable,
        cordoned_at=instant(cordon.time_added) if cordon else None,
        mark=_mark(notes.get(FAULT)),
        overruled=_marks(notes.get(OVERRULED)),
        before=_mark(notes.get(BEFORE)),
        maintenance=_until(notes.get(MAINTENANCE)),
    )


def instant(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None for anything else."""
    try:
        found = datetime.fromisoformat(text or "")
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def stamp(at: float) -> str:
    """RFC 3339 for seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _of_conditions(node: Node, table: Mapping[str, Kind]) -> tuple[list[Signal], list[Doubt]]:
    signals: list[Signal] = []
    doubts: list[Doubt] = []
    for condition in node.status.conditions:
        kind = table.get(condition.type)
        if kind is None or condition.status == "False":
            continue
        kind = _by_xid(kind, condition)
        since = instant(condition.last_transition_time)
        text = " ".join((condition.message or condition.reason).split())
        if condition.status == "True" and kind is not None:
            signals.append(Signal(node.metadata.name, kind, condition.type, text, since))
        else:
            doubts.append(Doubt(f"{condition.type} is {condition.status}: {text}", since))
    return signals, doubts


def _by_xid(kind: Kind, condition: Condition) -> Kind | None:
    """A GPU's error by its Xids: a link, an echo of a peer's link, or, where all are the application's, none (None)."""
    if kind is not Kind.GPU:
        return kind
    xids = {int(one or other) for one, other in _XID.findall(condition.message)}
    if not xids or xids - _NVLINK_XIDS - _ECHO_XIDS - _USER_XIDS:
        return kind
    if xids & _NVLINK_XIDS:
        return Kind.NVLINK
    return Kind.FABRIC if xids & _ECHO_XIDS else None


def _mark(text: str | None) -> Mark | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Mark)
    except msgspec.MsgspecError:
        return Mark("", "", "", "")


def _marks(text: str | None) -> tuple[Mark, ...]:
    if text is None:
        return ()
    try:
        return msgspec.json.decode(text, type=tuple[Mark, ...])
    except msgspec.MsgspecError:
        return (Mark("", "", "", ""),)


def _until(text: str | None) -> float:
    if text is None:
        return -math.inf
    return found if (found := instant(text.strip())) is not None else math.inf
