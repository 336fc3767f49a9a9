"""A workload of your own: a function that returns a `ddp_repro.Workload`. See docs/your-own-training.md."""

import math
import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ddp_repro import Workload


class Curve(Dataset[tuple[Tensor, Tensor]]):
    """Points on a sine curve, each measured with an error of its own: (x float32[1], y float32[1])."""

    def __init__(self, points: int, error: float) -> None:
        self.points = points
        self.error = error

    def __len__(self) -> int:
        return self.points

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = 2 * math.pi * index / self.points
        y = math.sin(x) + random.gauss(0, self.error)
        return torch.tensor([x]), torch.tensor([y])


def loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the mean squared error over a batch."""
    x, y = batch
    return nn.functional.mse_loss(model(x), y)


def squared_error(model: nn.Module, batch: Any) -> tuple[float, int]:
    """Return the sum of squared errors over a batch, and how many points it has."""
    x, y = batch
    return float(((model(x) - y) ** 2).sum()), len(x)


def build(points: int = 1000, hidden: int = 32, lr: float = 0.01) -> Workload:
    """Build the model and its data. ddp_repro has seeded the process; it wraps, moves and trains what this returns."""
    return Workload(
        model=nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 1)),
        loss=loss,
        train_data=Curve(points, error=0.1),
        batch_size=32,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9),
        eval_data=Curve(points, error=0.0),
        metric=squared_error,
        data_identity={"name": "sine", "length": points, "digest": "made from its index", "split": "train"},
    )
