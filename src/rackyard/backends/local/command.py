"""What kind of command `run` is: one that a warm parent can fork, a plain argument list, or shell text."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rackyard import shellwords

_NOT_PLAIN_SCRIPTS = (".zip", ".pyz", ".pyc", ".egg", ".whl")


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a rank."""

    kind: Literal["script", "module", "argv", "shell"]
    argv: tuple[str, ...]
    """The whole argument list; for `shell` that of /bin/sh."""
    target: str = ""
    """The script's path, or the module's name."""
    args: tuple[str, ...] = ()
    """What follows the target."""

    @property
    def forkable(self) -> bool:
        return self.kind in ("script", "module")


def parse(run: str, *, cwd: str, path: str | None) -> Command:
    """Read `run` as the user wrote it; `path` is the job's PATH. Whatever is in doubt goes to the shell, verbatim."""
    run = run.strip()
    words = shellwords.split(run)
    if words is None:
        return Command("shell", ("/bin/sh", "-c", run))
    plain = Command("argv", words)
    if not _is_our_python(words[0], cwd, path):
        return plain
    rest = shellwords.after_python(words)
    if len(rest) >= 2 and rest[0] == "-m":
        return Command("module", words, rest[1], rest[2:])
    if rest and not rest[0].startswith("-") and _is_plain_script(Path(cwd, rest[0])):
        return Command("script", words, rest[0], rest[1:])
    return plain


def _is_our_python(word: str, cwd: str, path: str | None) -> bool:
    """Whether the word names the agent's own interpreter, in the same environment.

    The folder tells virtual environments apart, whose `python` are links to one and the same file.
    """
    if not Path(word).name.startswith("python"):
        return False
    found = shutil.which(Path(cwd, word) if "/" in word else word, path=path)
    if found is None:
        return False
    ours, theirs = Path(sys.executable), Path(found)
    return theirs.resolve() == ours.resolve() and theirs.parent.resolve() == ours.parent.resolve()


def _is_plain_script(path: Path) -> bool:
    """A script that is missing counts: the forked rank then says so in Python's own words."""
    return not path.is_dir() and path.suffix not in _NOT_PLAIN_SCRIPTS
