"""Matrix transpose into contiguous memory."""

import torch
import torch.nn as nn

rows = 4096
cols = 2048


class Model(nn.Module):
    """x.T, written out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Transpose (rows, cols) to contiguous (cols, rows)."""
        return x.t().contiguous()


def get_inputs() -> list[torch.Tensor]:
    """One matrix of shape (rows, cols)."""
    return [torch.randn(rows, cols)]


def get_init_inputs() -> list:
    """No constructor arguments."""
    return []
