"""Rows of a table picked by an index, half precision."""

import torch
import torch.nn as nn

table = 8192
rows = 4096
columns = 256


class Model(nn.Module):
    """x[index]."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Pick rows of a table of shape (table, columns)."""
        return torch.index_select(x, 0, index)


def get_inputs() -> list[torch.Tensor]:
    """The table and the index."""
    return [torch.randn(table, columns).half(), torch.randint(0, table, (rows,))]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
