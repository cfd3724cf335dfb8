"""One-dimensional convolution."""

import torch
import torch.nn as nn

batch_size = 16
in_channels = 32
out_channels = 64
length = 2048
kernel_size = 3


class Model(nn.Module):
    """Cross-correlation with learnt filters, and a bias."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        """Create the filters."""
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve a tensor of shape (batch_size, in_channels, length)."""
        return self.conv(x)


def get_inputs() -> list[torch.Tensor]:
    """One batch of signals."""
    return [torch.randn(batch_size, in_channels, length)]


def get_init_inputs() -> list:
    """Channels in and out, and the width of a filter."""
    return [in_channels, out_channels, kernel_size]
