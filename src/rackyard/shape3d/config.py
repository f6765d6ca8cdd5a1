"""Sizes of the models. The code is the same for the tiny and the full-size family; only these numbers change.

Sizes of the public families are from shared/facts/shape3d.md, §1 (read from the repositories'
configuration files at the commits named there).
"""

from dataclasses import dataclass

from rackyard.errors import UsageError


@dataclass(frozen=True, slots=True)
class VaeConfig:
    """A vecset autoencoder: `tokens` latent vectors of `channels` numbers each."""

    tokens: int
    channels: int
    width: int
    heads: int
    encoder_layers: int  # self-attention blocks after the cross-attention to the surface
    decoder_layers: int
    frequencies: int = 6  # Fourier features per coordinate
    query_mlp: int = 2  # MLP ratio of the block that answers queries: it runs once a query
    truncation: float = 0.1  # distances are learned up to this far from the surface


@dataclass(frozen=True, slots=True)
class ConditionConfig:
    """What the denoiser is conditioned on: a small render, cut into patches that become tokens."""

    image: int  # side of the square render, pixels
    channels: int  # normal (3), depth (1), mask (1)
    patch: int
    width: int
    layers: int
    heads: int

    @property
    def tokens(self) -> int:
        return (self.image // self.patch) ** 2


@dataclass(frozen=True, slots=True)
class DitConfig:
    """A flow-matching transformer shaped like Hunyuan3D-DiT: double-stream blocks, then single-stream blocks."""

    latent_tokens: int
    latent_channels: int
    cond_tokens: int
    cond_width: int
    hidden: int
    heads: int
    double_layers: int
    single_layers: int
    mlp_ratio: float = 4.0
    learned_positions: bool = False  # for ordered latent tokens; Hunyuan3D-2 has none


@dataclass(frozen=True, slots=True)
class ShapeConfig:
    """One model family. `condition` is None where the conditioner is somebody else's (DINOv2)."""

    name: str
    vae: VaeConfig
    dit: DitConfig
    condition: ConditionConfig | None


def _tiny(name: str, width: int, hidden: int, double: int, single: int) -> ShapeConfig:
    return ShapeConfig(
        name=name,
        vae=VaeConfig(tokens=32, channels=8, width=width, heads=4, encoder_layers=1, decoder_layers=2),
        dit=DitConfig(32, 8, 16, hidden, hidden, 4, double, single, learned_positions=True),
        condition=ConditionConfig(image=32, channels=5, patch=8, width=hidden, layers=2, heads=4),
    )


# Hunyuan3D-2.0: 3072 tokens of 64; 16 double and 32 single blocks; DINOv2-giant at 518 pixels gives 1370 x 1536.
_HUNYUAN3D_2 = ShapeConfig(
    name="hunyuan3d-2",
    vae=VaeConfig(3072, 64, 1024, 16, 8, 16, frequencies=8, query_mlp=4),
    dit=DitConfig(3072, 64, 1370, 1536, 1024, 16, 16, 32),
    condition=None,
)
# Hunyuan3D-2mini: 512 tokens, 8 double and 16 single blocks, otherwise the same.
_HUNYUAN3D_2MINI = ShapeConfig(
    name="hunyuan3d-2mini",
    vae=VaeConfig(512, 64, 1024, 16, 8, 16, frequencies=8, query_mlp=4),
    dit=DitConfig(512, 64, 1370, 1536, 1024, 16, 8, 16),
    condition=None,
)

CONFIGS = {
    c.name: c
    for c in (
        _tiny("tiny", 96, 96, 2, 4),
        _tiny("micro", 32, 32, 1, 1),  # for tests: no weights are kept for it
        _HUNYUAN3D_2MINI,
        _HUNYUAN3D_2,
    )
}


def named(name: str) -> ShapeConfig:
    """The configuration of that name; UsageError for an unknown one."""
    if name not in CONFIGS:
        raise UsageError(f"no model configuration named {name!r}", fix=f"use one of {', '.join(sorted(CONFIGS))}")
    return CONFIGS[name]
