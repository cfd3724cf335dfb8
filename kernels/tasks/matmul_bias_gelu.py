"""Linear layer followed by GELU: the first half of a transformer's feed-forward block."""

import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 1024
in_features = 1024
out_features = 4096


class Model(nn.Module):
    """gelu(x @ weight.T + bias)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        """Create the layer with the given widths."""
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (tokens, in_features) to (tokens, out_features)."""
        return F.gelu(self.linear(x))


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (tokens, in_features)."""
    return [torch.randn(tokens, in_features)]


def get_init_inputs() -> list:
    """The two widths."""
    return [in_features, out_features]
