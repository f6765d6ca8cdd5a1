"""What a cluster is made of, beyond its folder."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rackyard.errors import UsageError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Options:
    """`flags`: more arguments by program, `{"kube-scheduler": ("--v=4",)}`; they come last, so that they win.
    `load`, for clusters of a thousand nodes and more: no limits on requests in flight in the API server, a tenth of
    KWOK's heartbeats and ten times the patience with nodes that send none, and nothing written to every new node.
    `volcano`: scheduler configuration instead of the shipped one. `kueue_gates`: Kueue's feature gates.
    """

    name: str = "testbed"
    parts: tuple[str, ...] = ()
    load: bool = False
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    volcano: str | None = None
    kueue_gates: Mapping[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """UsageError for a name that can't be a folder's and a context's."""
        if not _NAME.fullmatch(self.name):
            fix = "up to 40 lower-case letters, digits and hyphens"
            raise UsageError(f"a cluster can't be called {self.name[:80]!r}", fix=fix)
