"""Linear layer, residual addition and rectifier."""

import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 512
hidden = 1024


class Model(nn.Module):
    """relu(x @ weight.T + bias + x)."""

    def __init__(self, hidden: int) -> None:
        """Create the layer."""
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (tokens, hidden) to (tokens, hidden)."""
        return F.relu(self.linear(x) + x)


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (tokens, hidden)."""
    return [torch.randn(tokens, hidden)]


def get_init_inputs() -> list:
    """The width."""
    return [hidden]
