"""Sum over the last dimension."""

import torch
import torch.nn as nn

rows = 4096
cols = 4096


class Model(nn.Module):
    """Sum of each row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Reduce a tensor of shape (rows, cols) to shape (rows,)."""
        return x.sum(dim=-1)


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (rows, cols)."""
    return [torch.randn(rows, cols)]


def get_init_inputs() -> list:
    """No constructor arguments."""
    return []
