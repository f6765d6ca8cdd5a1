"""What went wrong while saving or loading, said so that a person knows what to do."""

import errno
import sys
import warnings
from collections.abc import Mapping

from rackyard.errors import CheckpointError

_FIXES: Mapping[int | None, str] = {
    errno.ENOSPC: "free space there, keep fewer checkpoints, or use another directory",
    errno.EDQUOT: "free space under the quota, keep fewer checkpoints, or use another directory",
    errno.EFBIG: "raise the limit on file size (ulimit -f), or use another file system",
    errno.EACCES: "make the directory writable for the user who trains",
    errno.EPERM: "make the directory writable for the user who trains",
    errno.EROFS: "mount the file system for writing, or use another directory",
    errno.ENOTDIR: "name a directory: part of this path is a file",
    errno.EEXIST: "name a directory: something else has this name",
    errno.EIO: "check the disk or the file server, which reports an input/output error",
    errno.ESTALE: "remount the file system, whose server has forgotten this directory",
}


def explain(what: str, where: object, error: BaseException) -> CheckpointError:
    """The error for the user behind `error`; one that already is for the user stays as it is."""
    if isinstance(error, CheckpointError):
        return error
    if isinstance(error, OSError):
        why = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        fix = _FIXES.get(error.errno, "check the directory and its file system")
        return CheckpointError(what, where=str(where), why=why, fix=fix)
    why = f"{type(error).__name__}: {error}"
    return CheckpointError(what, where=str(where), why=why, fix="see the log of the rank named, if one is")


def on_rank(error: CheckpointError, rank: int) -> CheckpointError:
    """The same error, saying which rank met it."""
    return CheckpointError(error.what, where=error.where, why=f"rank {rank}: {error.why or error.what}", fix=error.fix)


def say(line: str) -> None:
    """One line for the person reading the job's log."""
    print(f"checkpoint: {line}", file=sys.stderr, flush=True)


def quiet_single_process() -> None:
    """Without a group torch warns that it works alone, which is what was asked for."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
