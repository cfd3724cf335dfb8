"""Cosine of the angle between paired rows."""

import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 512
columns = 2048


class Model(nn.Module):
    """a.b / (||a|| ||b||) along the last dimension."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Reduce paired rows to one number each."""
        return F.cosine_similarity(a, b, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    """Two tensors of shape (rows, columns)."""
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
