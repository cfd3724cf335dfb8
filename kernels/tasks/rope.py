"""Rotary position embedding."""

import torch
import torch.nn as nn

batch_size = 4
heads = 8
tokens = 512
width = 64


class Model(nn.Module):
    """x * cos + rotate_half(x) * sin."""

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """Rotate a tensor of shape (batch_size, heads, tokens, width) by angles of shape (tokens, width)."""
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * cosine + turned * sine


def get_inputs() -> list[torch.Tensor]:
    """The tensor and the cosines and sines of the angles."""
    return [torch.randn(batch_size, heads, tokens, width), torch.randn(tokens, width), torch.randn(tokens, width)]


def get_init_inputs() -> list:
    """Nothing: the operator has no parameters."""
    return []
