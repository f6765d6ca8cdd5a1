"""A field becomes a mesh: query a grid, march its cubes, close it, write it.

Querying the grid is the dear part of 3D generation. `banded_field` asks only near the surface and gives
the same mesh as `dense_field`; the count of queries is returned so that a saving can be shown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath

import numpy as np
import torch
import trimesh
from numpy.typing import NDArray
from skimage.measure import marching_cubes
from torch import Tensor

from rackyard.errors import RackyardError, UsageError

Query = Callable[[Tensor], Tensor]  # points (Q, 3) -> field (Q,), negative inside
Grid = NDArray[np.float32]

_OUTSIDE = 1.0
_COARSE = 0.07  # largest coarse cell: half its diagonal, .06, is 60 % of the truncation distance of .1
_BAND = 0.75
_CLEAR = 2e-3  # of the truncation distance: 2e-4 of the cube


class NoSurface(RackyardError):
    """The field is positive everywhere: there is nothing to extract."""


@dataclass(frozen=True, slots=True)
class Field:
    """Values on the (R + 1)^3 nodes of the cube [-1, 1]^3, and how many of them were asked for."""

    values: Grid
    queries: int

    @property
    def resolution(self) -> int:
        return int(self.values.shape[0]) - 1


def _nodes(index: Tensor, resolution: int) -> Tensor:
    """Coordinates (N, 3) of node indices (N, 3): node 0 is at -1 and node R at 1."""
    return index.float() * (2 / resolution) - 1


@torch.no_grad()
def _ask(query: Query, index: Tensor, resolution: int, chunk: int) -> Tensor:
    return torch.cat([query(_nodes(part, resolution)) for part in index.split(chunk)])


def _all_nodes(resolution: int, stride: int = 1) -> Tensor:
    line = torch.arange(0, resolution + 1, stride)
    return torch.cartesian_prod(line, line, line)


def dense_field(query: Query, resolution: int, chunk: int = 16384) -> Field:
    """Every node asked."""
    if resolution < 2:
        raise UsageError(f"grid resolution {resolution} is too small; use 16 or more")
    values = _ask(query, _all_nodes(resolution), resolution, chunk)
    side = resolution + 1
    return Field(values.view(side, side, side).numpy(), values.numel())


def _grow(mask: Tensor) -> Tensor:
    """A boolean (n, n, n) mask and all its neighbours."""
    return torch.nn.functional.max_pool3d(mask[None, None].float(), 3, 1, 1)[0, 0] > 0


def _stride(resolution: int) -> int:
    """The largest power of two for which coarse cells are small enough, and that divides the resolution."""
    stride = 1
    while 4 * stride / resolution <= _COARSE and resolution % (2 * stride) == 0:
        stride *= 2
    return stride


def banded_field(query: Query, resolution: int, *, stride: int | None = None, chunk: int = 16384) -> Field:
    """Every `stride`-th node asked, then all nodes near those whose value is within the band.

    Exact where the field is a truncated distance: the surface is nowhere farther from a coarse node than half
    the diagonal of a coarse cell, which is well inside the band. Elsewhere a node takes the value of the
    nearest coarse node, whose sign is the right one. At low resolutions this is the dense field.
    """
    stride = _stride(resolution) if stride is None else stride
    if resolution % stride:
        raise UsageError(f"grid resolution {resolution} is not a multiple of the coarse stride {stride}")
    coarse_side, side = resolution // stride + 1, resolution + 1
    coarse = _ask(query, _all_nodes(resolution, stride), resolution, chunk).view(coarse_side, coarse_side, coarse_side)
    near = _grow(coarse.abs() < _BAND)
    nearest = (torch.arange(side) + stride // 2) // stride
    fine = coarse[nearest][:, nearest][:, :, nearest].clone()
    wanted = near[nearest][:, nearest][:, :, nearest]
    index = torch.nonzero(wanted)
    if len(index):
        fine[wanted] = _ask(query, index, resolution, chunk)
    return Field(fine.numpy(), coarse.numel() + len(index))


def surface(field: Field) -> trimesh.Trimesh:
    """The closed surface where the field is zero, facing outwards, in the cube [-1, 1]^3."""
    values = field.values.copy()
    for axis in range(3):  # a shape that touches the border is cut flat there instead of left open
        edge = np.moveaxis(values, axis, 0)
        edge[0] = np.maximum(edge[0], _OUTSIDE)
        edge[-1] = np.maximum(edge[-1], _OUTSIDE)
    if not (values < 0).any():
        raise NoSurface(
            "the decoded field has no inside: there is no surface to extract",
            why="the latents are far from anything the autoencoder was trained on",
            fix="use more sampling steps, or a checkpoint that was trained for longer",
        )
    # A node (almost) on the surface makes vertices that coincide; merged, they would open the mesh.
    values = np.where(np.abs(values) < _CLEAR, np.where(values < 0, -_CLEAR, _CLEAR), values)
    vertices, faces, _, _ = marching_cubes(values, 0.0)
    # Vertices come in node units, 0…R: dividing by R + 1 would shrink and shift the mesh.
    return trimesh.Trimesh(vertices * (2 / field.resolution) - 1, faces, process=False)


def write_glb(mesh: trimesh.Trimesh, path: FilePath) -> FilePath:
    """Write a binary glTF file; the folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(trimesh.Scene(mesh).export(file_type="glb"))
    return path
