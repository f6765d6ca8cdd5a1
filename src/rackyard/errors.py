"""The exception tree. Every error a user can cause says what, where, why and what to do.

RackyardError                 exit code 1
├── UsageError                exit code 2   wrong flags, files, values
│   └── SpecError             exit code 2   a job or site file, with line and column
├── NotYet                    exit code 3   a wait that ran out
├── CheckpointError           exit code 1   nothing usable, or the disk refused
└── ConflictError             exit code 1   somebody else holds what we need
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file; line and column count from 1, as editors do."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)


class RackyardError(Exception):
    """An error meant for the user: shown as its message, never as a traceback."""

    exit_code = 1

    def __init__(
        self, what: str, *, where: Where | str | None = None, why: str | None = None, fix: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  at:  {self.where}"] if self.where is not None else []
        lines += [f"  why: {self.why}"] if self.why else []
        lines += [f"  fix: {self.fix}"] if self.fix else []
        return "\n".join(lines)


class UsageError(RackyardError):
    """The command, a flag or an input file is wrong."""

    exit_code = 2


class SpecError(UsageError):
    """A job or site file does not say what it must; `where` carries line and column."""


class NotYet(RackyardError):
    """What was waited for has not happened in the time given."""

    exit_code = 3


class CheckpointError(RackyardError):
    """A checkpoint can't be written, or none that verifies is left."""


class ConflictError(RackyardError):
    """Another process holds the store, the port or the folder."""
