"""One-dimensional max-pooling."""

import torch
import torch.nn as nn

batch_size = 32
channels = 64
length = 4096
kernel_size = 4
stride = 4


class Model(nn.Module):
    """Largest element of each window."""

    def __init__(self, kernel_size: int, stride: int) -> None:
        """Set the window and its step."""
        super().__init__()
        self.pool = nn.MaxPool1d(kernel_size, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pool a tensor of shape (batch_size, channels, length)."""
        return self.pool(x)


def get_inputs() -> list[torch.Tensor]:
    """One batch of signals."""
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs() -> list:
    """Window and step."""
    return [kernel_size, stride]
