"""Scaled and masked softmax, the middle of an attention layer."""

import torch
import torch.nn as nn

heads = 32
rows = 256
columns = 1024


class Model(nn.Module):
    """softmax(mask(scores * scale))."""

    def __init__(self, scale: float) -> None:
        """Set the scale."""
        super().__init__()
        self.scale = scale

    def forward(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Normalise scores of shape (heads, rows, columns) under a mask of shape (rows, columns)."""
        return torch.softmax(torch.where(mask > 0, scores * self.scale, -10000.0), dim=-1)


def get_inputs() -> list[torch.Tensor]:
    """Scores, and a mask that lets positive positions through."""
    return [torch.randn(heads, rows, columns), torch.randn(rows, columns)]


def get_init_inputs() -> list:
    """The scale."""
    return [0.125]
