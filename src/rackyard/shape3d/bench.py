"""How long each stage of generation takes, measured here and now."""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from rackyard.shape3d.condition import condition_images
from rackyard.shape3d.decode import Field, banded_field, dense_field, surface
from rackyard.shape3d.families import held_out_seeds, shapes_of
from rackyard.shape3d.pretrain import held_out_truth
from rackyard.shape3d.sample import SampleOptions, field_of, generate
from rackyard.shape3d.stored import load_models


@dataclass(frozen=True, slots=True)
class Timing:
    """One stage: seconds for one shape (the best of the repeats), and what was done in them."""

    stage: str
    seconds: float
    work: str


def machine() -> str:
    """The machine a number was measured on."""
    return f"{platform.machine()}, {torch.get_num_threads()} thread(s), fp32, torch {torch.__version__}"


def _best(action: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


@torch.no_grad()
def bench(resolution: int = 64, steps: int = 24, repeats: int = 3) -> list[Timing]:
    """Encode, condition, denoise, decode (both ways) and extract one unseen procedural shape."""
    models = load_models()
    skin, _, _ = held_out_truth(1, points=1)
    shapes = shapes_of(held_out_seeds(1))
    pictures = condition_images(shapes)
    condition = models.conditioner(pictures)
    options = SampleOptions(steps=steps, resolution=resolution)
    latent = generate(models, condition, options)[0]
    query = field_of(models.vae, latent)
    dense, banded = dense_field(query, resolution), banded_field(query, resolution)
    field: Field = banded
    triangles = f"{len(surface(field).faces)} triangles"
    return [
        Timing("encode", _best(lambda: models.vae.encode(skin), repeats), "256 surface points"),
        Timing("condition", _best(lambda: models.conditioner(pictures), repeats), "32 x 32 render"),
        Timing("denoise", _best(lambda: generate(models, condition, options), repeats), f"{steps} steps, CFG"),
        Timing("decode, dense", _best(lambda: dense_field(query, resolution), repeats), f"{dense.queries} queries"),
        Timing("decode, banded", _best(lambda: banded_field(query, resolution), repeats), f"{banded.queries} queries"),
        Timing("marching cubes", _best(lambda: surface(field), repeats), triangles),
    ]
