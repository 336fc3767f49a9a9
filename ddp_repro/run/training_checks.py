"""What the built-in loop asks of the parts of a workload, told in one message where a part is another thing."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from ddp_repro.errors import ReproError

_OWN_LOOP = "or run a script with a loop of its own: workload=script workload.path=train.py"


def checked_optimizer(optimizer: Any) -> Optimizer:
    """Return the optimizer; raise ReproError for what is none, or needs a closure."""
    if not isinstance(optimizer, Optimizer):
        raise ReproError(
            f"the workload's optimizer returned {_kind(optimizer)}",
            hint="return a torch.optim.Optimizer over the parameters of the model that it gets",
        )
    if _needs_an_argument(optimizer.step):
        raise ReproError(
            f"{_kind(optimizer)} needs a closure, and this loop calls optimizer.step() without one",
            hint=f"use an optimizer without a closure, {_OWN_LOOP}",
        )
    return optimizer


def checked_scheduler(scheduler: Any) -> LRScheduler:
    """Return the scheduler; raise ReproError for what cannot be stepped without a metric."""
    if not callable(getattr(scheduler, "step", None)):
        raise ReproError(
            f"the workload's scheduler returned {_kind(scheduler)}",
            hint="return a scheduler of torch.optim.lr_scheduler for the optimizer that it gets",
        )
    if _needs_an_argument(scheduler.step):
        raise ReproError(
            f"{_kind(scheduler)} needs a metric, and this loop calls scheduler.step() after each optimizer step",
            hint=f"use a scheduler that counts steps, {_OWN_LOOP}",
        )
    return scheduler  # type: ignore[no-any-return]  # what the loop calls of it is there


def checked_loader(loader: Any) -> "DataLoader[Any]":
    """Return the loader; raise ReproError for what is none, or has no length."""
    if not isinstance(loader, DataLoader):
        raise ReproError(
            f"the workload's train_loader returned {_kind(loader)}",
            hint="return a torch.utils.data.DataLoader, such as ddp_repro.make_loader makes",
        )
    try:
        len(loader)
    except TypeError:
        raise ReproError(
            f"the workload's train_loader has no length: its data set is an iterable one ({_kind(loader.dataset)})",
            hint=f"give the data set a __len__ or make it a map-style one, {_OWN_LOOP}",
        ) from None
    return loader


def checked_loss(loss: Any) -> torch.Tensor:
    """Return the loss; raise ReproError for what has no backward."""
    if not isinstance(loss, torch.Tensor):
        raise ReproError(
            f"the workload's loss returned {_kind(loss)}", hint="return a tensor with one element, without .item()"
        )
    if loss.numel() != 1:
        raise ReproError(
            f"the workload's loss returned a tensor of shape {list(loss.shape)}, and backward needs one element",
            hint='return the mean or the sum: loss.mean(), or leave out reduction="none"',
        )
    if not loss.requires_grad:
        raise ReproError(
            "the workload's loss has no gradient: it does not depend on a parameter that is trained",
            hint="compute it from the model that it gets, without detach(), .item() or no_grad",
        )
    return loss


def measured(metric: Callable[..., Any] | None, model: Any, batch: Any) -> tuple[float, int]:
    """Return a metric's sum over a batch and its count; raise ReproError where it gives something else."""
    if metric is None:
        raise ReproError(
            "a workload with eval_data needs a metric",
            hint="give it one, leave out eval_data, or set train.evaluate=false",
        )
    given = metric(model, batch)
    try:
        part, count = given
        return float(part), int(count)
    except (TypeError, ValueError, RuntimeError):
        raise ReproError(
            f"the workload's metric returned {_kind(given)}",
            hint="return a pair: the sum over the batch, and how many samples it is over",
        ) from None


def _needs_an_argument(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    given = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(one.default is inspect.Parameter.empty and one.kind not in given for one in parameters)


def _kind(thing: Any) -> str:
    return type(thing).__name__
