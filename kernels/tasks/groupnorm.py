"""Group normalisation of images."""

import torch
import torch.nn as nn

batch_size = 16
channels = 64
height = 32
width = 32
groups = 8


class Model(nn.Module):
    """Normalisation over the channels of a group and all positions."""

    def __init__(self, groups: int, channels: int) -> None:
        """Create the affine parameters."""
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise a tensor of shape (batch_size, channels, height, width)."""
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    """One batch of images."""
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs() -> list:
    """Groups and channels."""
    return [groups, channels]
