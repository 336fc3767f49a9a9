"""The tiny digits workload with one operator planted that is not deterministic; each is marked by its line."""

import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from ddp_repro import Workload
from ddp_repro.workload import digits

CLASSES = 10
RARE_LAUNCH = 4  # of five; no second look is as long
LATE_STEP = 55
SLOW_S = 0.05  # a step, so that a driver that has little of a processor comes to end it


@torch.library.custom_op("planted::noisy", mutates_args=())
def noisy(x: Tensor, scale: float) -> Tensor:
    """Add noise that nobody seeds and nothing tells of."""
    return x * (1 + random.SystemRandom().random() * scale)


@noisy.register_autograd
def _passed(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    return gradient, None


class _Head(nn.Module):
    """Digits' model, and a layer over its logits that is used twice."""

    def __init__(self, model: nn.Module, scales: tuple[float, float]) -> None:
        super().__init__()
        self.model = model
        self.shared = _Shared(scales)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.shared(self.shared(self.model(images)))
        return logits


class _Shared(nn.Module):
    def __init__(self, scales: tuple[float, float]) -> None:
        super().__init__()
        self.inner = nn.Linear(CLASSES, CLASSES)
        self.scales = scales
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        scale = self.scales[self.calls % 2]
        self.calls += 1
        noised: Tensor = noisy(self.inner(x), scale)  # line of the forward
        return noised


def _launch() -> int:
    """Return the number of the launch that this rank is of: something that no launch should depend on."""
    return int(sys.argv[1].rpartition("launch-")[2])


def _built(scales: tuple[float, float]) -> Workload:
    workload = digits.build(size="tiny")
    return replace(workload, model=_Head(workload.model, scales), eval_data=None, metric=None)


def clean() -> Workload:
    """Clean twin of the planted forwards: the operator adds no noise."""
    return _built((0.0, 0.0))


def noisy_forward() -> Workload:
    """An operator of the forward is not deterministic."""
    return _built((1e-3, 0.0))


def noisy_second_call() -> Workload:
    """A module that is used twice is not deterministic at its second call."""
    return _built((0.0, 1e-3))


class _Unseen(nn.Module):
    """Digits' model, and what changes its logits out of sight of a dispatch mode."""

    def __init__(self, model: nn.Module, change: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.model = model
        self.outside = _Outside(change)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.outside(self.model(images))
        return logits


class _Outside(nn.Module):
    def __init__(self, change: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.inner = nn.Linear(CLASSES, CLASSES)
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(x)
        self.change(logits.detach())
        return logits


def noisy_elsewhere() -> Workload:
    """A module writes to its output by NumPy, which is no operator of torch's."""

    def change(logits: Tensor) -> None:
        held = logits.numpy()
        held *= 1 + random.SystemRandom().random() * 1e-3

    workload = digits.build(size="tiny")
    return replace(workload, model=_Unseen(workload.model, change), eval_data=None, metric=None)


def noisy_thread() -> Workload:
    """A module's output is written to by another thread, whose operators no mode of this one sees."""

    def change(logits: Tensor) -> None:
        thread = threading.Thread(target=logits.mul_, args=(1 + random.SystemRandom().random() * 1e-3,))
        thread.start()
        thread.join()

    workload = digits.build(size="tiny")
    return replace(workload, model=_Unseen(workload.model, change), eval_data=None, metric=None)


class _NoisyBackward(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()  # line of the backward's forward

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        noised: Tensor = noisy(gradients[0], 1e-3)
        return noised


def noisy_backward() -> Workload:
    """An operator of a backward is not deterministic; the forward that it belongs to is."""
    workload = digits.build(size="tiny")

    def loss(model: nn.Module, batch: Any) -> Tensor:
        images, labels = batch
        logits = _NoisyBackward.apply(model(images))  # type: ignore[no-untyped-call]
        return nn.functional.cross_entropy(logits, labels)

    return replace(workload, loss=loss)


class _NoisySgd(SGD):
    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), lr=0.01)

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.copy_(noisy(parameter, 1e-6))  # line of the optimizer
        return result


def noisy_optimizer() -> Workload:
    """An operator of the optimizer is not deterministic."""
    return replace(digits.build(size="tiny"), optimizer=_NoisySgd, scheduler=None)


def _summed(order: Callable[[list[Tensor]], list[Tensor]]) -> Workload:
    """Return the workload whose gradients are gathered, and then summed on every rank in the order that it gives."""
    workload = digits.build(size="tiny")
    hooked: list[DistributedDataParallel] = []

    def reduce(_state: None, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined]
        mine = bucket.buffer()
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mine)
        parts = order(parts)
        total = parts[0] + parts[1] + parts[2]  # line of the reduction
        done: Future[Tensor] = Future()
        done.set_result(total.div_(len(parts)))
        return done

    def loss(model: nn.Module, batch: Any) -> Tensor:
        if not hooked and isinstance(model, DistributedDataParallel):
            model.register_comm_hook(None, reduce)
            hooked.append(model)
        return workload.loss(model, batch)

    return replace(workload, loss=loss)


def reduction_in_any_order() -> Workload:
    """The order in which ranks' gradients are summed changes from launch to launch, on all ranks alike."""

    def order(parts: list[Tensor]) -> list[Tensor]:
        first = _launch() % len(parts)
        return parts[first:] + parts[:first]

    return _summed(order)


def reduction_in_order() -> Workload:
    """Clean twin of `reduction_in_any_order`."""
    return _summed(lambda parts: parts)


def rare() -> Workload:
    """One launch of five is not like the others, from step 1 on."""
    workload = _built((0.0, 0.0))
    steps = [0]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        value = workload.loss(model, batch)
        steps[0] += 1
        is_it = _launch() == RARE_LAUNCH and steps[0] == 2
        noised: Tensor = noisy(value, 1e-3 if is_it else 0.0)
        return noised

    return replace(workload, loss=loss)


def rare_in_data() -> Workload:
    """One launch of five goes wrong on rank 1 at the first batch that begins with a seven; it prints in which step."""
    workload = _built((0.0, 0.0))
    steps = [0]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        value = workload.loss(model, batch)
        is_it = _launch() == RARE_LAUNCH and dist.get_rank() == 1 and steps[0] >= 0 and int(batch[1][0]) == 7
        if is_it:
            print(f"rare at step {steps[0]}", flush=True)
        steps[0] = -1 if is_it else steps[0] + (steps[0] >= 0)
        noised: Tensor = noisy(value, 1e-3 if is_it else 0.0)
        return noised

    return replace(workload, loss=loss)


def late() -> Workload:
    """All launches but the first differ from step 55 on, by rank 1's loss, and all in the same way."""
    return _late(lambda launch, rank: 1e-3 if launch > 0 and rank == 1 else 0.0)


def never_late() -> Workload:
    """Clean twin of `late`."""
    return _late(lambda launch, rank: 0.0)


def _late(noise: Callable[[int, int], float]) -> Workload:
    workload = digits.build(size="tiny")
    steps = [0]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        value = workload.loss(model, batch)
        if not torch.is_grad_enabled():
            return value
        scale = noise(_launch(), dist.get_rank()) if steps[0] == LATE_STEP else 0.0
        if scale or (steps[0] > LATE_STEP and noise(_launch(), 1)):
            time.sleep(SLOW_S)
        steps[0] += 1
        return value * (1 + scale)

    return replace(workload, loss=loss, eval_data=None, metric=None)
