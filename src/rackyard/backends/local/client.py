"""The controller's way to an agent: start one, ask one, watch one."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rackyard.backends.local import places
from rackyard.backends.local.places import AgentCard
from rackyard.errors import ConflictError, RackyardError

_START_TIMEOUT = 30.0


class Unreachable(Exception):
    """The agent doesn't answer. What that means is for the watch to find out."""


def connect(card: AgentCard, timeout: float) -> socket.socket:
    """Connect to the agent. Raises Unreachable."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.settimeout(timeout)
    try:
        channel.connect(os.fspath(Path(card.sockets) / places.COMMAND))
    except OSError as error:
        channel.close()
        raise Unreachable(f"{card.node}: {error}") from error
    return channel


def request(card: AgentCard, timeout: float, op: str, **fields: Any) -> dict[str, Any]:
    """Ask the agent for something and return its answer. Raises Unreachable."""
    received = b""
    with connect(card, timeout) as channel:
        try:
            channel.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")
            while not received.endswith(b"\n"):
                data = channel.recv(1 << 16)
                if not data:
                    raise Unreachable(f"{card.node}: the agent hung up")
                received += data
        except OSError as error:
            raise Unreachable(f"{card.node}: {error}") from error
    answer: dict[str, Any] = json.loads(received)
    if not answer.pop("ok"):
        raise RackyardError(f"The agent of {card.node} refused `{op}`.", why=answer["error"])
    return answer


def start_agents(folders: Iterable[Path], idle: float) -> None:
    """Start the agents of these node folders, all at once, and wait until they are up."""
    waiting = {folder: _spawn(folder, idle) for folder in folders}
    deadline = time.monotonic() + _START_TIMEOUT
    while waiting:
        again: dict[Path, subprocess.Popen[bytes]] = {}
        for folder, process in waiting.items():
            try:
                status = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise RackyardError(f"The agent of {folder.name} did not start in {_START_TIMEOUT:.0f} s.") from None
            if status == places.HELD and not (folder / places.AGENT).exists():
                # The last agent is still on its way out.
                time.sleep(0.02)
                again[folder] = _spawn(folder, idle)
            elif status not in (places.UP, places.HELD):
                raise _failure(folder, status)
        waiting = again


def _spawn(folder: Path, idle: float) -> "subprocess.Popen[bytes]":
    module = "rackyard.backends.local.agent"
    arguments = ["--node", folder.name, "--dir", os.fspath(folder), "--idle", str(idle)]
    # -P: nothing in the user's current folder may shadow what the agent imports.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _failure(folder: Path, status: int) -> RackyardError:
    if status == places.UNFENCED:
        return lost_error(folder.name)
    log = folder / places.LOG
    tail = log.read_text(errors="replace").splitlines()[-1:] if log.exists() else []
    return RackyardError(
        f"The agent of {folder.name} can't start.",
        where=str(log),
        why=" ".join(tail) or None,
    )


def lost_error(node: str) -> ConflictError:
    """The error for using a node whose agent was lost."""
    return ConflictError(
        f"Node {node} is lost.",
        why="its agent ended or fell silent",
        fix="revive the node first",
    )
