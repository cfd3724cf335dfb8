"""Gated feed-forward activation of large language models."""

import torch
import torch.nn as nn
import torch.nn.functional as F

tokens = 2048
hidden = 4096


class Model(nn.Module):
    """silu(gate) * value."""

    def forward(self, gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Combine gate and value of shape (tokens, hidden)."""
        return F.silu(gate) * value


def get_inputs() -> list[torch.Tensor]:
    """Gate and value."""
    return [torch.randn(tokens, hidden), torch.randn(tokens, hidden)]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
