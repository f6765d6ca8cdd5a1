"""One load: index checked, shards read in place, plain values put back."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict_loader import load as load_shards

from rackyard.checkpoint import manifest as manifests
from rackyard.checkpoint.failure import explain, on_rank, quiet_single_process
from rackyard.checkpoint.reader import Planner, Reader, check_fit, read_extras, read_index
from rackyard.checkpoint.state import FlatState, initialise
from rackyard.checkpoint.team import Team

_WHAT = "the checkpoint can't be loaded"


@dataclass(frozen=True, slots=True)
class _Plan:
    index: Metadata
    flat: FlatState
    extras: dict[str, Any]


def load(team: Team, path: Path, state: Mapping[str, Any], *, partial: bool) -> dict[str, Any]:
    """Load the verified checkpoint at `path` into `state`; returns this rank's extras.

    Raises the same CheckpointError on every rank. After a failure while shards are read `state` is half loaded.
    """
    plans: list[_Plan] = []
    # Agreed on before the shards are read, so that no rank waits there for one that can't go on.
    team.everyone(lambda: plans.append(_plan(path, state, rank=team.rank, partial=partial)), what=_WHAT, where=path)
    plan, planner = plans[0], Planner()
    quiet_single_process()
    failed = None
    try:
        load_shards(
            plan.flat.leaves,
            storage_reader=Reader(path, plan.index),
            planner=planner,
            process_group=team.group,
            no_dist=team.group is None,
        )
    except CheckpointException as error:  # not an Exception in torch; the ranks have agreed on it already
        rank, (cause, _) = min(error.failures.items(), key=lambda item: item[0])
        failed = on_rank(explain(_WHAT, path, cause), rank)
    if failed is not None:
        raise failed
    plan.flat.put_back(planner.values)
    return plan.extras


def _plan(path: Path, state: Mapping[str, Any], *, rank: int, partial: bool) -> _Plan:
    manifest = manifests.read(path)
    index = read_index(path, manifest)
    flat = FlatState(state)
    if index.state_dict_metadata.keys() - flat.leaves.keys():
        flat = _with_moments(state, flat)
    check_fit(path, flat.leaves, index, partial=partial)
    return _Plan(index, flat, read_extras(path, manifest, rank))


def _with_moments(state: Mapping[str, Any], flat: FlatState) -> FlatState:
    """The state once more, after giving optimizers that have made no step yet the moments to load into."""
    untouched = list(flat.untouched_optimizers())
    for optimizer in untouched:
        initialise(optimizer)
    return FlatState(state) if untouched else flat
