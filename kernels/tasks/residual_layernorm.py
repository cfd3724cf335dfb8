"""Residual addition followed by layer normalisation."""

import torch
import torch.nn as nn

tokens = 4096
hidden = 1024


class Model(nn.Module):
    """layernorm(x + residual)."""

    def __init__(self, hidden: int) -> None:
        """Create the affine parameters."""
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Add and normalise tensors of shape (tokens, hidden)."""
        return self.norm(x + residual)


def get_inputs() -> list[torch.Tensor]:
    """The branch and the residual."""
    return [torch.randn(tokens, hidden), torch.randn(tokens, hidden)]


def get_init_inputs() -> list:
    """The size of the last dimension."""
    return [hidden]
