"""Two-dimensional average pooling."""

import torch
import torch.nn as nn

batch_size = 16
channels = 64
height = 112
width = 112
kernel_size = 2
stride = 2


class Model(nn.Module):
    """Mean of each window."""

    def __init__(self, kernel_size: int, stride: int) -> None:
        """Set the window and its step."""
        super().__init__()
        self.pool = nn.AvgPool2d(kernel_size, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pool a tensor of shape (batch_size, channels, height, width)."""
        return self.pool(x)


def get_inputs() -> list[torch.Tensor]:
    """One batch of images."""
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs() -> list:
    """Window and step."""
    return [kernel_size, stride]
