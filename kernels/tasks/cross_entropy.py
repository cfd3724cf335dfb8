"""Mean cross-entropy of logits against class indices."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4096
classes = 4096


class Model(nn.Module):
    """mean(logsumexp(logits) - logits[target])."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Reduce logits (batch_size, classes) and int64 targets (batch_size,) to one number."""
        return F.cross_entropy(logits, target)


def get_inputs() -> list[torch.Tensor]:
    """Logits and targets."""
    return [torch.randn(batch_size, classes), torch.randint(0, classes, (batch_size,))]


def get_init_inputs() -> list:
    """No constructor arguments."""
    return []
