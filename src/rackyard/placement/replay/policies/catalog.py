"""The policies by name, with what each does and where its rule is written down."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rackyard.errors import UsageError
from rackyard.placement.columns import Ints
from rackyard.placement.decide import decide
from rackyard.placement.model import Request
from rackyard.placement.replay.policies.best_fit import best_fit
from rackyard.placement.replay.policies.first_fit import first_fit
from rackyard.placement.replay.policies.mend import mend
from rackyard.placement.replay.policies.per_level import per_level
from rackyard.placement.replay.policies.slurm_block import slurm_block
from rackyard.placement.replay.policies.tier_by_tier import nearest, tier_by_tier
from rackyard.placement.yard import Decision, Yard


class Place(Protocol):
    """Where a gang would go now; None when it has to wait. The yard is only read."""

    def __call__(self, request: Request, yard: Yard) -> Decision | None: ...


class Replace(Protocol):
    """New seats for a running gang that lost nodes, keeping what it can; None when it has to start afresh.

    The yard has the gang's seats still marked as in use, and the lost nodes retired.
    """

    def __call__(self, request: Request, held: Decision, lost: Ints, yard: Yard) -> Decision | None: ...


@dataclass(frozen=True, slots=True)
class Policy:
    """A rule that places gangs."""

    name: str
    line: str
    segments: str
    """What it does about segments."""
    source: str
    place: Place
    replace: Replace | None = None
    """How it mends a gang after a fault; without, the gang goes back to the queue."""


_KUEUE = "kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling, KEP-2724"

POLICIES: tuple[Policy, ...] = (
    Policy("rackyard", "the engine of this program", "kept", "docs/placement.md", decide, mend),
    Policy("first-fit", "first free nodes in site order", "ignored", "our own base line", first_fit),
    Policy("best-fit", "fullest rack with room, then the next fullest", "kept", "our own base line", best_fit),
    Policy(
        "tier-by-tier",
        "Volcano: lowest tier with room, fullest group of it",
        "kept, as partitions",
        "volcano.sh/en/docs/network_topology_aware_scheduling",
        tier_by_tier,
    ),
    Policy("per-level", "Kueue: largest first, last one tightest", "kept, as slices", _KUEUE, per_level),
    Policy(
        "slurm-block",
        "Slurm: smallest row of blocks, fullest with room",
        "kept up to the block size",
        "slurm.schedmd.com/topology.html, topology.conf(5)",
        slurm_block,
    ),
)

MORE: tuple[Policy, ...] = (
    Policy(
        "nearest",
        "Volcano, soft mode: pod by pod, each as near to those before as it can be",
        "kept, as partitions",
        "volcano.sh/en/docs/network_topology_aware_scheduling",
        nearest,
    ),
)
"""Run only where they are named."""


def named(names: Sequence[str]) -> tuple[Policy, ...]:
    """The policies of those names, each once; `POLICIES` for none. UsageError for a name that is not there."""
    by_name = {policy.name: policy for policy in (*POLICIES, *MORE)}
    for name in names:
        if name not in by_name:
            close = difflib.get_close_matches(name, by_name, 1)
            fix = f"did you mean {close[0]}?" if close else f"one of {', '.join(by_name)}"
            raise UsageError(f"there is no policy {name!r}", fix=fix)
    return tuple(by_name[name] for name in dict.fromkeys(names)) if names else POLICIES
