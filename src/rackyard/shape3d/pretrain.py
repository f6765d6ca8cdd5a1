"""The recipe of the committed tiny weights: autoencoder first, then conditioner and denoiser together.

Everything is trained on procedural shapes (families.py) with fixed seeds, on one CPU core in fp32.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rackyard.shape3d.condition import Conditioner, condition_images
from rackyard.shape3d.config import ShapeConfig
from rackyard.shape3d.dit import ShapeDit
from rackyard.shape3d.families import held_out_seeds, shapes_of, train_seeds
from rackyard.shape3d.flow import Path, logit_normal
from rackyard.shape3d.samples import Samples, iou, make_samples, surface_of, uniform_points
from rackyard.shape3d.sdf import distance
from rackyard.shape3d.vae import VecsetVae

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Numbers of one training stage; kept beside the weights."""

    shapes: int
    steps: int
    batch: int
    rate: float
    seed: int = 0
    warmup: int = 100
    queries: int = 192  # per shape and step (autoencoder)
    points: int = 192  # surface points per shape and step (autoencoder)
    drop: float = 0.1  # share of conditions replaced by "none" (denoiser)
    ema: float = 0.998  # denoiser


VAE_RECIPE = Recipe(shapes=4608, steps=4000, batch=32, rate=4e-3)
DIT_RECIPE = Recipe(shapes=3072, steps=1800, batch=32, rate=2e-3)


def _cosine(recipe: Recipe, optimizer: torch.optim.Optimizer) -> Iterator[int]:
    """Steps 1…n, setting the learning rate of each: linear warm-up, then half a cosine to zero."""
    for step in range(recipe.steps):
        wave = 0.5 + 0.5 * math.cos(math.pi * step / recipe.steps)
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * min(1.0, (step + 1) / recipe.warmup) * wave
        yield step + 1


def _update(loss: Tensor, modules: list[nn.Module], optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_([p for m in modules for p in m.parameters()], 1.0)
    optimizer.step()


def _vae_batch(data: Samples, recipe: Recipe) -> tuple[Tensor, Tensor, Tensor]:
    rows = torch.randint(len(data.points), (recipe.batch,))
    half = data.points.shape[1] // 2  # the first half of the columns is inside, the second outside
    inside = torch.randint(half, (recipe.queries // 2,))
    columns = torch.cat([inside, half + torch.randint(half, (recipe.queries // 2,))])
    seen = torch.randint(data.surface.shape[1], (recipe.points,))
    return data.surface[rows][:, seen], data.points[rows][:, columns], data.distances[rows][:, columns]


def train_vae(config: ShapeConfig, recipe: Recipe, log: Log) -> VecsetVae:
    """A trained autoencoder, with the scale of its latents measured on the training shapes."""
    torch.manual_seed(recipe.seed)
    vae = VecsetVae(config.vae)
    data = make_samples(train_seeds(recipe.shapes), seed=recipe.seed)
    optimizer = torch.optim.AdamW(vae.parameters(), lr=recipe.rate, betas=(0.9, 0.99), weight_decay=0.01)
    start = time.perf_counter()
    for step in _cosine(recipe, optimizer):
        loss = vae.loss(*_vae_batch(data, recipe))
        _update(loss, [vae], optimizer)
        if step % 500 == 0:
            score = vae_iou(vae, 45).mean()
            log(f"vae step={step} loss={loss.item():.4f} iou={score:.3f} seconds={time.perf_counter() - start:.0f}")
    with torch.no_grad():
        latents = torch.cat([vae.encoder(part)[0] for part in data.surface.split(256)])
        vae.latent_mean.copy_(latents.mean(0))
        vae.latent_std.copy_(latents.std(0))
    return vae.eval()


def held_out_truth(count: int, points: int = 8192) -> tuple[Tensor, Tensor, Tensor]:
    """Surfaces (N, 256, 6) of unseen shapes, evenly spread points (P, 3) and true distances (N, P)."""
    shapes = shapes_of(held_out_seeds(count))
    surface = surface_of(shapes, 256, torch.Generator().manual_seed(1))
    cloud = uniform_points(points, seed=2)
    return surface, cloud, distance(shapes, cloud.expand(count, -1, -1))


@torch.no_grad()
def vae_iou(vae: VecsetVae, count: int) -> Tensor:
    """Volume IoU (count,) of reconstructions of unseen procedural shapes, on 8,192 even points each."""
    surface, cloud, truth = held_out_truth(count)
    prepared = vae.prepare(vae.encode(surface))
    fields = [vae.query(part.expand(count, -1, -1), prepared) for part in cloud.split(1024)]
    return iou(torch.cat(fields, 1), truth)


def _average(mean: nn.Module, live: nn.Module, decay: float) -> None:
    with torch.no_grad():
        for slow, fast in zip(mean.parameters(), live.parameters(), strict=True):
            slow.lerp_(fast, 1 - decay)


def _copy(module: nn.Module, fresh: nn.Module) -> None:
    fresh.load_state_dict(module.state_dict())
    fresh.requires_grad_(False)


def train_dit(config: ShapeConfig, vae: VecsetVae, recipe: Recipe, log: Log) -> tuple[Conditioner, ShapeDit]:
    """Conditioner and denoiser (their moving averages) trained on latents of the given autoencoder."""
    if config.condition is None:
        raise ValueError(f"{config.name} brings no conditioner of its own")
    torch.manual_seed(recipe.seed)
    generator = torch.Generator().manual_seed(recipe.seed)
    live, mean = (
        [Conditioner(config.condition), ShapeDit(config.dit)],
        [Conditioner(config.condition), ShapeDit(config.dit)],
    )
    for slow, fast in zip(mean, live, strict=True):
        _copy(fast, slow)
    latents, images = _dit_data(vae, recipe)
    log(f"dit data: {len(latents)} shapes rendered")
    optimizer = torch.optim.AdamW([p for m in live for p in m.parameters()], lr=recipe.rate, betas=(0.9, 0.99))
    path, start, recent = Path(), time.perf_counter(), 0.0
    for step in _cosine(recipe, optimizer):
        rows = torch.randint(len(latents), (recipe.batch,), generator=generator)
        data, t = latents[rows], logit_normal(recipe.batch, generator)
        noise = torch.randn(data.shape, generator=generator)
        keep = (torch.rand(recipe.batch, generator=generator) >= recipe.drop).float()
        condition = live[0](images[rows]) * keep[:, None, None]
        predicted = live[1](path.mix(data, noise, t), t, condition)
        loss = (predicted - path.velocity(data, noise)).square().mean()
        _update(loss, live, optimizer)
        for slow, fast in zip(mean, live, strict=True):
            _average(slow, fast, min(recipe.ema, step / (step + 10)))
        recent += loss.item() / 100
        if step % 100 == 0:
            log(f"dit step={step} loss={recent:.4f} seconds={time.perf_counter() - start:.0f}")
            recent = 0.0
    return mean[0].eval(), mean[1].eval()  # type: ignore[return-value]


@torch.no_grad()
def _dit_data(vae: VecsetVae, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Latents (N, T, C) and condition images (N, channels, S, S) of the training shapes."""
    latents, images = [], []
    generator = torch.Generator().manual_seed(recipe.seed + 1)
    for start in range(0, recipe.shapes, 64):
        shapes = shapes_of(train_seeds(recipe.shapes)[start : start + 64])
        latents.append(vae.encode(surface_of(shapes, 256, generator)))
        images.append(condition_images(shapes))
    return torch.cat(latents), torch.cat(images)
