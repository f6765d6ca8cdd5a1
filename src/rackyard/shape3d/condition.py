"""The conditioner: a small render of the wanted shape becomes tokens for the denoiser.

The big families use DINOv2 on a photograph. Here it is a 32 x 32 normal and depth render, because
there are no public weights in the tree and a tiny network has to learn to read it from nothing.
"""

import numpy as np
import torch
from torch import Tensor, nn

from rackyard.shape3d.config import ConditionConfig
from rackyard.shape3d.layers import SelfBlock
from rackyard.shape3d.render import Maps, trace
from rackyard.shape3d.sdf import Shapes


def images_of(maps: list[Maps]) -> Tensor:
    """(N, 5, S, S) conditioner input of rendered maps."""
    return torch.from_numpy(np.stack([m.channels() for m in maps]))


def condition_images(shapes: Shapes, size: int = 32) -> Tensor:
    """(N, 5, size, size) conditioner input of procedural shapes."""
    return images_of(trace(shapes, size))


class Conditioner(nn.Module):
    """Images (B, 5, S, S) to tokens (B, N, W)."""

    def __init__(self, config: ConditionConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_in = nn.Conv2d(config.channels, config.width, config.patch, config.patch)
        self.pos_embed = nn.Parameter(torch.randn(config.tokens, config.width) * 0.1)
        self.blocks = nn.ModuleList(SelfBlock(config.width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patch_in(images).flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        tokens: Tensor = self.norm(x)
        return tokens
