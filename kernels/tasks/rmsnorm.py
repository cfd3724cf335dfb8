"""Root-mean-square normalisation with a weight (as in Llama)."""

import torch
import torch.nn as nn

tokens = 4096
hidden = 2048


class Model(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight."""

    def __init__(self, hidden: int, eps: float = 1e-6) -> None:
        """Normalise the last dimension, of the given size."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise a tensor of shape (tokens, hidden)."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (tokens, hidden)."""
    return [torch.randn(tokens, hidden)]


def get_init_inputs() -> list:
    """The size of the last dimension."""
    return [hidden]
