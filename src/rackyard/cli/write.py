"""Writing for a user: whole files or none, and a message when the disk refuses."""

import os
import stat
from pathlib import Path


def write_file(path: Path, content: str | bytes) -> None:
    """Replace `path`'s content; what a link points to is replaced, not the link. RackyardError when it can't be."""
    from rackyard.errors import RackyardError, UsageError

    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    if str(path) == "-":
        raise UsageError("a file name is wanted here", where="-", fix="name a file")
    if path.is_dir():
        raise UsageError("a file name is wanted here", where=str(path), why="it is a folder", fix="name a file in it")
    try:
        _write(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise RackyardError("the file can't be written", where=str(path), why=error.strerror or str(error)) from None


def _write(path: Path, data: bytes) -> None:
    if path.exists() and not path.is_file():
        path.write_bytes(data)  # a pipe or a device: there is nothing to replace
        return
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with fresh.open("xb") as file:
            file.write(data)
        if path.exists():
            fresh.chmod(stat.S_IMODE(path.stat().st_mode))
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> None:
    """Make a folder and those above it. UsageError when it can't be made."""
    from rackyard.errors import UsageError

    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError("a folder is wanted here", where=str(path), why="it is a file") from None
    except OSError as error:
        raise UsageError("the folder can't be made", where=str(path), why=error.strerror or str(error)) from None
