"""Batched matrix product."""

import torch
import torch.nn as nn

batch_size = 32
rows = 128
inner = 256
columns = 128


class Model(nn.Module):
    """a @ b for every member of the batch."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Multiply (batch_size, rows, inner) by (batch_size, inner, columns)."""
        return torch.bmm(a, b)


def get_inputs() -> list[torch.Tensor]:
    """Two batches of matrices."""
    return [torch.randn(batch_size, rows, inner), torch.randn(batch_size, inner, columns)]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
