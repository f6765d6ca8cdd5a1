"""Ranks: who am I, how do we talk, and how is the model spread over us. Works alone, too."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from rackyard.shape3d.dit import ShapeDit

MODES = ("ddp", "fsdp2")


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among its peers, as torchrun's environment says."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT name; leave it at the end."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    grouped = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    if grouped:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=rank, world_size=world)
    try:
        yield Ranks(rank, world, device)
    finally:
        if grouped:
            dist.destroy_process_group()


def spread(model: ShapeDit, mode: str, ranks: Ranks) -> nn.Module:
    """The model ready for training on all ranks: replicated (ddp) or sharded (fsdp2)."""
    model.to(ranks.device)
    if not dist.is_initialized():
        return model
    if mode == "fsdp2":
        mesh = init_device_mesh(ranks.device.type, (ranks.world,))
        for block in [*model.double_blocks, *model.single_blocks]:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    wrapped = DistributedDataParallel(model)
    _settle(wrapped, model, ranks)
    return wrapped


def _settle(wrapped: nn.Module, model: ShapeDit, ranks: Ranks) -> None:
    """One pass whose gradients are thrown away, so that DDP has its final buckets before the first step.

    DDP regroups its buckets after the first backward pass it sees. Sums over ranks are taken in another order
    after that, so a resumed run, which sees its first pass later, would differ in the last bits.
    """
    c = model.config
    x = torch.zeros(1, c.latent_tokens, c.latent_channels, device=ranks.device)
    condition = torch.zeros(1, c.cond_tokens, c.cond_width, device=ranks.device)
    wrapped(x, torch.zeros(1, device=ranks.device), condition).sum().backward()
    model.zero_grad()


def mean_over_ranks(value: Tensor) -> float:
    """A scalar, averaged over the ranks in rank order of the backend; the same float on every rank."""
    total = value.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(total)
        total /= dist.get_world_size()
    return float(total)
