"""Sigmoid gate as in gated linear units and SwiGLU-like blocks."""

import torch
import torch.nn as nn

tokens = 4096
hidden = 4096


class Model(nn.Module):
    """x * sigmoid(gate)."""

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """Gate a tensor of shape (tokens, hidden) by another of the same shape."""
        return x * torch.sigmoid(gate)


def get_inputs() -> list[torch.Tensor]:
    """The values and the gate, each of shape (tokens, hidden)."""
    return [torch.randn(tokens, hidden), torch.randn(tokens, hidden)]


def get_init_inputs() -> list:
    """No constructor arguments."""
    return []
