"""The denoiser: a two-stream transformer in the shape of Hunyuan3D-DiT, which follows FLUX.1.

Latent and condition tokens go through double blocks (own weights each, joint attention), then both
together through single blocks (attention and MLP side by side). Module names are the ones used in the
published checkpoints, so that a state dict can be mapped one to one. Written anew from the papers
and the architecture's description; no code was copied.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rackyard.shape3d.config import DitConfig
from rackyard.shape3d.layers import Mlp, join_heads, split_heads


def time_features(t: Tensor, width: int = 256, scale: float = 1000.0) -> Tensor:
    """(B,) times in [0, 1] as (B, width) cosines and sines of geometric frequencies."""
    half = width // 2
    frequency = torch.exp(-math.log(10000.0) * torch.arange(half, device=t.device, dtype=torch.float32) / half)
    phase = scale * t[:, None].float() * frequency
    return torch.cat([phase.cos(), phase.sin()], -1)


class TimeIn(nn.Module):
    """Time features to the modulation vector."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.in_layer, self.out_layer = nn.Linear(256, hidden), nn.Linear(hidden, hidden)

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = self.out_layer(F.silu(self.in_layer(features)))
        return out


class RmsScale(nn.Module):
    """Root-mean-square norm over a head's channels; its weight is called `scale` in the checkpoints."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.scale.shape, self.scale, eps=1e-6)


class QkNorm(nn.Module):
    """Keeps attention logits bounded: queries and keys are normalised per head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query_norm, self.key_norm = RmsScale(width), RmsScale(width)


class Modulation(nn.Module):
    """Shift, scale and gate for one or two sub-blocks from the modulation vector (B, H)."""

    def __init__(self, hidden: int, blocks: int) -> None:
        super().__init__()
        self.lin = nn.Linear(hidden, 3 * blocks * hidden)
        self.blocks = blocks

    def forward(self, vec: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        parts = self.lin(F.silu(vec))[:, None].chunk(3 * self.blocks, -1)
        return [(parts[3 * i], parts[3 * i + 1], parts[3 * i + 2]) for i in range(self.blocks)]


class StreamAttention(nn.Module):
    """One stream's projections; the attention itself is joint and lives in the block."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.norm = QkNorm(hidden // heads)
        self.proj = nn.Linear(hidden, hidden)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        return self.norm.query_norm(q), self.norm.key_norm(k), v


def _plain_norm(hidden: int) -> nn.LayerNorm:
    return nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6)


class DoubleBlock(nn.Module):
    """Latents and condition with weights of their own and one attention over both."""

    def __init__(self, c: DitConfig) -> None:
        super().__init__()
        self.img_mod, self.txt_mod = Modulation(c.hidden, 2), Modulation(c.hidden, 2)
        self.img_norm1, self.img_norm2 = _plain_norm(c.hidden), _plain_norm(c.hidden)
        self.txt_norm1, self.txt_norm2 = _plain_norm(c.hidden), _plain_norm(c.hidden)
        self.img_attn, self.txt_attn = StreamAttention(c.hidden, c.heads), StreamAttention(c.hidden, c.heads)
        self.img_mlp, self.txt_mlp = Mlp(c.hidden, c.mlp_ratio), Mlp(c.hidden, c.mlp_ratio)

    def forward(self, img: Tensor, txt: Tensor, vec: Tensor) -> tuple[Tensor, Tensor]:
        img1, img2 = self.img_mod(vec)
        txt1, txt2 = self.txt_mod(vec)
        iq, ik, iv = self.img_attn.split((1 + img1[1]) * self.img_norm1(img) + img1[0])
        tq, tk, tv = self.txt_attn.split((1 + txt1[1]) * self.txt_norm1(txt) + txt1[0])
        q, k, v = torch.cat([tq, iq], 2), torch.cat([tk, ik], 2), torch.cat([tv, iv], 2)
        mixed = join_heads(F.scaled_dot_product_attention(q, k, v))
        count = txt.shape[1]
        img = img + img1[2] * self.img_attn.proj(mixed[:, count:])
        txt = txt + txt1[2] * self.txt_attn.proj(mixed[:, :count])
        img = img + img2[2] * self.img_mlp((1 + img2[1]) * self.img_norm2(img) + img2[0])
        txt = txt + txt2[2] * self.txt_mlp((1 + txt2[1]) * self.txt_norm2(txt) + txt2[0])
        return img, txt


class SingleBlock(nn.Module):
    """Both streams as one sequence; attention and MLP are computed side by side from one projection."""

    def __init__(self, c: DitConfig) -> None:
        super().__init__()
        self.heads, self.hidden = c.heads, c.hidden
        self.inner = int(c.hidden * c.mlp_ratio)
        self.linear1 = nn.Linear(c.hidden, 3 * c.hidden + self.inner)
        self.linear2 = nn.Linear(c.hidden + self.inner, c.hidden)
        self.norm = QkNorm(c.hidden // c.heads)
        self.pre_norm = _plain_norm(c.hidden)
        self.modulation = Modulation(c.hidden, 1)

    def forward(self, x: Tensor, vec: Tensor) -> Tensor:
        ((shift, scale, gate),) = self.modulation(vec)
        qkv, inner = self.linear1((1 + scale) * self.pre_norm(x) + shift).split([3 * self.hidden, self.inner], -1)
        q, k, v = (split_heads(part, self.heads) for part in qkv.chunk(3, -1))
        mixed = F.scaled_dot_product_attention(self.norm.query_norm(q), self.norm.key_norm(k), v)
        out: Tensor = x + gate * self.linear2(torch.cat([join_heads(mixed), F.gelu(inner, approximate="tanh")], -1))
        return out


class FinalLayer(nn.Module):
    """Modulated norm and projection back to latent channels."""

    def __init__(self, hidden: int, channels: int) -> None:
        super().__init__()
        self.norm_final = _plain_norm(hidden)
        self.linear = nn.Linear(hidden, channels)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 2 * hidden))

    def forward(self, x: Tensor, vec: Tensor) -> Tensor:
        shift, scale = self.adaLN_modulation(vec)[:, None].chunk(2, -1)
        out: Tensor = self.linear((1 + scale) * self.norm_final(x) + shift)
        return out


class ShapeDit(nn.Module):
    """Predicts the velocity of latents (B, T, C) at times (B,) under condition tokens (B, N, W)."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.config = c = config
        self.latent_in, self.cond_in = nn.Linear(c.latent_channels, c.hidden), nn.Linear(c.cond_width, c.hidden)
        self.time_in = TimeIn(c.hidden)
        self.pos_embed = nn.Parameter(torch.randn(c.latent_tokens, c.hidden) * 0.5) if c.learned_positions else None
        self.double_blocks = nn.ModuleList(DoubleBlock(c) for _ in range(c.double_layers))
        self.single_blocks = nn.ModuleList(SingleBlock(c) for _ in range(c.single_layers))
        self.final_layer = FinalLayer(c.hidden, c.latent_channels)
        # Zero at the start: every block is the identity and the first prediction is the mean velocity, 0.
        for module in self.modules():
            if isinstance(module, Modulation):
                nn.init.zeros_(module.lin.weight)
                nn.init.zeros_(module.lin.bias)
        nn.init.zeros_(self.final_layer.linear.weight)
        nn.init.zeros_(self.final_layer.linear.bias)

    def forward(self, x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        img, txt = self.latent_in(x), self.cond_in(condition)
        if self.pos_embed is not None:
            img = img + self.pos_embed
        vec = self.time_in(time_features(t).to(x.dtype))
        for block in self.double_blocks:
            img, txt = block(img, txt, vec)
        both = torch.cat([txt, img], 1)
        for block in self.single_blocks:
            both = block(both, vec)
        out: Tensor = self.final_layer(both[:, txt.shape[1] :], vec)
        return out


def null_condition(config: DitConfig, batch: int) -> Tensor:
    """The condition that means "none" (B, N, W): zeros, as Hunyuan3D-2 uses for guidance."""
    return torch.zeros(batch, config.cond_tokens, config.cond_width)
