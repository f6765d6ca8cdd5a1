"""Flow matching: both directions of time, no wasted step, guidance."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rackyard.errors import UsageError
from rackyard.shape3d.flow import Path, euler, guided, logit_normal

DATA, NOISE = torch.randn(2, 4, 3), torch.randn(2, 4, 3)
both_ways = pytest.mark.parametrize("path", [Path(0), Path(1)], ids=["data at 0", "data at 1"])


@both_ways
def test_the_ends_of_the_path(path: Path) -> None:
    at_data = torch.full((2,), float(path.data_at))
    assert torch.equal(path.mix(DATA, NOISE, at_data), DATA)
    assert torch.equal(path.mix(DATA, NOISE, 1 - at_data), NOISE)
    times = path.times(10)
    assert times[0] == 1 - path.data_at
    assert times[-1] == path.data_at


@both_ways
def test_the_velocity_is_the_derivative(path: Path) -> None:
    t, step = torch.full((2,), 0.4), 1e-2
    slope = (path.mix(DATA, NOISE, t + step) - path.mix(DATA, NOISE, t)) / step
    assert torch.allclose(slope, path.velocity(DATA, NOISE), atol=1e-4)
    x = path.mix(DATA, NOISE, t)
    assert torch.allclose(path.to_data(x, path.velocity(DATA, NOISE), 0.4), DATA, atol=1e-5)


@both_ways
@pytest.mark.parametrize("steps", [1, 2, 7, 50])
def test_the_sampler_reaches_the_data_and_every_evaluation_counts(path: Path, steps: int) -> None:
    asked: list[float] = []

    def exact(x: Tensor, t: Tensor) -> Tensor:
        asked.append(float(t[0]))
        return path.velocity(DATA, NOISE)

    states = list(euler(path, exact, NOISE, steps))
    assert torch.allclose(states[-1], DATA, atol=1e-5)
    assert len(states) == len(asked) == steps
    assert len(set(asked)) == steps
    assert path.data_at not in asked  # an evaluation at the data end could move nothing


@given(steps=st.integers(1, 200), shift=st.floats(0.2, 8), data_at=st.sampled_from([0, 1]))
def test_times_move_one_way(steps: int, shift: float, data_at: int) -> None:
    path = Path(data_at)
    times = path.times(steps, shift)
    assert len(times) == steps + 1
    assert all((b - a) * path.sign > 0 for a, b in pairwise(times))


def test_guidance() -> None:
    def one(x: Tensor, t: Tensor) -> Tensor:
        return torch.ones_like(x)

    def zero(x: Tensor, t: Tensor) -> Tensor:
        return torch.zeros_like(x)

    assert guided(one, zero, 1.0) is one
    assert torch.equal(guided(one, zero, 3.0)(DATA, torch.zeros(2)), 3 * torch.ones_like(DATA))


def test_training_times_are_inside_and_centred() -> None:
    t = logit_normal(4000, torch.Generator().manual_seed(0))
    assert t.min() > 0
    assert t.max() < 1
    assert float(t.mean()) == pytest.approx(0.5, abs=0.02)


def test_impossible_requests_are_usage_errors() -> None:
    with pytest.raises(UsageError):
        Path().times(0)
    with pytest.raises(UsageError):
        Path(2)
