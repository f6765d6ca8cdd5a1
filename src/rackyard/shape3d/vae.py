"""The vecset autoencoder: a surface becomes a short list of tokens, tokens become a distance field.

The idea is from 3DShape2VecSet (Zhang et al. 2023) as used by Hunyuan3D-2: queries attend to surface
points, a KL bottleneck, self-attention, and a last cross-attention that answers any point in space.
Here the encoder's queries are fixed anchors spread over the cube, so that token i always looks after
the same region; the tiny models learn much faster with ordered tokens (shared/facts/shape3d.md, §5).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rackyard.shape3d.config import VaeConfig
from rackyard.shape3d.layers import CrossBlock, KeyValue, SelfBlock, fourier, fourier_width


def anchors(count: int, half: float = 0.8, seed: int = 0) -> Tensor:
    """(count, 3) points spread over the cube [-half, half]^3 by farthest-point sampling."""
    cloud = (torch.rand((max(2048, 4 * count), 3), generator=torch.Generator().manual_seed(seed)) * 2 - 1) * half
    chosen = [0]
    far = (cloud - cloud[0]).square().sum(-1)
    while len(chosen) < count:
        chosen.append(int(far.argmax()))
        far = torch.minimum(far, (cloud - cloud[chosen[-1]]).square().sum(-1))
    return cloud[chosen]


class Encoder(nn.Module):
    """Surface points with normals (B, S, 6) to the mean and log variance of tokens, (B, T, C) each."""

    anchors: Tensor

    def __init__(self, c: VaeConfig) -> None:
        super().__init__()
        self.frequencies = c.frequencies
        place = torch.zeros(c.tokens, 3) if torch.empty(0).is_meta else anchors(c.tokens)
        self.register_buffer("anchors", place)
        self.query_in = nn.Linear(fourier_width(c.frequencies), c.width)
        self.point_in = nn.Linear(fourier_width(c.frequencies) + 3, c.width)
        self.cross = CrossBlock(c.width, c.heads)
        self.blocks = nn.ModuleList(SelfBlock(c.width, c.heads) for _ in range(c.encoder_layers))
        self.norm, self.out = nn.LayerNorm(c.width), nn.Linear(c.width, 2 * c.channels)

    def forward(self, surface: Tensor) -> tuple[Tensor, Tensor]:
        points = torch.cat([fourier(surface[..., :3], self.frequencies), surface[..., 3:]], -1)
        query = self.query_in(fourier(self.anchors, self.frequencies)).expand(len(surface), -1, -1)
        x = self.cross(query, self.cross.prepare(self.point_in(points)))
        for block in self.blocks:
            x = block(x)
        mean, log_var = self.out(self.norm(x)).chunk(2, -1)
        return mean, log_var.clamp(-20, 5)


class Decoder(nn.Module):
    """Tokens (B, T, C) to a field: `prepare` once a shape, then `query` any number of points."""

    anchors: Tensor

    def __init__(self, c: VaeConfig) -> None:
        super().__init__()
        self.frequencies = c.frequencies
        place = torch.zeros(c.tokens, 3) if torch.empty(0).is_meta else anchors(c.tokens)
        self.register_buffer("anchors", place)
        self.latent_in = nn.Linear(c.channels, c.width)
        self.place_in = nn.Linear(fourier_width(c.frequencies), c.width)
        self.blocks = nn.ModuleList(SelfBlock(c.width, c.heads) for _ in range(c.decoder_layers))
        self.query_in = nn.Linear(fourier_width(c.frequencies), c.width)
        self.cross = CrossBlock(c.width, c.heads, c.query_mlp)
        self.norm, self.out = nn.LayerNorm(c.width), nn.Linear(c.width, 1)

    def prepare(self, latents: Tensor) -> KeyValue:
        """Everything that does not depend on the query points; compute it once, not once a chunk."""
        x = self.latent_in(latents) + self.place_in(fourier(self.anchors, self.frequencies))
        for block in self.blocks:
            x = block(x)
        return self.cross.prepare(x)

    def query(self, points: Tensor, prepared: KeyValue) -> Tensor:
        """The field (B, Q) at points (B, Q, 3): distance / truncation, about -1…1, negative inside."""
        x = self.cross(self.query_in(fourier(points, self.frequencies)), prepared)
        field: Tensor = self.out(self.norm(x)).squeeze(-1)
        return field


class VecsetVae(nn.Module):
    """Encoder and decoder, with the scale that makes latents about unit variance for the denoiser."""

    latent_mean: Tensor
    latent_std: Tensor

    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.decoder = Encoder(config), Decoder(config)
        # Per token and channel, because ordered tokens have their own statistics.
        self.register_buffer("latent_mean", torch.zeros(config.tokens, config.channels))
        self.register_buffer("latent_std", torch.ones(config.tokens, config.channels))

    def encode(self, surface: Tensor) -> Tensor:
        """Whitened latents (B, T, C) of surfaces (B, S, 6): the mean, no noise."""
        mean, _ = self.encoder(surface)
        white: Tensor = (mean - self.latent_mean) / self.latent_std
        return white

    def prepare(self, latents: Tensor) -> KeyValue:
        """Whitened latents (B, T, C) made ready for `query`."""
        prepared: KeyValue = self.decoder.prepare(latents * self.latent_std + self.latent_mean)
        return prepared

    def query(self, points: Tensor, prepared: KeyValue) -> Tensor:
        """The field (B, Q) at points (B, Q, 3); negative inside."""
        field: Tensor = self.decoder.query(points, prepared)
        return field

    def loss(self, surface: Tensor, points: Tensor, distances: Tensor, kl_weight: float = 1e-4) -> Tensor:
        """Reconstruction of the truncated distance plus a little KL, for one training step."""
        mean, log_var = self.encoder(surface)
        noise = torch.randn_like(mean)
        field = self.decoder.query(points, self.decoder.prepare(mean + noise * (0.5 * log_var).exp()))
        target = (distances / self.config.truncation).clamp(-1, 1)
        kl = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).mean()
        total: Tensor = F.smooth_l1_loss(field, target, beta=0.2) + kl_weight * kl
        return total
