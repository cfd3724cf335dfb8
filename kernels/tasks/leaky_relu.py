"""Leaky rectifier with a slope for negative elements."""

import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 1024
columns = 4096


class Model(nn.Module):
    """x where it is positive, slope * x elsewhere."""

    def __init__(self, slope: float) -> None:
        """Set the slope."""
        super().__init__()
        self.slope = slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale negative elements."""
        return F.leaky_relu(x, self.slope)


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (rows, columns)."""
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list:
    """The slope."""
    return [0.05]
