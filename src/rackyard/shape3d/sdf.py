"""Signed distances of shapes built from simple solids, for a whole batch of shapes at once.

A shape is a union of parts with some parts cut away. Every distance in this package is **negative
inside** and positive outside, which is also libigl's convention. Lengths are in the unit cube
[-1, 1]^3, y is up.

The formulas for each solid are the well-known ones from Inigo Quilez's page "distance functions"
(iquilezles.org/articles/distfunctions); the ellipsoid's is a bound, the others are exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

Vec = tuple[float, float, float]
FIT = 0.9  # shapes are scaled so that their longest half extent is this


class Kind(IntEnum):
    """A solid, and what the three numbers of `Part.size` mean for it."""

    BOX = 0  # half extents along x, y, z
    ELLIPSOID = 1  # radii along x, y, z
    CYLINDER = 2  # radius, half height, unused
    CONE = 3  # lower radius, half height, upper radius
    TORUS = 4  # ring radius, tube radius, unused


@dataclass(frozen=True, slots=True)
class Part:
    """One solid; `axis` is the direction (0 x, 1 y, 2 z) of cylinders, cones and rings."""

    kind: Kind
    centre: Vec
    size: Vec
    axis: int = 1
    cut: bool = False  # taken away from the union instead of added

    def extent(self) -> Vec:
        """Half extents of the part's bounding box along x, y, z."""
        a, b, c = self.size
        if self.kind in (Kind.BOX, Kind.ELLIPSOID):
            return self.size
        across = {Kind.CYLINDER: a, Kind.CONE: max(a, c), Kind.TORUS: a + b}[self.kind]
        out = [across, across, across]
        out[self.axis] = b
        return out[0], out[1], out[2]


def fit(parts: Sequence[Part], half: float = FIT) -> list[Part]:
    """The same parts, moved and scaled so that their bounding box is centred with longest half extent `half`."""
    solid = [p for p in parts if not p.cut]
    low = [min(p.centre[i] - p.extent()[i] for p in solid) for i in range(3)]
    high = [max(p.centre[i] + p.extent()[i] for p in solid) for i in range(3)]
    scale = 2 * half / max(h - lo for h, lo in zip(high, low, strict=True))
    middle = [(h + lo) / 2 for h, lo in zip(high, low, strict=True)]

    def move(p: Part) -> Part:
        x, y, z = ((c - m) * scale for c, m in zip(p.centre, middle, strict=True))
        a, b, c = (s * scale for s in p.size)
        return Part(p.kind, (x, y, z), (a, b, c), p.axis, p.cut)

    return [move(p) for p in parts]


@dataclass(frozen=True, slots=True)
class Shapes:
    """B shapes of at most K parts each, as tensors; unused slots have kind -1."""

    kind: Tensor  # (B, K) int64
    centre: Tensor  # (B, K, 3)
    size: Tensor  # (B, K, 3)
    axis: Tensor  # (B, K) int64
    cut: Tensor  # (B, K) bool

    def __len__(self) -> int:
        return self.kind.shape[0]

    def __getitem__(self, rows: slice) -> "Shapes":
        return Shapes(self.kind[rows], self.centre[rows], self.size[rows], self.axis[rows], self.cut[rows])


def pack(shapes: Sequence[Sequence[Part]]) -> Shapes:
    """Lists of parts as one batch."""
    width = max(len(parts) for parts in shapes)
    empty = Part(Kind.BOX, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    padded = [[*parts, *[empty] * (width - len(parts))] for parts in shapes]
    kind = torch.tensor([[int(p.kind) for p in row] for row in padded])
    used = torch.tensor([len(parts) for parts in shapes])
    kind[torch.arange(width) >= used[:, None]] = -1
    return Shapes(
        kind=kind,
        centre=torch.tensor([[p.centre for p in row] for row in padded], dtype=torch.float32),
        size=torch.tensor([[p.size for p in row] for row in padded], dtype=torch.float32),
        axis=torch.tensor([[p.axis for p in row] for row in padded]),
        cut=torch.tensor([[p.cut for p in row] for row in padded]),
    )


def _box(p: Tensor, size: Tensor) -> Tensor:
    q = p.abs() - size
    outside: Tensor = q.clamp_min(0).norm(dim=-1)
    return outside + q.amax(-1).clamp_max(0)


def _ellipsoid(p: Tensor, size: Tensor) -> Tensor:
    near = (p / size).norm(dim=-1)
    slope = (p / size.square()).norm(dim=-1)
    bound = near * (near - 1) / slope.clamp_min(1e-6)
    # The quotient is 0/0 at the centre, where the distance is the smallest radius.
    return torch.where(slope < 1e-4, -size.amin(-1), bound)


def _cylinder(p: Tensor, size: Tensor) -> Tensor:
    side = p[..., 0::2].norm(dim=-1) - size[..., 0]
    cap = p[..., 1].abs() - size[..., 1]
    outside = torch.hypot(side.clamp_min(0), cap.clamp_min(0))
    return outside + torch.maximum(side, cap).clamp_max(0)


def _cone(p: Tensor, size: Tensor) -> Tensor:
    low, half, high = size.unbind(-1)
    r, y = p[..., 0::2].norm(dim=-1), p[..., 1]
    cap_r = r - torch.minimum(r, torch.where(y < 0, low, high))
    cap_y = y.abs() - half
    dr, dy = high - low, 2 * half
    along = (((high - r) * dr + (half - y) * dy) / (dr * dr + dy * dy)).clamp(0, 1)
    side_r, side_y = r - high + dr * along, y - half + dy * along
    squared = torch.minimum(cap_r.square() + cap_y.square(), side_r.square() + side_y.square())
    inside = (side_r < 0) & (cap_y < 0)
    return torch.where(inside, -1.0, 1.0) * squared.sqrt()


def _torus(p: Tensor, size: Tensor) -> Tensor:
    return torch.hypot(p[..., 0::2].norm(dim=-1) - size[..., 0], p[..., 1]) - size[..., 1]


_SOLIDS = {
    Kind.BOX: _box,
    Kind.ELLIPSOID: _ellipsoid,
    Kind.CYLINDER: _cylinder,
    Kind.CONE: _cone,
    Kind.TORUS: _torus,
}
# Coordinates reordered so that the part's axis comes second, where the solids expect it.
_ORDER = torch.tensor([[1, 0, 2], [0, 1, 2], [0, 2, 1]])
_FAR = 1e3


def distance(shapes: Shapes, points: Tensor) -> Tensor:
    """Signed distance (B, Q) of points (B, Q, 3) to their shapes; negative inside."""
    solid = torch.full((*shapes.kind.shape, points.shape[1]), _FAR)
    for kind, formula in _SOLIDS.items():
        row, slot = torch.nonzero(shapes.kind == kind, as_tuple=True)
        if not len(row):
            continue
        local = points[row] - shapes.centre[row, slot][:, None]
        if kind not in (Kind.BOX, Kind.ELLIPSOID):
            order = _ORDER[shapes.axis[row, slot]]
            local = local.gather(-1, order[:, None].expand(-1, points.shape[1], -1))
        solid[row, slot] = formula(local, shapes.size[row, slot][:, None])
    cut = shapes.cut[..., None]
    added = solid.masked_fill(cut, _FAR).amin(1)
    return torch.maximum(added, (-solid).masked_fill(~cut, -_FAR).amax(1))


def normals(shapes: Shapes, points: Tensor, step: float = 2e-3) -> Tensor:
    """Unit outward normals (B, Q, 3) by central differences of the distance."""
    count = points.shape[1]
    offsets = step * torch.cat([torch.eye(3), -torch.eye(3)])
    around = (points[:, None] + offsets[:, None]).flatten(1, 2)
    values = distance(shapes, around).view(-1, 2, 3, count)
    return torch.nn.functional.normalize((values[:, 0] - values[:, 1]).transpose(1, 2), dim=-1)
