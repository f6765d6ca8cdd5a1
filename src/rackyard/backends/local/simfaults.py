"""Faults of a simulated site. The processes they hit are real; every text says that the cause is simulated."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rackyard.backends.local.backend import LocalBackend
from rackyard.errors import UsageError


class FaultKind(StrEnum):
    """What can be broken."""

    PROCESS = "process"
    """One rank dies (SIGKILL)."""
    HANG = "hang"
    """One rank stops moving (SIGSTOP)."""
    TRAY = "tray"
    """A compute tray loses power: its agent and everything on it die at once."""
    RACK_NVLINK = "rack-nvlink"
    """A rack's NVLink domain goes down: what spans several GPUs there dies."""
    SWITCH_TRAY = "switch-tray"
    """One switch tray of a rack goes down, with the same effect on what runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTarget:
    """Where. Each kind uses some of it; the caller knows which nodes make up a rack."""

    job: str = ""
    rank: int = 0
    nodes: tuple[str, ...] = ()
    rack: str = ""
    part: str = ""
    """The switch tray's name."""


def inject(backend: LocalBackend, kind: FaultKind | str, target: FaultTarget) -> str:
    """Break something now, and say in a sentence what was done. Raises UsageError when there is nothing to hit."""
    kind = FaultKind(kind)
    if kind is FaultKind.PROCESS:
        return _signal_rank(backend, target, signal.SIGKILL)
    if kind is FaultKind.HANG:
        return _signal_rank(backend, target, signal.SIGSTOP)
    if not target.nodes:
        raise UsageError(f"The fault `{kind}` needs the nodes it hits.")
    if kind is FaultKind.TRAY:
        gone = [node for node in target.nodes if backend.crash(node)]
        if not gone:
            raise UsageError(f"No agent runs on {', '.join(target.nodes)}.")
        return f"[simulated] power lost: {', '.join(gone)}"
    return _break_fabric(backend, kind, target)


def _signal_rank(backend: LocalBackend, target: FaultTarget, number: signal.Signals) -> str:
    rank = _find(backend, target)
    who = {"job": rank["job"], "attempt": rank["attempt"], "rank": rank["rank"]}
    answer = backend.ask(rank["node"], "kill", **who, signal=int(number))
    if not answer or not answer["killed"]:
        raise UsageError(f"Rank {target.rank} of {target.job} ended before it could be hit.")
    return f"[simulated] {number.name} to rank {target.rank} of {target.job} on {rank['node']} (pid {rank['pid']})"


def _find(backend: LocalBackend, target: FaultTarget) -> Mapping[str, Any]:
    """The running rank: that of the newest attempt, for an older one is on its way out."""
    running = [r for r in backend.ranks() if (r["job"], r["rank"]) == (target.job, target.rank) and r["pid"]]
    if not running:
        raise UsageError(f"Rank {target.rank} of {target.job or 'no job'} isn't running.")
    return max(running, key=lambda rank: int(rank["attempt"]))


def _break_fabric(backend: LocalBackend, kind: FaultKind, target: FaultTarget) -> str:
    if not target.rack:
        raise UsageError(f"The fault `{kind}` needs the rack's name.")
    part = "nvlink" if kind is FaultKind.RACK_NVLINK else target.part or "switch-tray"
    what = "NVLink fabric" if kind is FaultKind.RACK_NVLINK else f"NVSwitch tray {part}"
    text = f"[simulated] NVRM: Xid (rack {target.rack}): 154, {what} is down, GPU recovery action: fabric reset"
    killed = 0
    said = False
    for node in target.nodes:
        # One agent records it for the rack; it does so before the first rank dies of it.
        answer = backend.ask(node, "fabric", rack=target.rack, part=part, text="" if said else text)
        if answer is not None:
            said = True
            killed += answer["killed"]
    if not said:
        raise UsageError(f"No agent runs on {', '.join(target.nodes)}.")
    return f"{text}; {killed} rank(s) died of it"
