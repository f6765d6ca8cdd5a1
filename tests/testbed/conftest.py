"""Clusters of the test bed for tests that need a real API server."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rackyard.errors import UsageError
from testbed import Cluster, cluster
from testbed.build import build, find_go, missing
from testbed.families import wanted

Needs = Callable[[Sequence[str]], None]


def need(parts: Sequence[str] = ()) -> None:
    """Skips where a cluster with these parts can't be started, and says why; builds it where it is required."""
    families = wanted(parts)
    if not missing(families):
        return
    if os.environ.get("RACKYARD_KUBE_REQUIRED") == "1":
        build(families)
        return
    try:
        find_go()
    except UsageError as error:
        pytest.skip(str(error))
    pytest.skip(f"not built: {', '.join(family.name for family in missing(families))} (make testbed)")


@pytest.fixture(scope="session")
def needs_testbed() -> Needs:
    """`needs_testbed(("kwok",))` skips unless a cluster with these parts can be started."""
    return need


@pytest.fixture(scope="session")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster with KWOK and Volcano for all tests that leave it as they found it."""
    need(("kwok", "volcano"))
    folder: Path = tmp_path_factory.mktemp("bed") / "cluster"
    with cluster(folder, parts=("kwok", "volcano")) as found:
        yield found
