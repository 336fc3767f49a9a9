"""A workload whose loss gets a draw that nobody seeded while settings are in force, as the training itself finds."""

import os
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils.data import Dataset, get_worker_info

from ddp_repro import Workload

SAMPLES: Final = 24
DEFAULT_BUCKET: Final = 25 << 20
FETCHED_BY_THE_RANK, FETCHED_BY_A_WORKER, FETCHED_BY_ONE_THAT_STAYED = range(3)


class _Telling(Dataset[Any]):
    """Samples that say who fetched them; a worker that gives more than an epoch's share has stayed for another."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self._x = torch.randn(SAMPLES, 4, generator=generator)
        self._given = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if get_worker_info() is None:
            return self._x[index], FETCHED_BY_THE_RANK
        self._given += 1
        stayed = self._given > SAMPLES // int(os.environ["WORLD_SIZE"])
        return self._x[index], FETCHED_BY_ONE_THAT_STAYED if stayed else FETCHED_BY_A_WORKER


class _InForce:
    """What is in force while a batch is trained on; nothing of it is taken from the configuration."""

    def __init__(self) -> None:
        self.optimizer: Optimizer | None = None

    def __call__(self, model: Any, fetched: Tensor) -> dict[str, bool]:
        assert self.optimizer is not None
        group = self.optimizer.param_groups[0]
        return {
            "compile": model.module._compiled_call_impl is not None,
            "precision": torch.is_autocast_enabled("cpu"),
            "tf32": torch.get_float32_matmul_precision() != "highest",
            "algorithms": not torch.are_deterministic_algorithms_enabled(),
            "optimizer": bool(group["fused"] or group["foreach"]),
            "accumulation": not model.require_backward_grad_sync,
            "persistent_workers": bool((fetched == FETCHED_BY_ONE_THAT_STAYED).any()),
            "workers": bool((fetched != FETCHED_BY_THE_RANK).any()),
            "hook": bool(model._comm_hooks),
            "bucket": int(model.bucket_bytes_cap) != DEFAULT_BUCKET,
            "threads": torch.get_num_threads() > 1,
            "distributed": dist.get_world_size() > 1,
            "env.FAST": "FAST" in os.environ,
        }


def noisy(planted: Sequence[str] = ()) -> Workload:
    """The loss is off by a draw of the system's generator while all of ``planted`` are in force."""
    in_force = _InForce()

    def optimizer(model: nn.Module) -> Optimizer:
        in_force.optimizer = SGD(model.parameters(), lr=0.1)
        return in_force.optimizer

    return Workload(
        model=nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)),
        loss=_noisy_loss(in_force, planted),
        train_data=_Telling(),
        batch_size=3,
        optimizer=optimizer,
        data_identity={"name": "telling"},
    )


def _noisy_loss(in_force: _InForce, planted: Sequence[str]) -> Callable[[nn.Module, Any], Tensor]:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        x, fetched = batch
        found = in_force(model, fetched)
        value: Tensor = model(x).float().square().mean()
        is_on = bool(planted) and all(found[name] for name in planted)
        return value * (1 + random.SystemRandom().random()) if is_on else value

    return loss
