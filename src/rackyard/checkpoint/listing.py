"""What is published in a checkpoint directory, newest first. Needs no torch."""

from dataclasses import dataclass
from pathlib import Path

from rackyard.checkpoint import manifest
from rackyard.checkpoint.layout import parse_step
from rackyard.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """One published checkpoint. Where its manifest can't be read, the last four say so with 0 and None."""

    step: int
    path: Path
    bytes: int  # by the manifest, without the manifest itself
    files: int
    created: float | None  # seconds since 1970, UTC
    world_size: int | None  # ranks that wrote it


def list_checkpoints(directory: Path | str) -> tuple[CheckpointInfo, ...]:
    """All published checkpoints of `directory`, newest step first, damaged ones included: see `verify`.

    Raises CheckpointError when the directory can't be read; one that does not exist has no checkpoints.
    """
    try:
        entries = [entry for entry in Path(directory).iterdir() if parse_step(entry.name) is not None]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise CheckpointError(
            "can't read the checkpoint directory", where=str(directory), why=error.strerror, fix="check the path"
        ) from error
    found = [describe(entry) for entry in entries if entry.is_dir()]
    return tuple(sorted(found, key=lambda info: info.step, reverse=True))


def describe(path: Path) -> CheckpointInfo:
    """The checkpoint at `path`, whose name must be a published one's."""
    step = parse_step(path.name)
    if step is None:
        raise ValueError(f"{path.name} is not the name of a published checkpoint")
    try:
        read = manifest.read(path)
    except (manifest.ManifestError, OSError):
        # Listed all the same: `verify` says what is wrong with it.
        return CheckpointInfo(step, path, 0, 0, None, None)
    return CheckpointInfo(step, path, read.bytes, len(read.files), read.created, read.world_size)
