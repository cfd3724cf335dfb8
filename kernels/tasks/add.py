"""Elementwise sum of two tensors."""

import torch
import torch.nn as nn

batch_size = 4096
features = 4096


class Model(nn.Module):
    """x + y."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Add two tensors of shape (batch_size, features)."""
        return x + y


def get_inputs() -> list[torch.Tensor]:
    """Two tensors of shape (batch_size, features)."""
    return [torch.randn(batch_size, features), torch.randn(batch_size, features)]


def get_init_inputs() -> list:
    """No constructor arguments."""
    return []
