"""The few largest elements of every row, in falling order."""

import torch
import torch.nn as nn

rows = 1024
columns = 2048
k = 4


class Model(nn.Module):
    """The k largest elements along the last dimension."""

    def __init__(self, k: int) -> None:
        """Set how many are wanted."""
        super().__init__()
        self.k = k

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the k largest elements of every row."""
        return torch.topk(x, self.k, dim=-1).values


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (rows, columns)."""
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list:
    """How many are wanted."""
    return [k]
