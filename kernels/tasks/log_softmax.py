"""Logarithm of the softmax along rows."""

import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 1024
columns = 4096


class Model(nn.Module):
    """x - logsumexp(x) along the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise every row."""
        return F.log_softmax(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (rows, columns)."""
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
