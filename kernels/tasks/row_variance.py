"""Variance of every row."""

import torch
import torch.nn as nn

rows = 1024
columns = 4096


class Model(nn.Module):
    """The unbiased variance along the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Reduce every row to one number."""
        return torch.var(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (rows, columns)."""
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
