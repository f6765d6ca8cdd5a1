"""Signed distances: known values, signs, the unit cube, seeds that never meet."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rackyard.shape3d.families import FAMILIES, HELD_OUT, family_of, held_out_seeds, parts_of, shapes_of, train_seeds
from rackyard.shape3d.samples import iou, make_samples, uniform_points
from rackyard.shape3d.sdf import FIT, Kind, Part, distance, normals, pack

seeds = st.integers(min_value=0, max_value=2 * HELD_OUT)


@pytest.mark.parametrize(
    ("part", "point", "expected"),
    [
        (Part(Kind.BOX, (0, 0, 0), (0.5, 0.3, 0.2)), (0.5, 0.3, 0.5), 0.3),
        (Part(Kind.BOX, (0, 0, 0), (0.5, 0.3, 0.2)), (0.0, 0.0, 0.0), -0.2),
        (Part(Kind.ELLIPSOID, (0.1, 0, 0), (0.4, 0.4, 0.4)), (0.1, 0.9, 0.0), 0.5),
        (Part(Kind.ELLIPSOID, (0.1, 0, 0), (0.4, 0.5, 0.6)), (0.1, 0.0, 0.0), -0.4),
        (Part(Kind.CYLINDER, (0, 0, 0), (0.3, 0.5, 0)), (0.0, 0.9, 0.0), 0.4),
        (Part(Kind.CYLINDER, (0, 0, 0), (0.3, 0.5, 0), axis=0), (0.9, 0.0, 0.0), 0.4),
        (Part(Kind.CYLINDER, (0, 0, 0), (0.3, 0.5, 0), axis=2), (0.0, 0.5, 0.0), 0.2),
        (Part(Kind.CONE, (0, 0, 0), (0.4, 0.5, 0.4)), (0.7, 0.0, 0.0), 0.3),
        (Part(Kind.CONE, (0, 0, 0), (0.6, 0.5, 0.2)), (0.0, -0.7, 0.0), 0.2),
        (Part(Kind.TORUS, (0, 0, 0), (0.5, 0.1, 0)), (0.5, 0.3, 0.0), 0.2),
        (Part(Kind.TORUS, (0, 0, 0), (0.5, 0.1, 0), axis=2), (0.0, 0.5, 0.0), -0.1),
    ],
)
def test_known_distances(part: Part, point: tuple[float, float, float], expected: float) -> None:
    found = distance(pack([[part]]), torch.tensor([[point]]))
    assert float(found) == pytest.approx(expected, abs=1e-5)


def test_a_cut_takes_away_what_a_part_added() -> None:
    solid = Part(Kind.ELLIPSOID, (0, 0, 0), (0.5, 0.5, 0.5))
    hole = Part(Kind.ELLIPSOID, (0, 0, 0), (0.3, 0.3, 0.3), cut=True)
    points = torch.tensor([[[0.0, 0.0, 0.0], [0.4, 0.0, 0.0], [0.6, 0.0, 0.0]]])
    assert distance(pack([[solid, hole]]), points)[0].tolist() == pytest.approx([0.3, -0.1, 0.1], abs=1e-5)


def test_a_shape_does_not_depend_on_its_neighbours_in_the_batch() -> None:
    cloud = uniform_points(256)
    together = distance(shapes_of(range(9)), cloud.expand(9, -1, -1))
    alone = torch.cat([distance(shapes_of([seed]), cloud[None]) for seed in range(9)])
    assert torch.equal(together, alone)


@given(seed=seeds)
def test_every_shape_fits_the_cube_and_has_no_thin_parts(seed: int) -> None:
    parts = [p for p in parts_of(seed) if not p.cut]
    reach = [max(abs(c) + e for p in parts for c, e in [(p.centre[i], p.extent()[i])]) for i in range(3)]
    assert max(reach) == pytest.approx(FIT)
    # 2 * .04: the thinnest wing of the longest plane; a nose cone's tip is a point by design.
    assert min(min(p.extent()) for p in parts) >= 0.04


@given(seed=seeds)
def test_a_seed_is_one_shape(seed: int) -> None:
    assert parts_of(seed) == parts_of(seed)
    assert family_of(seed) in FAMILIES


def test_training_and_held_out_seeds_never_meet() -> None:
    assert train_seeds(HELD_OUT)[-1] < held_out_seeds(1)[0]
    with pytest.raises(ValueError, match="overlap"):
        train_seeds(HELD_OUT + 1)


def test_samples_lie_where_they_say() -> None:
    data = make_samples(range(18), surface=64, queries=128)
    shapes = shapes_of(range(18))
    on_surface = distance(shapes, data.surface[..., :3]).abs()
    assert on_surface.median() < 1e-4
    assert (on_surface < 0.02).float().mean() > 0.99
    assert torch.equal(data.distances < 0, torch.arange(128).expand(18, -1) < 64)
    assert torch.allclose(data.surface[..., 3:].norm(dim=-1), torch.ones(18, 64), atol=1e-4)
    again = make_samples(range(18), surface=64, queries=128)
    assert torch.equal(data.points, again.points)


def test_normals_point_outwards() -> None:
    ball = pack([[Part(Kind.ELLIPSOID, (0, 0, 0), (0.5, 0.5, 0.5))]])
    point = torch.tensor([[[0.5 / math.sqrt(3)] * 3]])
    assert torch.allclose(normals(ball, point), torch.full((1, 1, 3), 1 / math.sqrt(3)), atol=1e-3)


def test_iou_of_known_fields() -> None:
    one = torch.tensor([-1.0, -1.0, 1.0, 1.0])
    assert iou(one, one) == 1
    assert iou(one, -one) == 0
    assert iou(one, torch.tensor([-1.0, 1.0, 1.0, 1.0])) == 0.5
    assert iou(one.abs(), one.abs()) == 1  # both empty
