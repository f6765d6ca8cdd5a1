"""The folder of one cluster, what is in it, and the list of clusters that there are."""

import contextlib
import random
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rackyard.errors import ConflictError, UsageError
from testbed.families import cache
from testbed.options import Options

_PORTS = range(20_000, 32_000)
"""Below the ephemeral ports of Linux (32768 to 60999), so that no outgoing connection sits on one meanwhile."""

PORTS = (
    "kube-apiserver",
    "kube-scheduler",
    "kube-controller-manager",
    "vc-scheduler",
    "vc-scheduler-metrics",
    "vc-controller-manager",
    "vc-controller-manager-metrics",
    "kueue",
    "kueue-metrics",
    "kueue-webhook",
    "kueue-visibility",
    "jobset",
    "jobset-webhook",
    "lws",
    "lws-webhook",
    "trainer",
    "trainer-webhook",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that was decided when the cluster was made, and that its programs are started from, again and again."""

    mark: str
    """Random; every process of the cluster carries it."""
    options: Options
    ports: dict[str, int]
    created: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths in a cluster's folder."""

    folder: Path

    @property
    def plan(self) -> Path:
        return self.folder / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens.csv"

    @property
    def certs(self) -> Path:
        return self.folder / "certs"

    @property
    def pids(self) -> Path:
        return self.folder / "pids"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def log(self, program: str) -> Path:
        return self.logs / f"{program}.log"


def create(folder: Path, options: Options) -> tuple[Layout, Plan]:
    """Make the folder, readable to its owner only. ConflictError when something is in it already."""
    layout = Layout(folder.absolute())
    try:
        layout.folder.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        if not layout.folder.is_dir() or any(layout.folder.iterdir()):
            fix = "name another folder, or end that cluster with `python -m testbed down`"
            raise ConflictError("the folder is not empty", where=str(layout.folder), fix=fix) from None
        layout.folder.chmod(0o700)
    except OSError as error:
        raise UsageError("the folder can't be made", where=str(layout.folder), why=error.strerror) from None
    plan = Plan(secrets.token_hex(8), options, free_ports())
    layout.plan.write_bytes(msgspec.json.encode(plan))
    for part in (layout.certs, layout.pids, layout.logs):
        part.mkdir()
    layout.tokens.touch(0o600)
    layout.tokens.write_text(f'{secrets.token_urlsafe(32)},admin,admin,"system:masters"\n', encoding="ascii")
    (_register() / f"{plan.mark}.json").write_bytes(msgspec.json.encode(str(layout.folder)))
    return layout, plan


def read(folder: Path) -> tuple[Layout, Plan]:
    """The cluster in `folder`. UsageError when there is none."""
    layout = Layout(folder.absolute())
    try:
        return layout, msgspec.json.decode(layout.plan.read_bytes(), type=Plan)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError("there is no cluster of the test bed here", where=str(layout.folder), why=str(error)) from None


def remove(layout: Layout, plan: Plan) -> None:
    """Delete the folder, after its processes have ended."""
    shutil.rmtree(layout.folder, ignore_errors=True)
    (_register() / f"{plan.mark}.json").unlink(missing_ok=True)


def known() -> Iterator[tuple[str, Path]]:
    """Mark and folder of every cluster that was made and not ended, those that nobody ends any more included."""
    for file in sorted(_register().glob("*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            yield file.stem, Path(msgspec.json.decode(file.read_bytes(), type=str))


def forget(mark: str) -> None:
    """Take a cluster whose folder is gone off the list."""
    (_register() / f"{mark}.json").unlink(missing_ok=True)


def free_ports() -> dict[str, int]:
    """A port of 127.0.0.1 for each of PORTS, free at this moment, by name."""
    found: dict[str, int] = {}
    for number in random.sample(_PORTS, len(_PORTS)):
        if len(found) == len(PORTS):
            break
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", number))
            found[PORTS[len(found)]] = number
    return found


def _register() -> Path:
    folder = cache() / "clusters"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
