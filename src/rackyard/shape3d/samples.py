"""Points of procedural shapes: on the surface, and around it with their distances.

Surface points are drawn from a thin shell and moved onto the surface, which makes their density
proportional to area, as for points drawn from a mesh.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rackyard.shape3d.families import shapes_of
from rackyard.shape3d.sdf import Shapes, distance, normals

_SHELL = 0.06


@dataclass(frozen=True, slots=True)
class Samples:
    """What an encoder sees and what a decoder must answer, for N shapes."""

    surface: Tensor  # (N, S, 6) points and outward unit normals
    points: Tensor  # (N, Q, 3): half inside, half outside
    distances: Tensor  # (N, Q), negative inside


def _pick(mask: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Indices (B, count) of True columns, cycling when a row has fewer of them than asked for."""
    order = (torch.rand(mask.shape, generator=generator) - mask.float()).argsort(-1)
    have = mask.sum(-1).clamp(min=1)
    return order.gather(1, torch.arange(count)[None] % have[:, None])


def _take(points: Tensor, index: Tensor) -> Tensor:
    return points.gather(1, index[..., None].expand(-1, -1, points.shape[-1]))


def surface_of(shapes: Shapes, count: int, generator: torch.Generator) -> Tensor:
    """(B, count, 6) points on the surface with outward unit normals."""
    tries = torch.rand((len(shapes), 12 * count, 3), generator=generator) * 2 - 1
    points = _take(tries, _pick(distance(shapes, tries).abs() < _SHELL, count, generator))
    for _ in range(3):  # the distance of an ellipsoid or a cut is a bound, so one step may fall short
        points = points - distance(shapes, points)[..., None] * normals(shapes, points)
    return torch.cat([points, normals(shapes, points)], -1)


def queries_of(shapes: Shapes, surface: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(B, count, 3) points, half inside and half outside, and their distances (B, count)."""
    uniform = torch.rand((len(shapes), 3 * count, 3), generator=generator) * 2 - 1
    jitter = torch.randn(surface[..., :3].shape, generator=generator) * 0.05
    tries = torch.cat([uniform, (surface[..., :3] + jitter).clamp(-1, 1)], 1)
    values = distance(shapes, tries)
    half = count // 2
    index = torch.cat([_pick(values < 0, half, generator), _pick(values >= 0, count - half, generator)], 1)
    return _take(tries, index), values.gather(1, index)


def make_samples(
    seeds: Sequence[int], *, surface: int = 256, queries: int = 1024, seed: int = 0, chunk: int = 64
) -> Samples:
    """Samples of the shapes of `seeds`, the same for the same arguments."""
    generator = torch.Generator().manual_seed(seed)
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for start in range(0, len(seeds), chunk):
        shapes = shapes_of(seeds[start : start + chunk])
        skin = surface_of(shapes, surface, generator)
        found.append((skin, *queries_of(shapes, skin, queries, generator)))
    skins, points, distances = zip(*found, strict=True)
    return Samples(torch.cat(skins), torch.cat(points), torch.cat(distances))


def uniform_points(count: int, seed: int = 0) -> Tensor:
    """(count, 3) points spread evenly over the cube, for measuring volumes."""
    return torch.rand((count, 3), generator=torch.Generator().manual_seed(seed)) * 2 - 1


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union (…) of two fields (…, Q) at the same points; inside is below zero."""
    one, two = a < 0, b < 0
    union = (one | two).sum(-1)
    # Two empty shapes are the same shape.
    return torch.where(union > 0, (one & two).sum(-1) / union.clamp(min=1), 1.0)
