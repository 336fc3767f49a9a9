"""Workloads whose ranks do not reach their end."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from ddp_repro import Workload
from ddp_repro.workload import digits


def _at_step(number: int, act: Callable[[], None]) -> Workload:
    workload = digits.build(size="tiny")
    calls = [0]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        if calls[0] == number:
            act()
        calls[0] += 1
        return workload.loss(model, batch)

    return replace(workload, loss=loss)


def killed() -> Workload:
    """Rank 1 is killed in its third step."""

    def act() -> None:
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    return _at_step(2, act)


def raising() -> Workload:
    """Rank 1 raises in its second step."""

    def act() -> None:
        if dist.get_rank() == 1:
            raise ValueError("the label 11 is unknown")

    return _at_step(1, act)


def hanging(rank: int = 0) -> Workload:
    """Rank 0, or another one, stops in its second step."""

    def waits_for_ever() -> None:
        if dist.get_rank() == rank:
            time.sleep(3600)

    return _at_step(1, waits_for_ever)


def hanging_on_rank_1() -> Workload:
    """Rank 1 stops in its second step."""
    return hanging(1)


def unused() -> Workload:
    """The model holds parameters that take no part in the loss."""
    workload = digits.build(size="tiny")
    workload.model.add_module("extra", nn.Linear(3, 3))
    return workload


def unreduced_loss() -> Workload:
    """The loss is one of each sample."""
    workload = digits.build(size="tiny")
    return replace(workload, loss=lambda model, batch: model(batch[0]).square())
