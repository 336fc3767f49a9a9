"""Parts of a workload that the built-in loop cannot train with are told in its own words, not in torch's."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import LBFGS, SGD, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from ddp_repro.errors import ReproError
from ddp_repro.run.training_checks import (
    checked_loader,
    checked_loss,
    checked_optimizer,
    checked_scheduler,
    measured,
)
from ddp_repro.workload import digits
from ddp_repro.workload.factory import _check

MODEL = nn.Linear(2, 1)


def sgd() -> Optimizer:
    """Return an optimizer that lives no longer than a test: one that is there is one that other tests observe."""
    return SGD(MODEL.parameters(), lr=0.1)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def giving(value: Any) -> Callable[..., Any]:
    return lambda *_: value


@pytest.mark.parametrize(
    ("check", "made", "told"),
    [
        (checked_loss, lambda: 0.5, "loss returned float"),
        (checked_loss, lambda: MODEL(torch.ones(8, 2)), "shape [8, 1]"),
        (checked_loss, lambda: torch.ones(()), "has no gradient"),
        (checked_optimizer, lambda: LBFGS(MODEL.parameters()), "LBFGS needs a closure"),
        (checked_optimizer, lambda: MODEL, "optimizer returned Linear"),
        (checked_scheduler, lambda: ReduceLROnPlateau(sgd()), "ReduceLROnPlateau needs a metric"),
        (checked_scheduler, lambda: 0.1, "scheduler returned float"),
        (checked_loader, lambda: [1, 2], "train_loader returned list"),
        (checked_loader, lambda: DataLoader(Stream()), "no length: its data set is an iterable one (Stream)"),
        (lambda metric: measured(metric, MODEL, None), lambda: None, "needs a metric"),
        (lambda metric: measured(metric, MODEL, None), lambda: giving(0.5), "metric returned float"),
        (lambda metric: measured(metric, MODEL, None), lambda: giving((torch.ones(3), 3)), "metric returned tuple"),
    ],
)
def test_what_cannot_be_trained_with_is_refused(
    check: Callable[[Any], Any], made: Callable[[], Any], told: str
) -> None:
    part = made()
    with pytest.raises(ReproError) as refused:
        check(part)
    assert told in str(refused.value)
    assert refused.value.hint


class Closing(Optimizer):
    """Takes a closure, and does without."""

    def __init__(self) -> None:
        super().__init__(MODEL.parameters(), {})

    def step(self, closure: Any = None) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize("made", [sgd, Closing])
def test_what_can_be_trained_with_passes(made: Callable[[], Optimizer]) -> None:
    optimizer = made()
    assert checked_optimizer(optimizer) is optimizer
    assert checked_scheduler(StepLR(sgd(), 1))
    assert checked_loader(DataLoader(TensorDataset(torch.ones(3))))
    assert checked_loss(MODEL(torch.ones(1, 2))).numel() == 1
    assert measured(giving((torch.tensor(2.5), torch.tensor(3))), MODEL, None) == (2.5, 3)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("train_loader", [1], "train_loader=list"),
        ("metric", "accuracy", "metric='accuracy'"),
        ("loss", None, "loss=NoneType"),
        ("batch_size", 0, "batch_size=0"),
        ("batch_size", 8.0, "batch_size=8.0"),
        ("clip_norm", "1.0", "clip_norm='1.0'"),
        ("model", MODEL.forward, "model=method"),
    ],
)
def test_a_field_of_another_type_is_named(field: str, value: Any, told: str) -> None:
    workload = digits.build(size="tiny")
    _check(workload, "mine.build")
    with pytest.raises(ReproError) as refused:
        _check(replace(workload, **{field: value}), "mine.build")
    assert told in str(refused.value)
