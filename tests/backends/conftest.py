"""A local site for each test, and the certainty that no process of it survives the test."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# With `--import-mode=importlib` a test module's folder isn't searched for what it imports.
sys.path.insert(0, str(Path(__file__).parent))

from localsite import LocalSite


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LocalSite]:
    """A site in a temporary folder."""
    made = LocalSite(tmp_path)
    yield made
    made.clean_up()
