"""Simulated faults of nodes, as wishes in files: `<state>/nodes/<node>.json`. Whoever writes one there, the kubelet
that has the state folder makes it so, also after it was killed and started again.
"""

import time
from pathlib import Path

import msgspec

from testbed.kubelet.processes import write


class Condition(msgspec.Struct, frozen=True):
    """A condition of the node; every message says that it is simulated. `at` in seconds since 1970."""

    status: str
    reason: str
    message: str
    at: float


class Faults(msgspec.Struct, frozen=True):
    """What is wrong with a node. `lost`: it has no power, so runs nothing and says nothing."""

    lost: bool = False
    conditions: dict[str, Condition] = {}


def read(state: Path, node: str) -> Faults:
    """The faults of a node; none where nobody made any."""
    try:
        return msgspec.json.decode(_path(state, node).read_bytes(), type=Faults)
    except FileNotFoundError:
        return Faults()


def lose(state: Path, node: str) -> None:
    """The tray loses power: all its processes die at once, and its heartbeat stops."""
    _write(state, node, msgspec.structs.replace(read(state, node), lost=True))


def condition(state: Path, node: str, kind: str, status: str = "True", reason: str = "Injected") -> None:
    """A node condition such as NVLinkDown, as an agent on the node would set it."""
    now = read(state, node)
    said = Condition(status, reason, f"[simulated] {kind} is {status}: {reason}", time.time())
    _write(state, node, msgspec.structs.replace(now, conditions=now.conditions | {kind: said}))


def restore(state: Path, node: str) -> None:
    """The tray is powered and well again: it beats, and conditions that were set turn False."""
    well = {
        kind: Condition("False", "Restored", f"[simulated] {kind} is over", time.time())
        for kind in read(state, node).conditions
    }
    _write(state, node, Faults(conditions=well))


def _path(state: Path, node: str) -> Path:
    return state / "nodes" / f"{node}.json"


def _write(state: Path, node: str, faults: Faults) -> None:
    path = _path(state, node)
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, msgspec.to_builtins(faults))
