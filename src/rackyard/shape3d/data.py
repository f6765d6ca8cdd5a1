"""Training data: the latents and conditions of mesh files, and which of them each step takes.

Which samples and which noise a step uses is a function of (seed, position in the data, rank) and of
nothing else, so a resumed run sees what the interrupted one would have seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rackyard.shape3d.condition import images_of
from rackyard.shape3d.meshes import Mesh, surface_samples
from rackyard.shape3d.render import rasterise
from rackyard.shape3d.stored import Models

_ORDER, _NOISE = 1, 2  # the streams of random numbers of a run


@dataclass(frozen=True, slots=True)
class LatentSet:
    """N shapes, encoded once."""

    latents: Tensor  # (N, T, C)
    conditions: Tensor  # (N, K, W)

    def __len__(self) -> int:
        return len(self.latents)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one rank trains on in one step."""

    data: Tensor  # (B, T, C)
    noise: Tensor  # (B, T, C)
    t: Tensor  # (B,)
    condition: Tensor  # (B, K, W), zeros where it was dropped


def images(meshes: Sequence[Mesh], size: int) -> Tensor:
    """Conditioner input (N, 5, size, size) of meshes."""
    return images_of([rasterise(m.vertices.astype(np.float32), m.faces, size) for m in meshes])


def surfaces(meshes: Sequence[Mesh], count: int = 256) -> Tensor:
    """Encoder input (N, count, 6) of meshes."""
    return torch.from_numpy(np.stack([surface_samples(m, count) for m in meshes]))


@torch.no_grad()
def encode(models: Models, meshes: Sequence[Mesh]) -> LatentSet:
    """Latents and condition tokens of meshes."""
    return LatentSet(
        models.vae.encode(surfaces(meshes)),
        models.conditioner(images(meshes, models.conditioner.config.image)),
    )


def _random(seed: int, stream: int, *counter: int) -> np.random.Generator:
    """A generator whose state is only its arguments (Philox is counter-based); counter has up to 3 words."""
    words = [0, *counter, *[0] * (3 - len(counter))]  # word 0 counts the draws
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=words))


def rows_at(size: int, seed: int, position: int, count: int) -> NDArray[np.int64]:
    """The rows of `count` consecutive samples from `position` on; each epoch is its own permutation."""
    places = np.arange(position, position + count)
    orders = {int(e): _random(seed, _ORDER, int(e)).permutation(size) for e in np.unique(places // size)}
    return np.array([orders[int(p // size)][p % size] for p in places], dtype=np.int64)


def batch_at(source: LatentSet, *, seed: int, position: int, rank: int, count: int, drop: float = 0.1) -> Batch:
    """The batch of a rank in the step that begins at sample `position` of the run."""
    rows = torch.from_numpy(rows_at(len(source), seed, position + rank * count, count))
    random = _random(seed, _NOISE, position, rank)
    data = source.latents[rows]
    noise = torch.from_numpy(random.standard_normal(data.shape, dtype=np.float32))
    t = torch.sigmoid(torch.from_numpy(random.standard_normal(count, dtype=np.float32)))
    keep = torch.from_numpy((random.random(count) >= drop).astype(np.float32))
    return Batch(data, noise, t, source.conditions[rows] * keep[:, None, None])
