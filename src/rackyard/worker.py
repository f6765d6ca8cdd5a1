"""What a training script says to the agent beside it: which step is done, which checkpoint is published.

Three lines make a script visible to Rackyard:

    import rackyard
    ...
    rackyard.report_step(step, loss=loss)

Outside Rackyard the calls do nothing, so a script needs no condition around them. A report is one
datagram to the agent's socket, sent without waiting: training is never slowed or stopped by it.
Standard library only, because it is imported into other people's processes.
"""

import contextlib
import json
import os
import socket
import time
from functools import cache
from typing import Any

SOCKET_ENV = "RACKYARD_REPORT_SOCKET"
RESUME_ENV = "RACKYARD_RESUME_STEP"
JOB_ENV = "RACKYARD_JOB"
ATTEMPT_ENV = "RACKYARD_ATTEMPT"


@cache
def _channel(_pid: int) -> tuple[socket.socket, str] | None:
    path = os.environ.get(SOCKET_ENV)
    if not path:
        return None
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.setblocking(False)
    return channel, path


def _send(kind: str, **fields: Any) -> None:
    # Keyed by pid: a process forked from this one must not share its socket.
    channel = _channel(os.getpid())
    if channel is None:
        return
    message = {
        "kind": kind,
        "job": os.environ.get(JOB_ENV, ""),
        "attempt": int(os.environ.get(ATTEMPT_ENV, "0")),
        "rank": int(os.environ.get("RANK", "0")),
        "t": time.time(),
        **fields,
    }
    # A full queue or a dead agent must not hurt the training: the report is dropped.
    with contextlib.suppress(OSError):
        channel[0].sendto(json.dumps(message).encode(), channel[1])


def report_step(step: int, **metrics: float) -> None:
    """Say that optimizer step `step` (counted from 1) is complete, with any metrics, e.g. `loss=0.7`."""
    _send("step", step=int(step), metrics={name: float(value) for name, value in metrics.items()})


def report_checkpoint(step: int, path: str, *, seconds: float = 0.0) -> None:
    """Say that the checkpoint of `step` is published at `path`; `seconds` is how long saving took."""
    _send("checkpoint", step=int(step), path=str(path), seconds=float(seconds))


def report_damage(path: str, why: str) -> None:
    """Say that the checkpoint at `path` failed verification, and why."""
    _send("damage", path=str(path), why=why)


def resume_step() -> int | None:
    """The step Rackyard expects this attempt to resume from; None when it starts from nothing."""
    value = os.environ.get(RESUME_ENV, "")
    return int(value) if value else None


def report_resumed(step: int, seconds: float) -> None:
    """Say that the state of `step` is loaded, in `seconds`, and that training goes on from it."""
    _send("resumed", step=int(step), seconds=float(seconds))
