"""Matrix-vector product."""

import torch
import torch.nn as nn

rows = 4096
columns = 4096


class Model(nn.Module):
    """a @ x."""

    def forward(self, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Multiply (rows, columns) by (columns,)."""
        return torch.mv(a, x)


def get_inputs() -> list[torch.Tensor]:
    """A matrix and a vector."""
    return [torch.randn(rows, columns), torch.randn(columns)]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
