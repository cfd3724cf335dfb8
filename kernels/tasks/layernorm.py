"""Layer normalisation with affine parameters."""

import torch
import torch.nn as nn

tokens = 4096
hidden = 1024


class Model(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight + bias."""

    def __init__(self, hidden: int) -> None:
        """Normalise the last dimension, of the given size."""
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise a tensor of shape (tokens, hidden)."""
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (tokens, hidden)."""
    return [torch.randn(tokens, hidden)]


def get_init_inputs() -> list:
    """The size of the last dimension."""
    return [hidden]
