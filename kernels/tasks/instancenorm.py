"""Instance normalisation of images."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
channels = 64
height = 32
width = 32


class Model(nn.Module):
    """Normalisation over all positions of one channel of one image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise a tensor of shape (batch_size, channels, height, width)."""
        return F.instance_norm(x)


def get_inputs() -> list[torch.Tensor]:
    """One batch of images."""
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
