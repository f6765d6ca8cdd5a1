"""Generate shapes for given conditions, and show them beside what was asked for."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import trimesh
from torch import Tensor

from rackyard.errors import RackyardError, UsageError
from rackyard.shape3d import flow, stored
from rackyard.shape3d.condition import condition_images
from rackyard.shape3d.data import images
from rackyard.shape3d.decode import Field, NoSurface, banded_field, surface, write_glb
from rackyard.shape3d.dit import null_condition
from rackyard.shape3d.families import held_out_seeds, shapes_of
from rackyard.shape3d.meshes import Mesh, load, mesh_files, signed_distance
from rackyard.shape3d.samples import iou, uniform_points
from rackyard.shape3d.sdf import distance
from rackyard.shape3d.sheet import Row, write_sheet
from rackyard.shape3d.vae import VecsetVae


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """How to sample: Euler steps, guidance (1 is none), grid resolution of the decoded field, noise seed."""

    steps: int = 24
    guidance: float = 2.0
    resolution: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UsageError(f"{self.steps} sampling steps; at least one is needed")
        if self.resolution < 8 or self.resolution > 512 or self.resolution % 4:
            raise UsageError(f"resolution {self.resolution}; use a multiple of 4 from 8 to 512")


@dataclass(frozen=True, slots=True)
class SampleReport:
    """What was made and how good it is: volume IoU of each generated shape with its mesh, measured."""

    names: list[str]
    glbs: list[Path]  # of the shapes that have a surface; all watertight
    png: Path
    iou: list[float]  # one a shape, 0 for one without a surface
    seconds: dict[str, float]  # by stage


@torch.no_grad()
def generate(models: stored.Models, condition: Tensor, options: SampleOptions = SampleOptions()) -> Tensor:
    """Whitened latents (B, T, C) for condition tokens (B, K, W); the same seed gives the same shapes."""
    dit, batch = models.dit, len(condition)
    both = torch.cat([condition, null_condition(dit.config, batch)])

    def guided(x: Tensor, t: Tensor) -> Tensor:
        # One forward for both halves of guidance.
        wanted, base = dit(torch.cat([x, x]), torch.cat([t, t]), both).chunk(2)
        out: Tensor = base + options.guidance * (wanted - base)
        return out

    def plain(x: Tensor, t: Tensor) -> Tensor:
        out: Tensor = dit(x, t, condition)
        return out

    velocity = plain if options.guidance == 1.0 else guided
    # Noise is drawn for each shape by itself, so that a shape does not depend on its neighbours in the batch.
    seeds = [torch.Generator().manual_seed(options.seed * 100_003 + i) for i in range(batch)]
    c = dit.config
    x = torch.stack([torch.randn(c.latent_tokens, c.latent_channels, generator=g) for g in seeds])
    for state in flow.euler(flow.Path(), velocity, x, options.steps):
        x = state
    return x


def field_of(vae: VecsetVae, latent: Tensor) -> Callable[[Tensor], Tensor]:
    """The field of one shape (T, C) as a function of points (Q, 3); the latent is prepared once."""
    with torch.no_grad():
        prepared = vae.prepare(latent[None])

    @torch.no_grad()
    def query(points: Tensor) -> Tensor:
        return vae.query(points[None], prepared)[0]

    return query


@torch.no_grad()
def generation_iou(models: stored.Models, count: int, options: SampleOptions = SampleOptions()) -> Tensor:
    """Volume IoU (count,) of shapes generated for renders of unseen procedural shapes."""
    shapes, cloud = shapes_of(held_out_seeds(count)), uniform_points(4096, seed=3)
    latents = generate(models, models.conditioner(condition_images(shapes)), options)
    fields = torch.stack([field_of(models.vae, z)(cloud) for z in latents])
    return iou(fields, distance(shapes, cloud.expand(count, -1, -1)))


def models_from(source: Path | str | None) -> stored.Models:
    """Networks from the committed weights (None), a folder of weight files, or a training checkpoint folder."""
    if source is None:
        return stored.load_models()
    folder = Path(source)
    if (folder / f"{stored.COMMITTED}-dit.pt").is_file():
        return stored.load_models(folder=folder)
    if not folder.is_dir():
        raise RackyardError(f"no weights or checkpoints at {folder}", why="there is no such folder")
    from rackyard.checkpoint import Checkpointer  # only this branch needs it

    models = stored.load_models()
    checkpointer = Checkpointer(folder, read_only=True)
    found = checkpointer.latest()
    if found is None:
        raise RackyardError(
            f"no usable checkpoint in {folder}", fix="train first: rackyard shape3d train --checkpoint DIR …"
        )
    # Loaded in place: the moving average becomes the denoiser.
    average = {name: p.detach() for name, p in models.dit.named_parameters()}
    checkpointer.load(found, {"ema": average}, partial=True)
    return models


def _decode(vae: VecsetVae, latent: Tensor, resolution: int) -> tuple[Field, trimesh.Trimesh | None]:
    field = banded_field(field_of(vae, latent), resolution)
    try:
        return field, surface(field)
    except NoSurface:
        return field, None


def _score(vae: VecsetVae, latent: Tensor, mesh: Mesh, cloud: Tensor) -> float:
    truth = torch.from_numpy(signed_distance(mesh, cloud.numpy().astype(np.float64)))
    return float(iou(field_of(vae, latent)(cloud), truth))


def sample_sheet(
    weights_or_checkpoint: Path | str | None,
    mesh_dir: Path | str,
    out_dir: Path | str,
    count: int = 8,
    options: SampleOptions = SampleOptions(),
) -> SampleReport:
    """Generate a shape for each of the first `count` meshes of a folder, and write GLB files and `sheet.png`."""
    if count < 1:
        raise UsageError(f"{count} shapes; at least one is needed")
    out, clock = Path(out_dir), time.perf_counter()
    models = models_from(weights_or_checkpoint)
    meshes = [load(path) for path in mesh_files(mesh_dir)[:count]]
    pictures = images(meshes, models.conditioner.config.image)
    seconds = {"load": time.perf_counter() - clock}
    clock = time.perf_counter()
    with torch.no_grad():
        condition = models.conditioner(pictures)
    latents = generate(models, condition, options)
    seconds["denoise"] = time.perf_counter() - clock
    clock = time.perf_counter()
    decoded = [_decode(models.vae, z, options.resolution)[1] for z in latents]
    seconds["decode"] = time.perf_counter() - clock
    cloud = uniform_points(8192, seed=3)
    scores = [_score(models.vae, z, mesh, cloud) for z, mesh in zip(latents, meshes, strict=True)]
    glbs = [
        write_glb(made, out / f"{Path(mesh.name).stem}.glb")
        for made, mesh in zip(decoded, meshes, strict=True)
        if made is not None
    ]
    rows = [
        Row(f"{mesh.name}   IoU {score:.2f}", picture.numpy(), mesh, made)
        for mesh, score, picture, made in zip(meshes, scores, pictures, decoded, strict=True)
    ]
    png = write_sheet(rows, out / "sheet.png")
    return SampleReport([m.name for m in meshes], glbs, png, scores, seconds)
