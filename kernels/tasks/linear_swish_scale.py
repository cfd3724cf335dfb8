"""Linear layer, swish and a scale."""

import torch
import torch.nn as nn

tokens = 512
in_features = 1024
out_features = 1024


class Model(nn.Module):
    """swish(x @ weight.T + bias) * scale."""

    def __init__(self, in_features: int, out_features: int, scale: float) -> None:
        """Create the layer."""
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (tokens, in_features) to (tokens, out_features)."""
        y = self.linear(x)
        return torch.sigmoid(y) * y * self.scale


def get_inputs() -> list[torch.Tensor]:
    """One tensor of shape (tokens, in_features)."""
    return [torch.randn(tokens, in_features)]


def get_init_inputs() -> list:
    """The two widths and the scale."""
    return [in_features, out_features, 2.0]
