"""A training of a few steps that has all that a resume can lose.

That is noise from three libraries, batch norm, dropout, moments, a schedule, several buckets, an uneven epoch.
"""

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ddp_repro import Workload

Sample = tuple[Tensor, int]
BATCH = 4
LABELS = 5


class Noisy(Dataset[Sample]):
    """Points around a few centres; each library has its share in the noise."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        point = torch.full((12,), float(index % LABELS))
        noise = random.random() + float(np.random.normal())
        return point + noise + torch.randn(12), index % LABELS


class Centres(Dataset[Sample]):
    """The same points without noise."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Sample:
        return torch.full((12,), float(index % LABELS)), index % LABELS


def _correct(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[float, int]:
    points, labels = batch
    return float((model(points).argmax(1) == labels).sum()), len(labels)


def build(samples: int = 46) -> Workload:
    """46 samples: three ranks get four batches an epoch, the last of them short."""
    widths = (12, 48, 48, LABELS)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU(), nn.Dropout(0.2)]
    model = nn.Sequential(*layers[:-3])
    return Workload(
        model=model,
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        train_data=Noisy(samples),
        eval_data=Centres(),
        metric=_correct,
        batch_size=BATCH,
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR,
        clip_norm=1.0,
    )


class Private(Noisy):
    """Draws from a generator of its own, which nobody saves."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.generator = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Sample:
        point, label = super().__getitem__(index)
        return point + float(self.generator.normal()), label


class Counting(nn.Module):
    """Scales by a count of its forwards, which is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, values: Tensor) -> Tensor:
        self.calls += self.training
        return values * (1 + self.calls)


def unsaved_generator() -> Workload:
    """The data set's own generator is in no checkpoint."""
    return replace(build(), train_data=Private(46))


def unsaved_counter() -> Workload:
    """The model counts in a plain attribute."""
    workload = build()
    return replace(workload, model=nn.Sequential(workload.model, Counting()))
