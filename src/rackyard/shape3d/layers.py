"""The few layers shared by the autoencoder, the conditioner and the denoiser."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def fourier(points: Tensor, frequencies: int) -> Tensor:
    """(…, 3) coordinates in [-1, 1] as (…, 3 + 6 * frequencies) features: themselves, sines, cosines."""
    bands = math.pi * 2.0 ** torch.arange(frequencies, device=points.device, dtype=points.dtype)
    phases = (points[..., None] * bands).flatten(-2)
    return torch.cat([points, phases.sin(), phases.cos()], -1)


def fourier_width(frequencies: int) -> int:
    """Features that `fourier` makes of one point."""
    return 3 + 6 * frequencies


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, N, W) to (B, heads, N, W / heads)."""
    parts: Tensor = x.unflatten(-1, (heads, -1))
    return parts.transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(B, heads, N, D) to (B, N, heads * D)."""
    return x.transpose(1, 2).flatten(2)


class Mlp(nn.Sequential):
    """Two linear layers with a GELU between them."""

    def __init__(self, width: int, ratio: float) -> None:
        inner = int(width * ratio)
        super().__init__(nn.Linear(width, inner), nn.GELU(approximate="tanh"), nn.Linear(inner, width))


class SelfBlock(nn.Module):
    """Pre-norm self-attention with normalised queries and keys, then an MLP."""

    def __init__(self, width: int, heads: int, ratio: float = 4.0) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.q_norm, self.k_norm = nn.LayerNorm(width // heads), nn.LayerNorm(width // heads)
        self.mlp = Mlp(width, ratio)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(join_heads(F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)))
        mixed: Tensor = x + self.mlp(self.norm2(x))
        return mixed


KeyValue = tuple[Tensor, Tensor]


class CrossBlock(nn.Module):
    """Pre-norm cross-attention, then an MLP. Keys and values can be computed once and used for many queries."""

    def __init__(self, width: int, heads: int, ratio: float = 4.0) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2, self.norm_context = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.q_norm, self.k_norm = nn.LayerNorm(width // heads), nn.LayerNorm(width // heads)
        self.mlp = Mlp(width, ratio)

    def prepare(self, context: Tensor) -> KeyValue:
        """Keys and values (B, heads, N, D) of context (B, N, W)."""
        k, v = (split_heads(part, self.heads) for part in self.kv(self.norm_context(context)).chunk(2, -1))
        return self.k_norm(k), v

    def forward(self, x: Tensor, context: KeyValue) -> Tensor:
        q = self.q_norm(split_heads(self.q(self.norm1(x)), self.heads))
        x = x + self.out(join_heads(F.scaled_dot_product_attention(q, *context)))
        mixed: Tensor = x + self.mlp(self.norm2(x))
        return mixed
