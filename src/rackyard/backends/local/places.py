"""Where a node keeps its things: its folder in the state directory, and its sockets.

The path of a Unix socket is limited to 107 bytes and state directories may be long, so the sockets live in a
short private folder of their own, whose name is written in the node's `agent.json`.
"""

import contextlib
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from rackyard.backends.local.procs import Identity

JOURNAL = "journal.jsonl"
AGENT = "agent.json"
"""Exists while an agent runs, or has died without a goodbye and is not fenced yet."""
LOST = "lost.json"
"""What `agent.json` is renamed to when its agent is lost; removed by `revive`."""
LOCK = "lock"
LOG = "agent.log"
COMMAND = "command"
REPORT = "report"

UP, FAILED, HELD, UNFENCED = 0, 1, 3, 4
"""Exit codes of starting an agent."""

_LONGEST_SOCKET = 107
_TMP = "/tmp"  # noqa: S108 - everybody's, so what is made there is checked


class AgentCard(NamedTuple):
    """What `agent.json` says."""

    node: str
    identity: Identity
    sockets: str


def sockets_dir(node_dir: Path) -> Path:
    """A short private folder for the node's sockets, made if it isn't there."""
    digest = hashlib.sha256(os.fsencode(node_dir.resolve())).hexdigest()[:12]
    ours = f"rackyard-{os.getuid()}"
    parent = Path(os.environ.get("TMPDIR") or _TMP, ours)
    if len(os.fsencode(parent / digest / COMMAND)) > _LONGEST_SOCKET:
        parent = Path(_TMP, ours)
    for folder in (parent, parent / digest):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(folder)
    return parent / digest


def _check_private(folder: Path) -> None:
    """Refuse a folder that somebody else may have made for us (the temporary directory is everybody's)."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} must be a directory of uid {os.getuid()} with mode 0700")


def remove_sockets(folder: Path) -> None:
    """Remove an agent's sockets and their folder."""
    for name in (COMMAND, REPORT):
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()


def write_card(path: Path, card: AgentCard) -> None:
    """Write `agent.json` so that a reader sees all of it or nothing."""
    text = json.dumps({"node": card.node, **card.identity._asdict(), "sockets": card.sockets})
    draft = path.with_suffix(".tmp")
    draft.write_text(text + "\n", encoding="utf-8")
    draft.replace(path)


def read_card(path: Path) -> AgentCard | None:
    """Read `agent.json` or `lost.json`; None when there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return AgentCard(
        found["node"],
        Identity(found["pid"], found["start"], found["boot"]),
        found["sockets"],
    )
