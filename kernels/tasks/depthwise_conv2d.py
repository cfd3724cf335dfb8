"""Two-dimensional convolution of every channel by a filter of its own."""

import torch
import torch.nn as nn

batch_size = 8
channels = 64
height = 56
width = 56
kernel_size = 3


class Model(nn.Module):
    """Cross-correlation per channel, and a bias."""

    def __init__(self, channels: int, kernel_size: int) -> None:
        """Create the filters."""
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size, padding=1, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve a tensor of shape (batch_size, channels, height, width)."""
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    """One batch of images."""
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs() -> list:
    """Channels, and the width of a filter."""
    return [channels, kernel_size]
