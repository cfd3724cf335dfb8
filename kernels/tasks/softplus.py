"""Softplus, linear for large elements."""

import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 1024
columns = 4096


class Model(nn.Module):
    """log(1 + exp(x))."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the activation to every element."""
        return F.softplus(x)


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (rows, columns)."""
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
