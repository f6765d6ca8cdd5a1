"""Root or echo: which of many signs of trouble is the fault, and which merely follow from it.

One dead tray makes every other rank of the gang fail in its next collective. The loud majority are echoes; the
root is the node that is gone, the fabric that is down, the process that a signal ended, or the one whose error
is not about its peers. Where only echoes are seen the answer waits for the root, for a while, and then says
that the root is unknown.
"""

import re
import signal
from dataclasses import dataclass
from enum import StrEnum

from rackyard.faults.observations import FabricDown, NodeLost, RankExited

SETTLE = 0.3
"""Seconds between the first sign and a verdict on processes: a lost node shows a moment after its peers fail."""

ROOT_WAIT = 6.0
"""Seconds to wait for the root while only echoes are seen; longer than a silent agent takes to be called lost."""

FIRST_STEP_FACTOR = 5
"""How many times the hang limit the first step may take: it includes loading data and building the model."""

_ECHO = re.compile(
    r"Connection (closed|reset|refused)( by (remote )?peer)?|Broken pipe|ncclRemoteError|ncclSystemError"
    r"|NCCL communicator was aborted|Socket Timeout|[Tt]imed out (after|waiting)|store->get|"
    r"gloo.*(pair|transport)|TCPStore|DistNetworkError|DistStoreError|recvValue failed"
)
_PORT = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
_EXCEPTION = re.compile(r"^(?:\[?rank\d+\]?:?\s*)?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Fault)\b.*)$")


class Cause(StrEnum):
    """What broke."""

    TRAY = "tray"
    SWITCH_TRAY = "switch-tray"
    RACK_NVLINK = "rack-nvlink"
    PROCESS = "process"
    EXIT = "exit"
    HANG = "hang"
    PORT = "port"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RankView:
    """A rank as attribution needs it."""

    rank: int
    node: str
    step: int
    exit: RankExited | None


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt as attribution needs it; times are monotonic seconds."""

    ranks: tuple[RankView, ...]
    lost_nodes: tuple[NodeLost, ...]
    lost_fabric: tuple[FabricDown, ...]
    symptom: float | None
    moved: float | None
    """When the attempt last gave a sign of progress; its start before that. None: nothing runs yet."""
    first_step_done: bool
    hang_after: float


@dataclass(frozen=True, slots=True)
class Fault:
    """A verdict: one root, with its proof and the echoes that follow from it."""

    cause: Cause
    subject: str
    summary: str
    signature: str
    evidence: tuple[str, ...] = ()
    echoes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()


def attribute(view: AttemptView, now: float) -> Fault | None:
    """The fault of this attempt at monotonic time `now`; None while there is none, or while its root may still show."""
    if view.lost_fabric:
        return _fabric(view, view.lost_fabric)
    if view.lost_nodes:
        return _nodes(view, view.lost_nodes)
    bad = [rank.exit for rank in view.ranks if rank.exit is not None and rank.exit.code != 0]
    if bad:
        age = now - (view.symptom if view.symptom is not None else now)
        return _exits(view, sorted(bad, key=lambda exit_: exit_.mono), age)
    return _hang(view, now)


def _fabric(view: AttemptView, lost: tuple[FabricDown, ...]) -> Fault:
    first = lost[0]
    whole = first.part == "nvlink"
    cause = Cause.RACK_NVLINK if whole else Cause.SWITCH_TRAY
    summary = f"rack {first.rack}: " + ("NVLink domain is down" if whole else f"switch tray {first.part} is down")
    racks = tuple(dict.fromkeys(event.rack for event in lost))
    return Fault(
        cause,
        first.rack,
        summary,
        f"{cause} {first.rack}",
        tuple(event.text for event in lost),
        _echoes(view),
        racks=racks,
    )


def _nodes(view: AttemptView, lost: tuple[NodeLost, ...]) -> Fault:
    nodes = tuple(dict.fromkeys(event.node for event in lost))
    return Fault(
        Cause.TRAY,
        nodes[0],
        f"compute tray {', '.join(nodes)} lost",
        f"tray {','.join(sorted(nodes))}",
        tuple(f"{event.node}: {event.why}" for event in lost),
        _echoes(view, without=nodes),
        nodes=nodes,
    )


def _exits(view: AttemptView, bad: list[RankExited], age: float) -> Fault | None:
    if age < SETTLE:
        return None
    killed = [exit_ for exit_ in bad if exit_.signal is not None]
    own = [exit_ for exit_ in bad if exit_.signal is None and not is_echo(exit_.tail)]
    if killed:
        root = killed[0]
        name = signal_name(root.signal or 0)
        summary = f"rank {root.rank} on {root.node} was ended by {name}"
        return _process(view, root, Cause.PROCESS, summary, f"process {name} rank {root.rank}")
    if own:
        root = own[0]
        line = last_error(root.tail) or last_line(root.tail)
        cause = Cause.PORT if _PORT.search(root.tail) else Cause.EXIT
        summary = f"rank {root.rank} on {root.node} exited with code {root.code}: {line or 'no message'}"
        return _process(view, root, cause, summary, f"exit {root.code} {_normal(line)}")
    if age < ROOT_WAIT:
        return None
    root = bad[0]
    summary = f"only follow-on errors were seen, rank {root.rank} on {root.node} first; the root is unknown"
    return _process(view, root, Cause.UNKNOWN, summary, "unknown")


def _process(view: AttemptView, root: RankExited, cause: Cause, summary: str, signature: str) -> Fault:
    evidence = tuple(f"{root.node} rank {root.rank}: {line}" for line in root.tail.strip().splitlines()[-6:])
    return Fault(
        cause,
        f"rank {root.rank}",
        summary,
        signature,
        evidence or (f"{root.node} rank {root.rank}: no output",),
        _echoes(view, without_rank=root.rank),
        nodes=(root.node,),
    )


def _hang(view: AttemptView, now: float) -> Fault | None:
    if view.moved is None or not view.ranks or all(rank.exit is not None for rank in view.ranks):
        return None
    limit = view.hang_after * (1 if view.first_step_done else FIRST_STEP_FACTOR)
    silent = now - view.moved
    if silent <= limit:
        return None
    newest = max(rank.step for rank in view.ranks)
    behind = [rank for rank in view.ranks if rank.step < newest and rank.exit is None]
    suspects = behind if behind and len(behind) < len(view.ranks) else []
    who = ", ".join(f"rank {rank.rank} on {rank.node}" for rank in suspects[:8])
    return Fault(
        Cause.HANG,
        who or "all ranks",
        f"no step for {silent:.1f} s (limit {limit:g} s); "
        + (f"behind: {who}" if who else "no rank is behind the others"),
        "hang " + ",".join(sorted({rank.node for rank in suspects})),
        tuple(f"rank {rank.rank} on {rank.node}: newest step {rank.step}" for rank in view.ranks[:16]),
        nodes=tuple(dict.fromkeys(rank.node for rank in suspects)),
    )


def _echoes(view: AttemptView, without: tuple[str, ...] = (), without_rank: int | None = None) -> tuple[str, ...]:
    return tuple(
        f"rank {rank.rank} on {rank.node}: {last_error(rank.exit.tail) or how(rank.exit)}"
        for rank in view.ranks
        if rank.exit is not None and rank.exit.code != 0 and rank.node not in without and rank.rank != without_rank
    )


def is_echo(tail: str) -> bool:
    """Whether a log ends in an error about the rank's peers rather than its own."""
    return bool(_ECHO.search(last_error(tail) or tail[-2000:])) and not _PORT.search(tail)


def last_error(tail: str) -> str:
    """The last exception line of a log, e.g. `ValueError: bad`; empty when there is none."""
    for line in reversed(tail.splitlines()):
        found = _EXCEPTION.match(line.strip())
        if found:
            return found.group(1)
    return ""


def last_line(tail: str) -> str:
    """The last line of a log that says anything."""
    return next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "")


def how(exit_: RankExited) -> str:
    """How a process ended, in words."""
    return signal_name(exit_.signal) if exit_.signal is not None else f"exit code {exit_.code}"


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; the bare number for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _normal(line: str) -> str:
    """An error line without what changes from run to run: numbers, addresses, paths' digits."""
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", line)[:200]
