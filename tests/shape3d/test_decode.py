"""From field to mesh: the right size, closed, facing outwards, the same by both ways of asking."""

from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from torch import Tensor

from rackyard.errors import RackyardError, UsageError
from rackyard.shape3d.decode import banded_field, dense_field, surface, write_glb
from rackyard.shape3d.families import shapes_of
from rackyard.shape3d.sdf import distance


def ball(points: Tensor, radius: float = 0.8) -> Tensor:
    return (points.norm(dim=-1) - radius) / 0.1


@pytest.mark.parametrize("resolution", [16, 33, 64])
def test_the_mesh_has_the_size_of_the_field(resolution: int) -> None:
    # Dividing vertices by R + 1 instead of R would shrink a ball of .8 to .75 at R = 16, and move it.
    mesh = surface(dense_field(ball, resolution))
    radii = np.linalg.norm(mesh.vertices, axis=-1)
    assert radii.max() == pytest.approx(0.8, abs=0.02 * 16 / resolution)
    assert radii.min() == pytest.approx(0.8, abs=0.02 * 16 / resolution)
    assert np.allclose(mesh.bounds.mean(0), 0, atol=1e-6)
    assert mesh.volume == pytest.approx(4 / 3 * np.pi * 0.8**3, rel=0.05)


def test_every_family_gives_a_closed_mesh_that_survives_a_file(tmp_path: Path) -> None:
    for seed in range(9):
        shape = shapes_of([seed])
        mesh = surface(dense_field(lambda p, s=shape: distance(s, p[None])[0] / 0.1, 32))  # type: ignore[misc]
        read = trimesh.load_mesh(write_glb(mesh, tmp_path / "sub" / f"{seed}.glb"))
        assert mesh.is_watertight
        assert read.is_watertight
        assert read.volume == pytest.approx(mesh.volume, rel=1e-4)
        assert read.volume > 0


def test_the_band_gives_the_same_mesh_for_fewer_queries() -> None:
    for seed in range(9):
        shape = shapes_of([seed])

        def query(points: Tensor, s=shape) -> Tensor:  # type: ignore[no-untyped-def]  # noqa: ANN001
            return (distance(s, points[None])[0] / 0.1).clamp(-1, 1)

        dense, banded = dense_field(query, 64), banded_field(query, 64)
        one, two = surface(dense), surface(banded)
        assert np.allclose(one.vertices, two.vertices, atol=1e-6), seed
        assert np.array_equal(one.faces, two.faces), seed
        assert banded.queries < 0.7 * dense.queries


def test_a_shape_that_leaves_the_cube_is_closed_at_its_border() -> None:
    mesh = surface(dense_field(lambda p: ball(p, 1.2), 24))
    assert mesh.is_watertight
    assert np.abs(mesh.vertices).max() <= 1


def test_nodes_exactly_on_the_surface_do_not_open_the_mesh() -> None:
    box = dense_field(lambda p: (p.abs().amax(-1) - 0.5) / 0.1, 16)  # faces on node planes
    assert (box.values == 0).any()
    assert surface(box).is_watertight


def test_a_field_without_inside_is_an_error() -> None:
    with pytest.raises(RackyardError, match="no inside"):
        surface(dense_field(lambda p: torch.ones(len(p)), 8))
    with pytest.raises(UsageError, match="multiple"):
        banded_field(ball, 30, stride=4)
    with pytest.raises(UsageError, match="too small"):
        dense_field(ball, 1)
