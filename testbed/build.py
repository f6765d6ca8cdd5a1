"""Builds the families that are not in the cache yet, one after the other, and tells how it goes.

The Go client fetches the modules by name and version (go.mod and go.sum are the lock). A build appears in the cache
when it is whole, so that one that was cut short is done again.
"""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rackyard.errors import RackyardError, UsageError
from testbed.families import BUILD_ENVIRONMENT, BUILD_FLAGS, FAMILIES, Asset, Family, Program, built, cache

Say = Callable[[str], None]

GO_NEEDED = (1, 26)
"""The oldest Go that go.mod of Kubernetes 1.36 takes."""

_EVERY = 15.0
"""Seconds between two lines of progress."""


def missing(families: Sequence[Family] = FAMILIES) -> tuple[Family, ...]:
    """The families that would have to be built."""
    return tuple(family for family in families if not built(family).is_dir())


def build(families: Sequence[Family] = FAMILIES, say: Say = print) -> None:
    """Build what is missing. UsageError without a usable Go, RackyardError when a build fails."""
    if not missing(families):
        return
    go = find_go()
    with _alone(say):
        for family in missing(families):  # another process may have built some while this one waited
            _build(go, family, say)


def require(families: Sequence[Family]) -> None:
    """UsageError unless all are built."""
    if lacking := missing(families):
        names = ", ".join(family.name for family in lacking)
        raise UsageError(f"not built yet: {names}", where=str(cache()), fix="make testbed (minutes, the first time)")


def find_go() -> str:
    """The path of a Go that is new enough. UsageError when there is none."""
    needed = ".".join(str(number) for number in GO_NEEDED)
    why = "etcd, Kubernetes and the controllers on top are built from their Go modules"
    fix = f"install Go {needed} or later and put its bin folder on PATH; all but the test bed works without"
    go = shutil.which("go")
    if go is None:
        raise UsageError("the test bed needs Go, and there is no `go` on PATH", why=why, fix=fix)
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, env=environment(), check=False)
    if go_version(said.stdout) < GO_NEEDED:
        shown = said.stdout.strip() or said.stderr.strip()[:200] or "no version"
        raise UsageError(f"the test bed needs Go {needed} or later", where=go, why=f"it says: {shown}", fix=fix)
    return go


def go_version(text: str) -> tuple[int, int]:
    """Major and minor of `go1.26.3`; zeros for anything else."""
    found = re.match(r"go(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def environment() -> dict[str, str]:
    """What Go runs with; a build of our own that is to share the warm cache runs with the same."""
    return os.environ | BUILD_ENVIRONMENT


@contextlib.contextmanager
def _alone(say: Say) -> Iterator[None]:
    """Two builds at once would take twice the memory and be no sooner done."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("testbed: waiting for another build to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(go: str, family: Family, say: Say) -> None:
    started = time.monotonic()
    target = built(family)
    unfinished = target.with_name(target.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for program in family.programs:
        _compile(go, family, program, unfinished / program.name, say)
    for asset in family.assets:
        _keep(go, family, asset, unfinished)
    unfinished.rename(target)
    say(f"testbed: {family.name} is ready after {(time.monotonic() - started) / 60:.1f} min")


def _compile(go: str, family: Family, program: Program, target: Path, say: Say) -> None:
    say(f"testbed: building {program.name} of {program.package}")
    nice = [found, "-n", "10"] if (found := shutil.which("nice")) else []
    argv = [*nice, go, "build", "-v", *BUILD_FLAGS, "-ldflags", family.link, "-o", str(target), program.package]
    tail: deque[str] = deque(maxlen=20)
    packages, told = 0, time.monotonic()
    with subprocess.Popen(
        argv, cwd=family.module, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:  # -v names each package as it is compiled
            packages += 1
            tail.append(line.rstrip())
            if time.monotonic() - told >= _EVERY:
                told = time.monotonic()
                say(f"testbed: building {program.name}, {packages} packages so far")
    if process.returncode != 0:
        raise RackyardError(
            f"building {program.name} failed",
            where=str(family.module / "go.mod"),
            why="\n".join(tail) or f"go build ended with {process.returncode}",
            fix="is the Go module proxy (GOPROXY), or a mirror of it, reachable, and is there disk space left?",
        )


def _keep(go: str, family: Family, asset: Asset, target: Path) -> None:
    """Copy a file, or the files of a folder, out of the module as Go has unpacked it."""
    argv = [go, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", asset.module]
    said = subprocess.run(argv, cwd=family.module, env=environment(), capture_output=True, text=True, check=False)
    source = Path(said.stdout.strip() or "/nonexistent") / asset.path
    if said.returncode != 0 or not source.exists():
        raise RackyardError(f"{asset.module} has no {asset.path}", why=said.stderr.strip() or f"looked for {source}")
    into = target / asset.target
    into.mkdir(exist_ok=True)
    for file in sorted(source.iterdir()) if source.is_dir() else [source]:
        if file.suffix == ".yaml" and file.name != "kustomization.yaml":
            (into / file.name).write_bytes(file.read_bytes())
