"""Mesh files: read, normalised, sampled, and measured; and the project's own sample files.

Reads OBJ, PLY, STL and GLB through trimesh from bytes in memory, so that a file cannot make the reader
open other files. Signed distances come from libigl by winding number, which also holds on meshes that
are not quite closed; they are negative inside, as everywhere in this package.
"""

import io
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import igl
import numpy as np
import trimesh
from numpy.typing import NDArray

from rackyard.errors import RackyardError, UsageError
from rackyard.shape3d.families import HELD_OUT, family_of, shapes_of
from rackyard.shape3d.sdf import FIT, distance

FORMATS = ("obj", "ply", "stl", "glb")
MAX_BYTES = 64 << 20
MAX_FACES = 2_000_000
MANIFEST = "manifest.json"

# What trimesh's loaders raise on damaged input; anything else is a fault of ours and must be seen.
_BROKEN = (
    ValueError, KeyError, IndexError, TypeError, AttributeError, AssertionError, struct.error,
    NotImplementedError, EOFError, OverflowError, MemoryError, ZeroDivisionError, NameError, RecursionError,
)  # fmt: skip
_SAMPLE_SEED = HELD_OUT + 100_000  # the sample files show shapes that no training here has seen

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mesh:
    """A mesh in the unit cube: centred, with longest half extent .9."""

    name: str
    vertices: Floats  # (V, 3)
    faces: NDArray[np.int64]  # (F, 3)


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise RackyardError(f"no mesh file {path.name}", where=str(path), why="there is no such file")
    if path.suffix.lower().lstrip(".") not in FORMATS:
        raise UsageError(
            f"cannot read meshes of type {path.suffix or '(none)'}",
            where=str(path),
            fix=f"convert it to one of {', '.join(FORMATS)}",
        )
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise RackyardError(
            f"mesh file {path.name} is too large",
            where=str(path),
            why=f"{size >> 20} MiB; at most {MAX_BYTES >> 20} MiB are read",
            fix="simplify the mesh",
        )
    if size == 0:
        raise RackyardError(f"mesh file {path.name} is empty", where=str(path), why="it has 0 bytes")
    return path.read_bytes()


def _parse(path: Path, data: bytes) -> trimesh.Trimesh:
    kind = path.suffix.lower().lstrip(".")
    # Materials and textures are not needed, and reading them would open files named by the mesh file.
    options = {"skip_materials": True} if kind == "obj" else {}
    try:
        # Coordinates that are no numbers make numpy warn inside trimesh; load() refuses them.
        with np.errstate(all="ignore"):
            mesh: trimesh.Trimesh = trimesh.load_mesh(io.BytesIO(data), file_type=kind, **options)
            return mesh
    except _BROKEN as error:
        raise RackyardError(
            f"cannot read mesh file {path.name}",
            where=str(path),
            why=f"not a valid {kind.upper()} file ({type(error).__name__}: {str(error)[:120]})",
            fix="export it again",
        ) from error


def load(path: Path | str) -> Mesh:
    """Read and normalise one mesh file; RackyardError when it is missing, unsupported, empty or broken."""
    path = Path(path)
    mesh = _parse(path, _read(path))
    # A file of only points loads as a point cloud, which has no faces.
    faces = np.asarray(getattr(mesh, "faces", ()), dtype=np.int64)
    if not len(faces):
        raise RackyardError(f"mesh file {path.name} has no triangles", where=str(path), fix="export faces too")
    if len(faces) > MAX_FACES:
        raise RackyardError(
            f"mesh file {path.name} has too many triangles",
            where=str(path),
            why=f"{len(faces)}; at most {MAX_FACES} are handled",
            fix="simplify the mesh",
        )
    vertices = np.asarray(mesh.vertices, dtype=np.float64)
    if faces.min() < 0 or faces.max() >= len(vertices):
        raise RackyardError(f"mesh file {path.name} names vertices it does not have", where=str(path))
    return Mesh(path.name, _normalise(path, vertices, faces), faces)


def _normalise(path: Path, vertices: Floats, faces: NDArray[np.int64]) -> Floats:
    used = vertices[np.unique(faces)]
    if not np.isfinite(used).all():
        raise RackyardError(f"mesh file {path.name} has coordinates that are not numbers", where=str(path))
    low, high = used.min(0), used.max(0)
    longest = float((high - low).max())
    if not longest > 0 or not np.isfinite(longest):
        raise RackyardError(f"mesh file {path.name} has no extent", where=str(path), why="all its points coincide")
    scaled: Floats = np.nan_to_num((vertices - (low + high) / 2) * (2 * FIT / longest))
    return scaled


def signed_distance(mesh: Mesh, points: Floats) -> Floats:
    """Distance (Q,) of points (Q, 3) to the mesh, negative inside by winding number."""
    values, _, _, _ = igl.signed_distance(
        np.ascontiguousarray(points, dtype=np.float64),
        np.ascontiguousarray(mesh.vertices),
        np.ascontiguousarray(mesh.faces),
        igl.SIGNED_DISTANCE_TYPE_FAST_WINDING_NUMBER,
    )
    return np.asarray(values, dtype=np.float64)


def surface_samples(mesh: Mesh, count: int, seed: int = 0) -> NDArray[np.float32]:
    """(count, 6) points spread evenly over the surface, with the unit normals of their triangles."""
    random = np.random.Generator(np.random.Philox(seed))
    a, b, c = (mesh.vertices[mesh.faces[:, i]] for i in range(3))
    normal = np.cross(b - a, c - a)
    area = np.linalg.norm(normal, axis=-1)
    total = np.cumsum(area)
    if not total[-1] > 0:
        raise RackyardError(f"mesh {mesh.name} has no area", why="all its triangles are degenerate")
    chosen = np.minimum(np.searchsorted(total, random.random(count) * total[-1], side="right"), len(area) - 1)
    u, v = random.random((2, count, 1))
    over = u + v > 1  # the far half of the parallelogram, folded back into the triangle
    u, v = np.where(over, 1 - u, u), np.where(over, 1 - v, v)
    points = a[chosen] + u * (b - a)[chosen] + v * (c - a)[chosen]
    unit = normal[chosen] / np.maximum(area[chosen], 1e-12)[:, None]
    return np.concatenate([points, unit], -1).astype(np.float32)


def mesh_files(folder: Path | str) -> list[Path]:
    """The mesh files of a folder, by name; RackyardError when there are none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise RackyardError(f"no folder {folder}", fix="make sample meshes: rackyard shape3d meshes DIR")
    found = sorted(p for p in folder.iterdir() if p.suffix.lower().lstrip(".") in FORMATS)
    if not found:
        raise RackyardError(
            f"no mesh files in {folder}",
            why=f"none ends in {', '.join('.' + f for f in FORMATS)}",
            fix="make sample meshes: rackyard shape3d meshes DIR",
        )
    return found


def load_folder(folder: Path | str) -> list[Mesh]:
    """All meshes of a folder, by name."""
    return [load(path) for path in mesh_files(folder)]


def write_samples(folder: Path | str, count: int = 16, resolution: int = 40) -> list[Path]:
    """Write `count` mesh files of procedural (synthetic) shapes, in all four formats by turns, with a manifest."""
    from rackyard.shape3d.decode import dense_field, surface  # marching cubes is only needed here

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    entries, paths = [], []
    for i in range(count):
        seed = _SAMPLE_SEED + i
        shape = shapes_of([seed])
        mesh = surface(dense_field(lambda p, s=shape: distance(s, p[None])[0] / 0.1, resolution))  # type: ignore[misc]
        kind = FORMATS[i % len(FORMATS)]
        path = folder / f"{i:02d}-{family_of(seed)}.{kind}"
        exported = mesh.export(file_type=kind)
        path.write_bytes(exported.encode() if isinstance(exported, str) else bytes(exported))
        entries.append({"file": path.name, "family": family_of(seed), "seed": seed, "faces": len(mesh.faces)})
        paths.append(path)
    note = "Synthetic: made by rackyard.shape3d from procedural signed distances, not scanned or modelled by hand."
    text = json.dumps({"note": note, "meshes": entries}, indent=1) + "\n"
    staged = folder / f".{MANIFEST}.{os.getpid()}"
    staged.write_text(text, encoding="utf-8")
    staged.replace(folder / MANIFEST)
    return paths
