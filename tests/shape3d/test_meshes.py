"""Mesh files: all formats, the sign of distances, errors that say what is wrong, real public files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackyard.errors import RackyardError, UsageError
from rackyard.shape3d import meshes
from rackyard.shape3d.families import shapes_of
from rackyard.shape3d.samples import iou, uniform_points
from rackyard.shape3d.sdf import FIT, distance

CUBE = trimesh.creation.box((2.0, 1.0, 1.0))


def test_sample_files_come_in_all_formats_closed_and_listed(sample_meshes: Path) -> None:
    listed = json.loads((sample_meshes / meshes.MANIFEST).read_text())
    assert "ynthetic" in listed["note"]
    assert [entry["file"] for entry in listed["meshes"]] == [p.name for p in meshes.mesh_files(sample_meshes)]
    assert {p.suffix for p in meshes.mesh_files(sample_meshes)} == {".obj", ".ply", ".stl", ".glb"}
    assert all(trimesh.load_mesh(path).is_watertight for path in meshes.mesh_files(sample_meshes))


def test_sample_files_are_the_shapes_of_their_seeds(sample_meshes: Path) -> None:
    cloud = uniform_points(2048)
    listed = json.loads((sample_meshes / meshes.MANIFEST).read_text())["meshes"]
    truth = distance(shapes_of([entry["seed"] for entry in listed]), cloud.expand(len(listed), -1, -1))
    read = meshes.load_folder(sample_meshes)
    found = np.stack([meshes.signed_distance(mesh, cloud.numpy().astype(np.float64)) for mesh in read])
    assert iou(torch.from_numpy(found), truth).min() > 0.75
    assert iou(torch.from_numpy(found), truth).mean() > 0.9


@pytest.mark.parametrize("kind", meshes.FORMATS)
def test_a_mesh_is_centred_and_scaled(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"box.{kind}"
    moved = CUBE.copy()
    moved.apply_translation([5, 6, 7])
    moved.export(path)
    mesh = meshes.load(path)
    assert np.allclose(mesh.vertices.max(0), [FIT, FIT / 2, FIT / 2], atol=1e-6)
    assert np.allclose(mesh.vertices.min(0), [-FIT, -FIT / 2, -FIT / 2], atol=1e-6)
    inside, outside = meshes.signed_distance(mesh, np.array([[0.0, 0, 0], [0, 0.8, 0]]))
    assert inside == pytest.approx(-0.45, abs=1e-6)
    assert outside == pytest.approx(0.35, abs=1e-6)


def test_surface_samples_are_even_and_repeatable(tmp_path: Path) -> None:
    CUBE.export(tmp_path / "box.ply")
    mesh = meshes.load(tmp_path / "box.ply")
    points = meshes.surface_samples(mesh, 4000, seed=3)
    assert np.array_equal(points, meshes.surface_samples(mesh, 4000, seed=3))
    assert np.abs(meshes.signed_distance(mesh, points[:, :3].astype(np.float64))).max() < 1e-6
    # The two square ends are 2 of 10 square units.
    assert np.mean(np.abs(points[:, 3]) > 0.5) == pytest.approx(0.2, abs=0.03)
    assert np.all((points[:, :3] * points[:, 3:]).sum(-1) > 0)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("gone.obj", None, "no mesh file"),
        ("shape.fbx", b"x", "cannot read meshes of type .fbx"),
        ("empty.stl", b"", "is empty"),
        ("broken.glb", b"glTF\x02\x00\x00\x00\xff\xff\xff\x7f{}", "cannot read mesh file"),
        ("broken.ply", b"ply\nformat ascii 1.0\nelement vertex 9\nend_header\n", "mesh file broken.ply"),
        ("points.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\n", "mesh file points.obj"),
        ("flat.obj", b"v 1 1 1\nv 1 1 1\nv 1 1 1\nf 1 2 3\n", "mesh file flat.obj"),
        ("nan.obj", b"v nan 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n", "mesh file nan.obj"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, name: str, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RackyardError) as caught:
        meshes.load(tmp_path / name)
    assert says in str(caught.value)


def test_a_large_file_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CUBE.export(tmp_path / "box.stl")
    monkeypatch.setattr(meshes, "MAX_BYTES", 100)
    with pytest.raises(RackyardError, match="too large"):
        meshes.load(tmp_path / "box.stl")
    monkeypatch.undo()
    monkeypatch.setattr(meshes, "MAX_FACES", 3)
    with pytest.raises(RackyardError, match="too many triangles"):
        meshes.load(tmp_path / "box.stl")


def test_an_unsupported_type_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "a.usd").write_bytes(b"x")
    with pytest.raises(UsageError):
        meshes.load(tmp_path / "a.usd")


def test_a_folder_without_meshes_says_how_to_get_some(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(RackyardError, match="rackyard shape3d meshes"):
            meshes.load_folder(folder)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(meshes.FORMATS), cut=st.floats(0, 1), noise=st.binary(min_size=1, max_size=24))
def test_damaged_files_never_crash_the_reader(tmp_path: Path, kind: str, cut: float, noise: bytes) -> None:
    exported = CUBE.export(file_type=kind)
    data = bytearray(exported.encode() if isinstance(exported, str) else exported)
    at = int(cut * len(data))
    data[at : at + len(noise)] = noise
    path = tmp_path / f"damaged.{kind}"
    path.write_bytes(data)
    try:
        mesh = meshes.load(path)
    except RackyardError:
        return
    assert np.isfinite(mesh.vertices).all()


@pytest.mark.corpus
def test_real_public_meshes_load_and_have_an_inside(corpus: Path) -> None:
    folder = corpus / "shape3d" / "meshes"
    cloud = uniform_points(4096).numpy().astype(np.float64)
    read = meshes.load_folder(folder)
    assert len(read) >= 20
    for mesh in read:
        assert np.abs(mesh.vertices).max() == pytest.approx(FIT)
        distances = meshes.signed_distance(mesh, cloud)
        assert np.isfinite(distances).all(), mesh.name
        assert 0 < np.mean(distances < 0) < 0.9, mesh.name
        points = meshes.surface_samples(mesh, 256)
        assert np.abs(meshes.signed_distance(mesh, points[:, :3].astype(np.float64))).max() < 1e-5, mesh.name
