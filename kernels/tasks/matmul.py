"""Matrix product."""

import torch
import torch.nn as nn

M = 1024
K = 2048
N = 1024


class Model(nn.Module):
    """a @ b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Multiply (M, K) by (K, N)."""
        return torch.matmul(a, b)


def get_inputs() -> list[torch.Tensor]:
    """Matrices of shapes (M, K) and (K, N)."""
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs() -> list:
    """No constructor arguments."""
    return []
