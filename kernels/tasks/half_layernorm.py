"""Layer normalisation in half precision."""

import torch
import torch.nn as nn

tokens = 4096
hidden = 1024


class Model(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight + bias."""

    def __init__(self, hidden: int) -> None:
        """Create the affine parameters in half precision."""
        super().__init__()
        self.norm = nn.LayerNorm(hidden).half()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise a tensor of shape (tokens, hidden)."""
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (tokens, hidden) in half precision."""
    return [torch.randn(tokens, hidden).half()]


def get_init_inputs() -> list:
    """The size of the last dimension."""
    return [hidden]
