"""Names inside a checkpoint directory, and the few file operations that must survive a kill at any moment.

step-00000040/            published: complete, and never changed afterwards
    manifest.json         what the files must be: names, bytes, sha256
    .metadata             torch.distributed.checkpoint's index
    __0_0.distcp          shards, one file a rank
    extras-00000.pt       what each rank keeps for itself, e.g. its random generators
.tmp-step-00000060-ab12/  being written, or left over by a killed process
"""

import contextlib
import os
import re
import shutil
import stat
import uuid
from pathlib import Path

MANIFEST = "manifest.json"
METADATA = ".metadata"
TEMPORARY = ".tmp-"

_STEP = re.compile(r"step-(\d{8,18})")
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,200}")


def step_name(step: int) -> str:
    """The directory name of a published step, counted from 0."""
    return f"step-{step:08d}"


def parse_step(name: str) -> int | None:
    """The step of a published directory's name; None where the name is something else."""
    match = _STEP.fullmatch(name)
    # Only the one spelling we write, or two directories could claim one step.
    return int(match[1]) if match and step_name(int(match[1])) == name else None


def extras_name(rank: int) -> str:
    """The file that holds what `rank` keeps for itself."""
    return f"extras-{rank:05d}.pt"


def is_file_name(name: str) -> bool:
    """Whether `name` is a plain file name, which can't lead out of its directory."""
    return _NAME.fullmatch(name) is not None and name not in {".", ".."}


def temporary_name(purpose: str) -> str:
    """A fresh name that readers ignore and the next start cleans up."""
    return f"{TEMPORARY}{purpose}-{uuid.uuid4().hex[:12]}"


def sync_directory(path: Path) -> None:
    """Make renames and new names in `path` last through a power loss. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """Remove a published directory, so that a kill half-way can't leave one that looks published. Raises OSError."""
    grave = path.parent / temporary_name("gone")
    path.rename(grave)
    shutil.rmtree(grave)


def discard(path: Path) -> None:
    """Remove a temporary directory as far as possible; what stays is cleaned up by the next start."""
    shutil.rmtree(path, ignore_errors=True)


def clean_leftovers(directory: Path) -> tuple[str, ...]:
    """Remove what killed processes left in `directory`; returns the names. Raises OSError if it can't be listed."""
    names = sorted(entry.name for entry in directory.iterdir() if entry.name.startswith(TEMPORARY))
    for name in names:
        path = directory / name
        if path.is_dir() and not path.is_symlink():
            discard(path)
        else:
            # Another process may have been faster; what can't be removed is ignored by every reader anyway.
            with contextlib.suppress(OSError):
                path.unlink()
    return tuple(names)


def open_regular(path: Path) -> int:
    """Open a regular file for reading; returns its descriptor.

    Raises FileNotFoundError, or OSError for a link, a pipe or a device: a pipe would block, a link lead elsewhere.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path.name} is not a regular file")
    return fd
