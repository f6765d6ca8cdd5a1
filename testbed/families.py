"""What is built: program families, one Go module each (`testbed/go/<family>`), and the key that a build is kept under.

A family's versions are those of its go.mod; nothing here repeats them but what the linker has to be told.
"""

import hashlib
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rackyard.errors import UsageError

MODULES = Path(__file__).resolve().parent / "go"

BUILD_FLAGS = ("-mod=readonly", "-buildvcs=false")
LINK_FLAGS = "-s -w"  # no symbol tables: a third smaller, and nobody debugs these programs here
BUILD_ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}

_COMPONENT = "k8s.io/component-base/version"


@dataclass(frozen=True, slots=True)
class Program:
    """A binary and the package whose `main` it is."""

    name: str
    package: str


@dataclass(frozen=True, slots=True)
class Asset:
    """Files of a module that a cluster needs when it starts: kept beside the binaries, so that `up` needs no Go."""

    module: str
    path: str
    target: str


@dataclass(frozen=True, slots=True)
class Family:
    """Programs with one go.mod."""

    name: str
    programs: tuple[Program, ...]
    assets: tuple[Asset, ...] = ()
    stamps: tuple[tuple[str, str], ...] = ()
    """Variables set by the linker, as `-X name=value`."""

    @property
    def module(self) -> Path:
        """The folder of go.mod."""
        return MODULES / self.name

    @property
    def link(self) -> str:
        """The value of -ldflags."""
        return " ".join([LINK_FLAGS, *(f"-X {name}={value}" for name, value in self.stamps)])


def _kubernetes(*names: str) -> tuple[Program, ...]:
    return tuple(Program(name, f"k8s.io/kubernetes/cmd/{name}") for name in names)


FAMILIES: tuple[Family, ...] = (
    Family("etcd", (Program("etcd", "go.etcd.io/etcd/server/v3"),)),
    Family(
        "kubernetes",
        _kubernetes("kube-apiserver", "kube-scheduler", "kube-controller-manager"),
        # Without these the server says it is v0.0.0-master+$Format, at which clients stumble.
        stamps=(
            (f"{_COMPONENT}.gitVersion", "v1.36.3"),
            (f"{_COMPONENT}.gitMajor", "1"),
            (f"{_COMPONENT}.gitMinor", "36"),
        ),
    ),
    Family(
        "kwok",
        (Program("kwok", "sigs.k8s.io/kwok/cmd/kwok"),),
        (
            Asset("sigs.k8s.io/kwok", "kustomize/stage/node/fast/node-initialize.yaml", "stages"),
            Asset("sigs.k8s.io/kwok", "kustomize/stage/pod/fast/pod-ready.yaml", "stages"),
            Asset("sigs.k8s.io/kwok", "kustomize/stage/pod/fast/pod-delete.yaml", "stages"),
        ),
    ),
    Family(
        "volcano",
        (
            Program("vc-scheduler", "volcano.sh/volcano/cmd/scheduler"),
            Program("vc-controller-manager", "volcano.sh/volcano/cmd/controller-manager"),
        ),
        (
            Asset("volcano.sh/volcano", "config/crd/volcano/bases", "crds"),
            Asset("volcano.sh/volcano", "config/crd/jobflow/bases", "crds"),
        ),
    ),
    Family(
        "kueue",
        (Program("kueue", "sigs.k8s.io/kueue/cmd/kueue"),),
        (
            Asset("sigs.k8s.io/kueue", "config/components/crd/bases", "crds"),
            Asset("sigs.k8s.io/kueue", "config/components/webhook/manifests.yaml", "webhooks"),
        ),
    ),
    # These have Kueue's versions of what they share with it, where they compile with them: seconds after Kueue, instead
    # of minutes.
    Family(
        "jobset",
        (Program("jobset", "sigs.k8s.io/jobset"),),
        (
            Asset("sigs.k8s.io/jobset", "config/components/crd/bases", "crds"),
            Asset("sigs.k8s.io/jobset", "config/components/webhook/manifests.yaml", "webhooks"),
        ),
    ),
    Family(
        "lws",
        (Program("lws", "sigs.k8s.io/lws/cmd"),),
        (
            Asset("sigs.k8s.io/lws", "config/crd/bases", "crds"),
            Asset("sigs.k8s.io/lws", "config/webhook/manifests.yaml", "webhooks"),
        ),
    ),
    Family(
        "trainer",
        (Program("trainer", "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"),),
        (
            Asset("github.com/kubeflow/trainer/v2", "manifests/base/crds", "crds"),
            Asset("github.com/kubeflow/trainer/v2", "manifests/base/webhook/manifests.yaml", "webhooks"),
        ),
    ),
)

BASE = ("etcd", "kubernetes")
"""What every cluster runs; the other families are parts to be asked for."""

PARTS = tuple(family.name for family in FAMILIES if family.name not in BASE)


def family(name: str) -> Family:
    """The family of that name. UsageError when there is none."""
    for found in FAMILIES:
        if found.name == name:
            return found
    names = ", ".join(found.name for found in FAMILIES)
    raise UsageError(f"the test bed has no family {name!r}", fix=f"one of {names}")


def wanted(parts: Sequence[str]) -> tuple[Family, ...]:
    """The families of a cluster with those parts, in the order they are built. UsageError for an unknown part."""
    for part in parts:
        if part not in PARTS:
            raise UsageError(f"the test bed has no part {part!r}", fix=f"one of {', '.join(PARTS)}")
    return tuple(found for found in FAMILIES if found.name in BASE or found.name in parts)


def key(of: Family) -> str:
    """Names a build: the hash of the lock files and of everything else that the result depends on, but for the Go
    version. 12 hexadecimal digits.
    """
    parts = [(of.module / name).read_bytes() for name in ("go.mod", "go.sum")]
    rest = (of.programs, of.assets, of.link, BUILD_FLAGS, sorted(BUILD_ENVIRONMENT.items()), platform.machine())
    digest = hashlib.sha256()
    for part in [*parts, repr(rest).encode()]:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:12]


def cache() -> Path:
    """Where builds are kept: `rackyard-testbed` in the user's cache folder."""
    own = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(own).expanduser() / "rackyard-testbed"


def built(of: Family) -> Path:
    """The folder of a family's binaries and assets, whether it is there or not: it appears when all is in it."""
    return cache() / f"{of.name}-{key(of)}"
