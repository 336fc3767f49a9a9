"""How both built-in workloads are optimised: AdamW and a cosine schedule after a short rise."""

import math

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler


def adamw(model: nn.Module, *, lr: float, weight_decay: float) -> Optimizer:
    """Return AdamW over `model`; matrices and kernels decay, biases and normalisation do not."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=lr)


def cosine(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    """Return a schedule, advanced once a step: up over the first tenth of `total_steps`, then down along a cosine."""
    rise = max(1, total_steps // 10)

    def factor(step: int) -> float:
        if step < rise:
            return (step + 1) / rise
        done = min(1.0, (step - rise) / max(1, total_steps - rise))
        return 0.5 * (1 + math.cos(math.pi * done))

    return LambdaLR(optimizer, factor)
