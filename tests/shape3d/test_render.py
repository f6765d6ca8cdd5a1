"""Renders: the two renderers agree, and the picture is the right way up."""

import numpy as np
import torch

from rackyard.shape3d.condition import condition_images
from rackyard.shape3d.decode import dense_field, surface
from rackyard.shape3d.families import shapes_of
from rackyard.shape3d.render import CAMERA, rasterise, shade, trace
from rackyard.shape3d.sdf import Kind, Part, distance, pack


def test_the_camera_is_a_rotation() -> None:
    axes = CAMERA.axes()
    assert np.allclose(axes @ axes.T, np.eye(3), atol=1e-6)
    assert np.linalg.det(axes) > 0


def test_both_renderers_see_the_same() -> None:
    shapes = shapes_of(range(9))
    for i, traced in enumerate(trace(shapes, 32)):
        one = shapes[i : i + 1]
        mesh = surface(dense_field(lambda p, s=one: distance(s, p[None])[0] / 0.1, 40))  # type: ignore[misc]
        drawn = rasterise(np.asarray(mesh.vertices, dtype=np.float32), np.asarray(mesh.faces), 32)
        both = drawn.mask * traced.mask > 0
        assert both.sum() / np.maximum(drawn.mask, traced.mask).sum() > 0.85
        assert np.abs(drawn.depth - traced.depth)[both].mean() < 0.02
        assert (drawn.normal * traced.normal).sum(-1)[both].mean() > 0.9


def test_up_is_up() -> None:
    (maps,) = trace(pack([[Part(Kind.BOX, (0, 0.6, 0), (0.2, 0.2, 0.2))]]), 32)
    rows = np.flatnonzero(maps.mask.any(1))
    assert rows.max() < 16
    picture = shade(maps)
    assert picture.shape == (32, 32, 3)
    assert (picture[-1] == 250).all()


def test_the_nearer_face_wins() -> None:
    right, up, toward = CAMERA.axes()
    triangle = np.stack([-right - up, right - up, up])
    vertices = np.concatenate([triangle - 0.3 * toward, triangle + 0.4 * toward]).astype(np.float32)
    for faces in ([[0, 1, 2], [3, 4, 5]], [[3, 4, 5], [0, 1, 2]]):
        maps = rasterise(vertices, np.array(faces), 16)
        assert np.allclose(maps.depth[maps.mask > 0], 0.4, atol=1e-5)


def test_conditioner_input() -> None:
    images = condition_images(shapes_of([0, 1]))
    assert images.shape == (2, 5, 32, 32)
    assert torch.isfinite(images).all()
    assert set(images[:, 4].unique().tolist()) == {0.0, 1.0}
