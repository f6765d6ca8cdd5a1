"""The moment a checkpoint comes into being, and the removal of old ones. Run by rank 0 alone; needs no torch."""

import os
from pathlib import Path

from rackyard.checkpoint import manifest
from rackyard.checkpoint.layout import MANIFEST, discard, remove, step_name, sync_directory, temporary_name
from rackyard.checkpoint.listing import describe, list_checkpoints
from rackyard.checkpoint.manifest import Manifest
from rackyard.checkpoint.verify import problems


def publish(temporary: Path, content: Manifest) -> Path:
    """Turn a temporary directory, whose files are all on disk, into a published checkpoint; returns its path.

    Killed at any moment, either the old set is there or the new. Raises OSError.
    """
    final = temporary.parent / step_name(content.step)
    with (temporary / MANIFEST).open("xb") as file:
        file.write(manifest.dumps(content))
        file.flush()
        os.fsync(file.fileno())
    sync_directory(temporary)
    replaced = _set_aside(final)
    temporary.rename(final)
    sync_directory(final.parent)
    if replaced is not None:
        discard(replaced)
    return final


def intact(directory: Path, step: int) -> Path | None:
    """The published checkpoint of `step` if there is one and it verifies."""
    path = directory / step_name(step)
    return path if path.is_dir() and not problems(describe(path)) else None


def prune(directory: Path, keep: int, published: int) -> tuple[int, ...]:
    """Remove all but the newest `keep` checkpoints; returns the removed steps. Raises OSError, CheckpointError.

    The step just `published` stays in any case. A damaged checkpoint does not count as one of those kept, and is
    removed when it is older than `published`; a newer one will be replaced when training gets there again.
    """
    infos = list_checkpoints(directory)
    sound = [info.step for info in infos if not problems(info, deep=False)]
    kept = {*sound[:keep], published}
    gone = [info for info in infos if info.step not in kept and (info.step < published or info.step in sound)]
    for info in gone:
        remove(info.path)
    return tuple(info.step for info in gone)


def newest_sound(directory: Path) -> int | None:
    """The newest step whose manifest and file lengths are right: cheap, for messages."""
    return next((info.step for info in list_checkpoints(directory) if not problems(info, deep=False)), None)


def _set_aside(final: Path) -> Path | None:
    """Free the name of a damaged checkpoint, which a directory can't be renamed onto."""
    if not os.path.lexists(final):
        return None
    aside = final.parent / temporary_name("damaged")
    final.rename(aside)
    return aside
