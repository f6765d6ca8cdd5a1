"""The ranks that save and load together: every outcome, failures included, is the same on all of them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

import torch.distributed as dist

from rackyard.checkpoint.failure import explain, on_rank
from rackyard.errors import CheckpointError

T = TypeVar("T")

PATIENCE = timedelta(hours=2)
"""How long a rank waits for its peers' writing. A dead peer is noticed at once; this bounds a stuck file system."""


class Team:
    """A group of its own for checkpoints, so that saving in the background never mixes with training's collectives.

    Gloo, because writing is the CPUs' business and NCCL can't be used from two threads. Making one is a collective
    call where torch.distributed is initialised; elsewhere the team is this process alone.
    """

    def __init__(self) -> None:
        self.group: Any = None
        self.rank, self.size = 0, 1
        if dist.is_available() and dist.is_initialized():
            self.group = dist.new_group(backend="gloo", timeout=PATIENCE)
            self.rank, self.size = dist.get_rank(), dist.get_world_size()

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which decides and publishes."""
        return self.rank == 0

    def from_lead(self, make: Callable[[], T], *, what: str, where: object) -> T:
        """What `make` returns on rank 0, on every rank. Raises the CheckpointError of rank 0 on every rank."""
        said: list[Any] = [_attempt(make, what, where) if self.leads else None]
        if self.group is not None:
            dist.broadcast_object_list(said, src=0, group=self.group)
        return cast(T, _value(said[0]))

    def everyone(self, make: Callable[[], T], *, what: str, where: object) -> list[T]:
        """What `make` returns on each rank, by rank, on every rank. Raises the first failing rank's CheckpointError."""
        mine = _attempt(make, what, where)
        said: list[Any] = [mine]
        if self.group is not None:
            said = [None] * self.size
            dist.all_gather_object(said, mine, group=self.group)
        for rank, outcome in enumerate(said):
            if isinstance(outcome, _Failed):
                raise on_rank(outcome.error, rank) if self.size > 1 else outcome.error
        return [cast(T, _value(outcome)) for outcome in said]


class _Made(Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value


class _Failed:
    def __init__(self, error: CheckpointError) -> None:
        # Without cause and traceback, which may hold what can't be sent to another process.
        self.error = CheckpointError(error.what, where=error.where, why=error.why, fix=error.fix)


def _attempt(make: Callable[[], T], what: str, where: object) -> _Made[T] | _Failed:
    try:
        return _Made(make())
    except Exception as error:  # noqa: BLE001 -- told to all ranks, and raised on each
        return _Failed(explain(what, where, error))


def _value(outcome: Any) -> Any:
    if isinstance(outcome, _Failed):
        raise outcome.error
    return outcome.value
