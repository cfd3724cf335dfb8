"""Mean over all positions of every channel."""

import torch
import torch.nn as nn

batch_size = 16
channels = 256
height = 28
width = 28


class Model(nn.Module):
    """The mean along the last two dimensions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Reduce a tensor of shape (batch_size, channels, height, width) to (batch_size, channels)."""
        return x.mean(dim=(2, 3))


def get_inputs() -> list[torch.Tensor]:
    """One batch of images."""
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
