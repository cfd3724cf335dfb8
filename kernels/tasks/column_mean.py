"""Mean of every column."""

import torch
import torch.nn as nn

rows = 1024
columns = 4096


class Model(nn.Module):
    """The mean along the first dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Reduce the first dimension."""
        return torch.mean(x, dim=0)


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (rows, columns)."""
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
