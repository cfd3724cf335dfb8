"""Gaussian error linear unit, exact form."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 2048
features = 8192


class Model(nn.Module):
    """x * Phi(x)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply GELU to a tensor of shape (batch_size, features)."""
        return F.gelu(x)


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (batch_size, features)."""
    return [torch.randn(batch_size, features)]


def get_init_inputs() -> list:
    """No constructor arguments."""
    return []
