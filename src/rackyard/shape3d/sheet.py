"""The PNG sheet: one row a shape, with what was asked for, the truth, and what was generated."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import trimesh
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from rackyard.shape3d.meshes import Mesh
from rackyard.shape3d.render import Maps, rasterise, shade

_TILE, _LABEL, _HEAD = 192, 16, 20
_COLUMNS = ("condition (32 x 32 render)", "truth", "generated")
_GENERATED = (210, 150, 90)


@dataclass(frozen=True, slots=True)
class Row:
    """One shape: label, conditioner input (5, S, S), its mesh, and the generated one if it has a surface."""

    label: str
    condition: NDArray[np.float32]
    truth: Mesh
    generated: trimesh.Trimesh | None


def _mesh_tile(vertices: NDArray[np.float64], faces: NDArray[np.int64], colour: tuple[int, int, int]) -> Image.Image:
    # Twice the size, then halved: smooth edges without a renderer that knows about them.
    maps = rasterise(np.asarray(vertices, dtype=np.float32), np.asarray(faces, dtype=np.int64), 2 * _TILE)
    return Image.fromarray(shade(maps, colour)).resize((_TILE, _TILE), Image.Resampling.BOX)


def _condition_tile(channels: NDArray[np.float32]) -> Image.Image:
    maps = Maps(channels[:3].transpose(1, 2, 0), channels[3], channels[4])
    return Image.fromarray(shade(maps, (150, 150, 150))).resize((_TILE, _TILE), Image.Resampling.NEAREST)


def _empty_tile() -> Image.Image:
    tile = Image.new("RGB", (_TILE, _TILE), (250, 250, 250))
    ImageDraw.Draw(tile).text((12, _TILE // 2), "no surface", fill=(150, 60, 60))
    return tile


def write_sheet(rows: list[Row], path: Path) -> Path:
    """Draw the rows and write the PNG; the folder is made if need be."""
    height = _HEAD + len(rows) * (_TILE + _LABEL)
    sheet = Image.new("RGB", (len(_COLUMNS) * _TILE, height), (250, 250, 250))
    draw = ImageDraw.Draw(sheet)
    for i, title in enumerate(_COLUMNS):
        draw.text((i * _TILE + 6, 4), title, fill=(40, 40, 40))
    for i, row in enumerate(rows):
        top = _HEAD + i * (_TILE + _LABEL)
        made = row.generated
        tiles = (
            _condition_tile(row.condition),
            _mesh_tile(row.truth.vertices, row.truth.faces, (120, 160, 210)),
            _empty_tile() if made is None else _mesh_tile(made.vertices, made.faces, _GENERATED),
        )
        for j, tile in enumerate(tiles):
            sheet.paste(tile, (j * _TILE, top))
        draw.text((6, top + _TILE), row.label, fill=(40, 40, 40))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, format="PNG", optimize=False)
    return path
