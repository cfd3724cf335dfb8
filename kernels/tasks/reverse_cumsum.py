"""Running sum along rows, from the end."""

import torch
import torch.nn as nn

rows = 1024
columns = 2048


class Model(nn.Module):
    """The sum of all elements from each position on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add up every row from its end."""
        return torch.flip(torch.cumsum(torch.flip(x, [-1]), dim=-1), [-1])


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (rows, columns)."""
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
