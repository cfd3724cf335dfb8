"""Embedding gather: rows of a table by index."""

import torch
import torch.nn as nn

vocabulary = 32000
width = 1024
tokens = 4096


class Model(nn.Module):
    """table[index]."""

    def __init__(self, vocabulary: int, width: int) -> None:
        """Create the table."""
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        """Gather int64 indices of shape (tokens,) to (tokens, width)."""
        return self.table(index)


def get_inputs() -> list[torch.Tensor]:
    """Indices into the table."""
    return [torch.randint(0, vocabulary, (tokens,))]


def get_init_inputs() -> list:
    """Rows and width of the table."""
    return [vocabulary, width]
