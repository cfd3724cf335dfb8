"""Convolution, batch normalisation with stored statistics, and rectifier."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8
in_channels = 32
out_channels = 64
height = 56
width = 56
kernel_size = 3


class Model(nn.Module):
    """relu(norm(conv(x)))."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        """Create filters and statistics."""
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=1)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map a tensor of shape (batch_size, in_channels, height, width)."""
        y = self.conv(x)
        y = F.batch_norm(y, self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias, False)
        return F.relu(y)


def get_inputs() -> list[torch.Tensor]:
    """One batch of images."""
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs() -> list:
    """Channels in and out, and the width of a filter."""
    return [in_channels, out_channels, kernel_size]
