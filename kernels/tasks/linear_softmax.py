"""Linear layer followed by softmax: the head of a classifier."""

import torch
import torch.nn as nn

tokens = 512
in_features = 512
out_features = 1024


class Model(nn.Module):
    """softmax(x @ weight.T + bias)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        """Create the layer."""
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (tokens, in_features) to (tokens, out_features)."""
        return torch.softmax(self.linear(x), dim=-1)


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (tokens, in_features)."""
    return [torch.randn(tokens, in_features)]


def get_init_inputs() -> list:
    """The two widths."""
    return [in_features, out_features]
