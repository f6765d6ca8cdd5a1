"""Flow matching: the straight path between noise and data, its loss, and the Euler sampler.

The two families in use disagree about the direction of time: Hunyuan3D puts data at t = 1, FLUX,
TRELLIS and torchtitan put it at t = 0. `Path` carries the direction, so that no sign is left to memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from rackyard.errors import UsageError

# (x (B, T, C), t (B,)) -> velocity dx/dt (B, T, C)
Velocity = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Path:
    """Points x_t on the line between noise and data; `data_at` is the time of the data end, 0 or 1."""

    data_at: int = 1  # Hunyuan3D's direction

    def __post_init__(self) -> None:
        if self.data_at not in (0, 1):
            raise UsageError(f"data_at is {self.data_at}; a path has its data at time 0 or 1")

    @property
    def sign(self) -> int:
        """+1 when sampling raises t, -1 when it lowers it."""
        return 1 if self.data_at == 1 else -1

    def mix(self, data: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """x_t (B, …) for times t (B,)."""
        share = t if self.data_at == 1 else 1 - t
        share = share.view(-1, *[1] * (data.dim() - 1))
        return share * data + (1 - share) * noise

    def velocity(self, data: Tensor, noise: Tensor) -> Tensor:
        """dx_t/dt, the same for every t: what the denoiser must predict."""
        return self.sign * (data - noise)

    def to_data(self, x: Tensor, velocity: Tensor, t: float) -> Tensor:
        """The data end of the line through x_t with this velocity: the preview at time t."""
        return x + (self.data_at - t) * velocity

    def times(self, steps: int, shift: float = 1.0) -> list[float]:
        """`steps + 1` times from the noise end to the data end, so that every Euler step moves.

        A grid of `steps` times with the end appended again, as in Hunyuan3D-2's scheduler, spends its
        last evaluation on a step of length zero. `shift` > 1 puts more steps near the noise (SD3).
        """
        if steps < 1:
            raise UsageError(f"{steps} sampling steps; at least one is needed")
        noise_share = [1 - i / steps for i in range(steps + 1)]
        shifted = [shift * s / (1 + (shift - 1) * s) for s in noise_share]
        return [1 - s if self.data_at == 1 else s for s in shifted]


def logit_normal(count: int, generator: torch.Generator, *, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """(count,) training times in (0, 1), densest in the middle of the path (SD3, Esser et al. 2024)."""
    return torch.sigmoid(mean + std * torch.randn(count, generator=generator))


def guided(conditional: Velocity, unconditional: Velocity, scale: float) -> Velocity:
    """Classifier-free guidance: away from the unconditional velocity by `scale`; 1 is no guidance."""
    if scale == 1.0:
        return conditional

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        base = unconditional(x, t)
        return base + scale * (conditional(x, t) - base)

    return velocity


def euler(path: Path, velocity: Velocity, noise: Tensor, steps: int, shift: float = 1.0) -> Iterator[Tensor]:
    """x (B, T, C) after each of `steps` Euler steps from noise to data; the last one is the sample.

    A generator, so that a server can report progress and stop between steps.
    """
    x, times = noise, path.times(steps, shift)
    for now, then in pairwise(times):
        x = x + (then - now) * velocity(x, torch.full((len(x),), now, device=x.device, dtype=x.dtype))
        yield x
