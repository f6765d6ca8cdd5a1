"""What all tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# Shared and slow machines: a deadline a run would fail on somebody else's load, not on our code.
settings.register_profile("rackyard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("rackyard"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "rackyard")


def corpus_folder() -> Path:
    """Where the real inputs are expected: RACKYARD_CORPUS, or shared/data beside the repository."""
    return Path(os.environ.get("RACKYARD_CORPUS") or ROOT.parent / "shared" / "data")


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real public inputs. Skips where it is absent; fails where it is required."""
    folder = corpus_folder()
    if folder.is_dir():
        return folder
    reason = f"no corpus at {folder}: set RACKYARD_CORPUS to the folder of real inputs"
    if os.environ.get("RACKYARD_CORPUS_REQUIRED") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
