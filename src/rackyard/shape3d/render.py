"""Small renders: sphere tracing for procedural shapes, a z-buffer for meshes, one camera for both.

The camera is orthographic and fixed. Its maps (normal, depth, mask) are what the conditioner sees;
shaded, they become the pictures of the PNG sheet.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rackyard.shape3d.sdf import Shapes, distance, normals

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Camera:
    """Orthographic; looks at the origin from `yaw` around the up axis and `pitch` above the ground."""

    yaw: float = math.radians(35)
    pitch: float = math.radians(25)
    window: float = 1.3  # half the side of the square it sees

    def axes(self) -> Floats:
        """Rows: right, up, and towards the camera (3, 3)."""
        cy, sy, cp, sp = math.cos(self.yaw), math.sin(self.yaw), math.cos(self.pitch), math.sin(self.pitch)
        return np.array([[cy, 0, -sy], [-sy * sp, cp, -cy * sp], [sy * cp, sp, cy * cp]], dtype=np.float32)


CAMERA = Camera()


@dataclass(frozen=True, slots=True)
class Maps:
    """What the camera sees in S x S pixels; everything is 0 where it sees nothing."""

    normal: Floats  # (S, S, 3) world axes
    depth: Floats  # (S, S) towards the camera, 0 at the origin's plane
    mask: Floats  # (S, S) 0 or 1

    def channels(self) -> Floats:
        """(5, S, S): normal, depth, mask."""
        return np.concatenate([self.normal.transpose(2, 0, 1), self.depth[None], self.mask[None]])


def _centres(size: int, window: float) -> Floats:
    """Coordinates (size,) of pixel centres, from -window to window."""
    return (((np.arange(size) + 0.5) / size * 2 - 1) * window).astype(np.float32)


@torch.no_grad()
def trace(shapes: Shapes, size: int, camera: Camera = CAMERA, steps: int = 28) -> list[Maps]:
    """Maps of procedural shapes by sphere tracing, all rays of all shapes together."""
    axes = torch.from_numpy(camera.axes())
    line = torch.from_numpy(_centres(size, camera.window))
    v, u = torch.meshgrid(-line, line, indexing="ij")  # the first row is the top of the picture
    start = u.reshape(-1, 1) * axes[0] + v.reshape(-1, 1) * axes[1] + 1.7 * axes[2]
    points = start.expand(len(shapes), -1, -1).clone()
    for _ in range(steps):
        # Rays that have passed the cube go on to infinity harmlessly.
        points = points - distance(shapes, points)[..., None] * axes[2]
    hit = distance(shapes, points).abs() < 0.01
    facing = normals(shapes, points) * hit[..., None]
    depth = (points @ axes[2]) * hit
    shape = (len(shapes), size, size)
    return [
        Maps(n.numpy(), d.numpy(), m.numpy())
        for n, d, m in zip(facing.view(*shape, 3), depth.view(shape), hit.float().view(shape), strict=True)
    ]


def _candidates(low: Ints, high: Ints, limit: int) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Triangle, column and row of every pixel in every triangle's box, in portions of about `limit`."""
    side = np.maximum(high - low + 1, 0)
    area = side[:, 0] * side[:, 1]
    ends = np.cumsum(area)
    start = 0
    while start < len(area):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        part = slice(start, stop)
        triangle = np.repeat(np.arange(start, stop), area[part])
        inner = np.arange(len(triangle)) - np.repeat(ends[part] - area[part] - before, area[part])
        width = side[triangle, 0]
        yield triangle, low[triangle, 0] + inner % width, low[triangle, 1] + inner // width
        start = stop


def _inside(corner: NDArray[np.float64], x: Ints, y: Ints) -> tuple[NDArray[np.bool_], Floats]:
    """Which pixel centres (N,) lie in their triangles (N, 3, 3), and the depth there."""
    a, b, c = corner[:, 0], corner[:, 1], corner[:, 2]
    px, py = x + 0.5, y + 0.5
    area = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
    safe = np.where(np.abs(area) < 1e-9, 1.0, area)
    wb = ((px - a[:, 0]) * (c[:, 1] - a[:, 1]) - (py - a[:, 1]) * (c[:, 0] - a[:, 0])) / safe
    wc = ((b[:, 0] - a[:, 0]) * (py - a[:, 1]) - (b[:, 1] - a[:, 1]) * (px - a[:, 0])) / safe
    wa = 1 - wb - wc
    edge = -1e-6
    ok = (np.abs(area) >= 1e-9) & (wa >= edge) & (wb >= edge) & (wc >= edge)
    return ok, (wa * a[:, 2] + wb * b[:, 2] + wc * c[:, 2]).astype(np.float32)


def rasterise(vertices: Floats, faces: Ints, size: int, camera: Camera = CAMERA) -> Maps:
    """Maps of a mesh (V, 3), (F, 3) by a z-buffer; flat normals, faces seen from both sides."""
    axes = camera.axes()
    # Double precision: slivers of marching cubes would otherwise light pixels beside them.
    view = vertices.astype(np.float64) @ axes.T.astype(np.float64)
    scale = size / (2 * camera.window)
    corner = np.stack([view[:, 0] * scale + size / 2, size / 2 - view[:, 1] * scale, view[:, 2]], -1)[faces]
    low = np.clip(np.floor(corner[:, :, :2].min(1)), 0, size).astype(np.int64)
    high = np.clip(np.ceil(corner[:, :, :2].max(1)), -1, size - 1).astype(np.int64)
    depth = np.full(size * size, -np.inf, dtype=np.float32)
    owner = np.full(size * size, -1, dtype=np.int64)
    for triangle, x, y in _candidates(low, high, 1_000_000):
        ok, z = _inside(corner[triangle], x, y)
        pixel, z, triangle = (y * size + x)[ok], z[ok], triangle[ok]
        order = np.lexsort((z, pixel))
        last = np.flatnonzero(np.diff(pixel[order], append=-1))
        best = order[last]
        nearer = z[best] > depth[pixel[best]]
        depth[pixel[best][nearer]], owner[pixel[best][nearer]] = z[best][nearer], triangle[best][nearer]
    return _gather(vertices[faces[owner]], owner, depth, axes)


def _gather(corner: Floats, owner: Ints, depth: Floats, axes: Floats) -> Maps:
    size = math.isqrt(len(owner))
    mask = (owner >= 0).astype(np.float32)
    normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    normal /= np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-12)
    # Meshes in the wild are wound either way: a visible face looks at the camera.
    normal *= np.where(normal @ axes[2] < 0, -1.0, 1.0)[:, None] * mask[:, None]
    flat = np.where(mask > 0, depth, 0).astype(np.float32)
    return Maps(normal.reshape(size, size, 3).astype(np.float32), flat.reshape(size, size), mask.reshape(size, size))


def shade(maps: Maps, colour: tuple[int, int, int] = (120, 160, 210)) -> NDArray[np.uint8]:
    """(S, S, 3) picture: one light from the upper left, darker with depth, white background."""
    light = np.array([0.25, 0.8, 0.55], dtype=np.float32)
    lambert = np.clip(maps.normal @ (light / np.linalg.norm(light)), 0, 1)
    bright = (0.35 + 0.65 * lambert) * np.clip(0.9 + 0.15 * maps.depth, 0.6, 1.1)
    picture = np.clip(bright[..., None] * np.array(colour, dtype=np.float32), 0, 255)
    return np.where(maps.mask[..., None] > 0, picture, 250).astype(np.uint8)
