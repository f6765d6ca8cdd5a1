"""Checkpoints that are either whole or absent: written in shards, hashed, published by one rename, checked before use.

Ranks use `Checkpointer`, which needs torch; everything else reads published checkpoints and works without it.
"""

from typing import TYPE_CHECKING, Any

from rackyard.checkpoint.interval import overhead, recommended_interval
from rackyard.checkpoint.listing import CheckpointInfo, list_checkpoints
from rackyard.checkpoint.verify import newest_valid, verify

if TYPE_CHECKING:
    from rackyard.checkpoint.checkpointer import Checkpointer, SaveTimes

__all__ = [
    "CheckpointInfo",
    "Checkpointer",
    "SaveTimes",
    "list_checkpoints",
    "newest_valid",
    "overhead",
    "recommended_interval",
    "verify",
]


def __getattr__(name: str) -> Any:
    # torch takes a second to import, and the controller and the command line run where it isn't installed.
    if name in {"Checkpointer", "SaveTimes"}:
        from rackyard.checkpoint import checkpointer

        return getattr(checkpointer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
