"""Scaled dot-product attention."""

import torch
import torch.nn as nn

batch_size = 4
heads = 8
tokens = 256
width = 64


class Model(nn.Module):
    """softmax(q k^T / sqrt(width)) v."""

    def __init__(self, width: int) -> None:
        """Set the scale for the given width of a head."""
        super().__init__()
        self.scale = width**-0.5

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend over tensors of shape (batch_size, heads, tokens, width)."""
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.scale
        return torch.matmul(torch.softmax(scores, dim=-1), v)


def get_inputs() -> list[torch.Tensor]:
    """Queries, keys and values."""
    return [
        torch.randn(batch_size, heads, tokens, width),
        torch.randn(batch_size, heads, tokens, width),
        torch.randn(batch_size, heads, tokens, width),
    ]


def get_init_inputs() -> list:
    """The width of a head."""
    return [width]
