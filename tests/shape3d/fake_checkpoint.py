"""A stand-in for rackyard.checkpoint with the same calls: one torch.save file a rank, no hashes."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def _local(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _local(v) for k, v in value.items()}
    return (value.to_local() if isinstance(value, DTensor) else value).clone()


def _fill(into: dict[str, Any], values: dict[str, Any]) -> None:
    for name, value in into.items():
        if isinstance(value, dict):
            _fill(value, values[name])
        else:
            (value.to_local() if isinstance(value, DTensor) else value).copy_(values[name])


class Checkpointer:
    def __init__(self, directory: Path | str, keep: int = 3) -> None:
        self.directory = Path(directory)
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.directory.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, state: dict[str, Any], per_rank: dict[str, Any] | None = None) -> None:
        path = self.directory / f"step-{step:08d}.rank{self.rank}.pt"
        torch.save({"state": _local(state), "per_rank": per_rank or {}}, path)

    def latest(self) -> int | None:
        if dist.is_initialized():
            dist.barrier()
        found = sorted(self.directory.glob("step-*.rank0.pt"))
        return int(found[-1].name[5:13]) if found else None

    def load(self, found: int, state: dict[str, Any]) -> dict[str, Any]:
        saved = torch.load(self.directory / f"step-{found:08d}.rank{self.rank}.pt", weights_only=True)
        _fill(state, saved["state"])
        return dict(saved["per_rank"])

    def wait(self) -> None:
        pass
