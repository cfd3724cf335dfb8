"""Rectified linear unit."""

import torch
import torch.nn as nn

batch_size = 4096
features = 4096


class Model(nn.Module):
    """max(x, 0)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply ReLU to a tensor of shape (batch_size, features)."""
        return torch.relu(x)


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (batch_size, features)."""
    return [torch.randn(batch_size, features)]


def get_init_inputs() -> list:
    """No constructor arguments."""
    return []
