"""What a workload is: a model, its loss and its data, before anything is distributed or observed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset


@dataclass(kw_only=True, slots=True, frozen=True)
class LoaderRequest:
    """What the training loop asks of a loader: everything that `ddp_repro.make_loader` needs."""

    dataset: Dataset[Any]
    batch_size: int
    seed: int
    num_workers: int = 0
    persistent_workers: bool = False
    reseed: Literal["sample", "worker"] = "sample"
    shuffle: bool = True
    drop_last: bool = False


@dataclass(kw_only=True, slots=True, frozen=True)
class Workload:
    """What is trained. Build it when the process is seeded for the model; its factory sets no seed and no device.

    `loss` gets the model as DDP wraps it, `metric` the model itself (it is evaluated without gradients, and need not be
    on every rank at once); both get a batch on the model's device. `loss` returns a tensor with one element; `metric`
    the sum over the batch and its count. `scheduler` gets the optimizer and the number of optimizer steps of
    the whole run. `data_identity` names the data (name, length, digest, split): two runs on other data are not
    comparable. `train_loader` replaces `ddp_repro.make_loader`. `better` says which way the
    metric is better, for `spread`.
    """

    model: nn.Module
    loss: Callable[[nn.Module, Any], Tensor]
    train_data: Dataset[Any]
    batch_size: int
    optimizer: Callable[[nn.Module], Optimizer]
    eval_data: Dataset[Any] | None = None
    metric: Callable[[nn.Module, Any], tuple[float, int]] | None = None
    scheduler: Callable[[Optimizer, int], LRScheduler] | None = None
    clip_norm: float | None = None
    data_identity: Mapping[str, Any] = field(default_factory=dict)
    train_loader: Callable[[LoaderRequest], DataLoader[Any]] | None = None
    better: Literal["higher", "lower"] | None = None
